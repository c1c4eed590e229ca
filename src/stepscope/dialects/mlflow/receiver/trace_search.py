"""`traces/search`: filters, orders and pages of traces, by MLflow's rules for them."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlparse import tokens as types
from sqlparse.sql import Comparison, Identifier, Parenthesis, Token, TokenList

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, refused
from stepscope.dialects.mlflow.receiver.filter_grammar import (
    ATTRIBUTE,
    NUMBERS,
    TAG,
    Clause,
    Value,
    read_comparisons,
    read_list,
    read_text,
    split_order,
    trimmed,
)
from stepscope.dialects.mlflow.receiver.run_search import (
    Sql,
    check_clauses,
    compare,
    page_token,
    pair_condition,
    read_offset,
)
from stepscope.dialects.mlflow.receiver.trace_table import FIELDS, MlflowTrace

DEFAULT_TRACES, MAX_TRACES = 100, 500
NAME_TAG, SOURCE_RUN = "mlflow.traceName", "mlflow.sourceRun"
METADATA = "request_metadata"
_KINDS = {
    **dict.fromkeys(("tag", "tags"), TAG),
    **dict.fromkeys(("attribute", "attributes", "trace"), ATTRIBUTE),
    **dict.fromkeys(("metadata", METADATA), METADATA),
}
_OF_SPANS = ("span", "feedback", "expectation", "issue")
"""What MLflow's server can search by, and a hub cannot: the contents of spans, and assessments."""
_TABLES = {TAG: "trace_tags", METADATA: "trace_metadata"}
_END = "(t.timestamp + coalesce(t.duration, 0))"
_NUMBERS = {
    **dict.fromkeys(("timestamp", "timestamp_ms"), "t.timestamp"),
    **dict.fromkeys(("execution_time", "execution_time_ms"), "t.duration"),
    **dict.fromkeys(("end_time", "end_time_ms"), _END),
}
_COLUMNS = {**_NUMBERS, "request_id": "t.trace_id", "status": "t.status", "client_request_id": "t.client_id"}
_ORDERS = {**_COLUMNS, "experiment_id": "t.experiment"}
_PAIRS = {"name": (TAG, NAME_TAG), "run_id": (METADATA, SOURCE_RUN)}
"""Attributes that are kept as a tag or as metadata."""
_LISTS = ("client_request_id", "name", "request_id", "run_id", "status")
_NUMERIC = ("=", "!=", "<", "<=", ">", ">=")
_TEXTUAL, _IN, _NULLS = ("=", "!=", "LIKE", "ILIKE"), ("IN", "NOT IN"), ("IS NULL", "IS NOT NULL")


def _parse(text: str) -> list[Clause]:
    """Parse a filter string, or refuse it."""
    return [_clause(each) for each in read_comparisons(text, prepare=_join_times)]


def _join_times(tokens: Sequence[Token]) -> list[Token]:
    """Join comparisons with `timestamp`, which is a type to `sqlparse` and no name."""
    rest = [token for token in tokens if not token.is_whitespace]
    found: list[Token] = []
    at = 0
    while at < len(rest):
        if rest[at].match(types.Name.Builtin, ["timestamp", "timestamp_ms"]) and len(rest) > at + 2:
            found.append(Comparison(TokenList(rest[at : at + 3])))
            at += 3
        else:
            found.append(rest[at])
            at += 1
    return found


def _clause(comparison: Comparison) -> Clause:
    tokens = [token for token in comparison.tokens if not token.is_whitespace]
    is_null = len(tokens) == 2 and tokens[1].value.upper() in _NULLS
    if len(tokens) != 3 and not is_null:
        raise refused(f"Invalid comparison clause. Expected 3 tokens found {len(tokens)}")
    timed = tokens[0].match(types.Name.Builtin, ["timestamp", "timestamp_ms"])
    if not timed and not isinstance(tokens[0], Identifier):
        raise refused(f"Invalid comparison clause. Expected 'Identifier' found '{tokens[0]}'")
    kind, key = _identifier(tokens[0].value, (*_COLUMNS, *_PAIRS))
    comparator = tokens[1].value.upper()
    clause = Clause(kind, key, comparator, None if is_null else _value(kind, key, tokens[2]))
    _check_comparator(clause)
    return Clause(*_PAIRS[key], comparator, clause.value) if kind == ATTRIBUTE and key in _PAIRS else clause


def _identifier(text: str, attributes: Sequence[str]) -> tuple[str, str]:
    word, dot, key = text.partition(".")
    word, key = (trimmed(word, "`"), key) if dot else (ATTRIBUTE, text)
    if word in _OF_SPANS or (_KINDS.get(word) == ATTRIBUTE and key.lower() in ("text", "prompt")):
        raise refused(f"'{text}' is not supported: a Stepscope hub searches traces by attributes, tags and metadata")
    if word not in _KINDS:
        known = sorted({*_KINDS, *_OF_SPANS})
        raise refused(f"Invalid entity type '{word}'. Valid values are {known}")
    key = trimmed(trimmed(key, "'", '"'), "`")
    if _KINDS[word] == ATTRIBUTE and key not in attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(attributes)}'")
    return _KINDS[word], key


def _value(kind: str, key: str, token: Token) -> Value:
    if (text := read_text(token)) is not None:
        return text
    if kind == METADATA or (kind == TAG and not isinstance(token, Parenthesis)):
        raise refused(f"Expected a quoted string value for {kind} (e.g. 'my-value'). Got value {token.value}")
    if isinstance(token, Parenthesis):
        if kind == ATTRIBUTE and key not in _LISTS:
            raise refused(f"Only attributes in {set(_LISTS)} supports comparison with a list of quoted string values.")
        return read_list(token.value)
    if token.ttype in NUMBERS:
        if key not in _NUMBERS:
            raise refused(f"Only the '{set(_NUMBERS)}' attributes support comparison with numeric values.")
        whole = token.ttype is types.Literal.Number.Integer and len(token.value) < 19
        return int(token.value) if whole else float(token.value)
    raise refused(
        f"Expected a quoted string value or a list of quoted string values for attributes. Got value {token.value}"
    )


def _check_comparator(clause: Clause) -> None:
    if clause.comparator == "RLIKE":
        raise refused("RLIKE is not supported: a Stepscope hub searches with LIKE and ILIKE")
    if clause.key in _NUMBERS and clause.kind == ATTRIBUTE:
        known: tuple[str, ...] = _NUMERIC
    elif clause.kind == ATTRIBUTE:
        known = (*_TEXTUAL, *_IN, *(_NULLS if clause.key in _PAIRS else ()))
    else:
        known = (*_TEXTUAL, *_NULLS)
    if clause.comparator not in known:
        raise refused(f"Invalid comparator '{clause.comparator}' not one of '{set(known)}'")
    if isinstance(clause.value, tuple) and clause.comparator not in _IN:
        raise refused(f"A list of values needs IN or NOT IN, got '{clause.comparator}'", BAD_REQUEST)


def _condition(clause: Clause) -> Sql:
    if clause.kind == ATTRIBUTE:
        return compare(_COLUMNS[clause.key], clause)
    test, values = pair_condition(f"{_TABLES[clause.kind]} AS t WHERE t.trace = trace_id", clause.key, clause)
    if clause[:3] == (METADATA, SOURCE_RUN, "="):  # also traces that were linked to the run
        linked = "EXISTS (SELECT 1 FROM trace_runs AS r WHERE r.trace = trace_id AND r.run_id = ?)"
        return f"({test} OR {linked})", [*values, clause.value]
    return test, values


def _order(order_by: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the ORDER BY terms; missing values come last, and ties are broken by time, the newest first."""
    terms: dict[str, str] = {}
    values: list[Any] = []
    for text in order_by:
        name, ascending = split_order(text)
        kind, key = _identifier(name, (*_ORDERS, *_PAIRS))
        kind, key = _PAIRS.get(key, (kind, key)) if kind == ATTRIBUTE else (kind, key)
        column = _ORDERS.get(key, "") if kind == ATTRIBUTE else f"{kind}.{key}"
        if column in terms:
            raise refused(f"`order_by` contains duplicate fields: {list(order_by)}", BAD_REQUEST)
        term = column
        if kind != ATTRIBUTE:
            term = f"(SELECT o.value FROM {_TABLES[kind]} AS o WHERE o.trace = trace_id AND o.key = ?)"
            values += [key, key]
        terms[column] = f"{term} IS NULL, {term} {'ASC' if ascending else 'DESC'}"
    for column, turn in (("t.timestamp", "DESC"), ("t.trace_id", "ASC")):
        terms.setdefault(column, f"{column} {turn}")
    return ", ".join(terms.values()), values


def search_traces(
    db: sqlite3.Connection,
    experiments: Sequence[int],
    text: str,
    order_by: Sequence[str],
    page: tuple[int, str],
    project: str | None,
) -> tuple[list[MlflowTrace], str]:
    """Return a page of traces, and the token of the next one; empty for none. As in MLflow, a full page has a next."""
    most, token = page
    order, named = _order(order_by)
    clauses = _parse(text)
    check_clauses(clauses, order_by)
    offset = read_offset(token)
    conditions, values = [f"t.experiment IN ({', '.join(map(str, experiments))})"], []
    if project is not None:
        conditions.append("t.project = ?")
        values.append(project)
    for test, given in map(_condition, clauses):
        conditions.append(test)
        values += given
    fields = ", ".join(f"t.{name}" for name in FIELDS.split(", "))
    query = f"SELECT {fields} FROM traces AS t WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ? OFFSET ?"
    found = [MlflowTrace(*row) for row in db.execute(query, [*values, *named, most, offset])]
    return found, page_token(offset + most) if len(found) == most else ""
