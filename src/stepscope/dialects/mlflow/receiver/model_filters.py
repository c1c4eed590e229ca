"""Filter strings of `logged-models/search`, which MLflow reads by other rules than those of runs."""

import re
from collections.abc import Collection

from sqlparse.exceptions import SQLParseError
from sqlparse.sql import Comparison

from stepscope.dialects.mlflow.receiver import filter_grammar as grammar
from stepscope.dialects.mlflow.receiver.errors import refused

_KINDS = {"attributes": grammar.ATTRIBUTE, "metrics": grammar.METRIC, "params": grammar.PARAM, "tags": grammar.TAG}
_ENTITY = re.compile(r"([a-z]+)\.(.+)", re.DOTALL)
_TIMES = (
    *("creation_time", "creation_timestamp", "creation_timestamp_ms"),
    *("last_updated_timestamp", "last_updated_timestamp_ms"),
)
_NUMERIC, _TEXTUAL = ("<", "<=", ">", ">=", "=", "!="), ("=", "!=", "LIKE", "ILIKE", "IN", "NOT IN")


def parse_model_filter(text: str, attributes: Collection[str]) -> list[grammar.Clause]:
    """Parse a filter string of logged models, or refuse it with MLflow's message."""
    if not text:
        return []
    start = f"Invalid filter string: {text!r}."
    try:
        statements = grammar.split_statements(text)
    except SQLParseError as error:
        raise refused(f"{start} {error!r}") from None
    if len(statements) != 1:
        raise refused(f"{start} Expected a single SQL expression.")
    found = []
    for each in grammar.join_lists(statements[0].tokens):
        if isinstance(each, Comparison):
            found.append(_clause(each, attributes))
        elif each.value.strip().upper() != "AND":
            raise refused(
                f"{start} Expected a list of comparisons separated by 'AND' "
                "(e.g. 'metrics.loss > 0.1 AND params.lr = 0.01')."
            )
    return found


def _clause(comparison: Comparison, attributes: Collection[str]) -> grammar.Clause:
    tokens = [str(token) for token in comparison.tokens if not token.is_whitespace]
    if len(tokens) != 3:
        raise refused(f"Invalid comparison: {comparison}. Expected a comparison with 3 tokens.")
    name, comparator, value = tokens[0], tokens[1].upper(), tokens[2]
    word, key = match.groups() if (match := _ENTITY.fullmatch(name)) else ("attributes", name)
    kind, key = _KINDS.get(word), key.strip("`")
    if kind is None:
        raise refused(f"Invalid entity type: {word!r}. Expected one of {list(_KINDS)}.")
    numeric = kind == grammar.METRIC or (kind == grammar.ATTRIBUTE and key in _TIMES)
    known = _NUMERIC if numeric else _TEXTUAL
    if comparator not in known:
        raise refused(f"Invalid comparison operator for {word}.{key}: {comparator!r}. Expected one of {known}.")
    if kind == grammar.ATTRIBUTE and key not in attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(attributes)}'")
    if numeric:
        return grammar.Clause(kind, key, comparator, _number(name, value))
    if not (value.startswith("(") and value.endswith(")")):
        return grammar.Clause(kind, key, comparator, grammar.trimmed(value, '"').strip("'"))
    listed = grammar.read_list(value)
    grammar.check_list(comparator, listed)
    return grammar.Clause(kind, key, comparator, listed)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refused(f"Expected numeric value type for {name}. Found {text}") from None
