"""`registered-models/search` and `model-versions/search`: filters, orders and pages, by MLflow's rules for them."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlparse import tokens as types
from sqlparse.sql import Comparison, Identifier, Parenthesis, Token

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, refused
from stepscope.dialects.mlflow.receiver.filter_grammar import (
    ATTRIBUTE,
    NUMBERS,
    TAG,
    Clause,
    Subject,
    Value,
    parse_order,
    read_comparisons,
    read_list,
    read_text,
    split_order,
    trimmed,
)
from stepscope.dialects.mlflow.receiver.model_registry import (
    DELETED,
    MODEL_FIELDS,
    PROMPT_TAG,
    VERSION_FIELDS,
    ModelVersion,
    RegisteredModel,
    describe_model,
    describe_version,
)
from stepscope.dialects.mlflow.receiver.run_search import (
    Sql,
    check_clauses,
    compare,
    page_token,
    pair_condition,
    read_offset,
)

DEFAULT_MODELS, MAX_MODELS = 100, 1000
DEFAULT_VERSIONS, MAX_VERSIONS = 200_000, 200_000
_WORDS = ("attribute", "tag", "tags")
_TEXTUAL, _LISTS = ("=", "!=", "LIKE", "ILIKE"), ("IN", "NOT IN")
_NUMERIC = ("=", "!=", "<", "<=", ">", ">=")
_MODEL_ORDERS = {"name": "name", "timestamp": "updated", "last_updated_timestamp": "updated"}
_VERSION_COLUMNS = {"name": "m.name", "version_number": "v.version", "run_id": "v.run_id", "source_path": "v.source"}
_VERSION_ORDERS = {
    "name": "m.name",
    "version_number": "v.version",
    "creation_timestamp": "v.created",
    "last_updated_timestamp": "v.updated",
}
_ORDERS_OF_VERSIONS = Subject(tuple(_VERSION_ORDERS), (), (), words=_WORDS)


class _Kind(NamedTuple):
    """What may be compared: attributes, those that are numbers, and those that a list may be given for."""

    attributes: Collection[str]
    numbers: Collection[str]
    lists: Collection[str]


_MODELS = _Kind(("name",), (), ("name",))
_VERSIONS = _Kind(tuple(_VERSION_COLUMNS), ("version_number",), ("name", "run_id"))


def _parse(text: str, kind: _Kind) -> list[Clause]:
    """Parse a filter string, or refuse it with MLflow's message."""
    return [_clause(each, kind) for each in read_comparisons(text, quoted=False)]


def _clause(comparison: Comparison, kind: _Kind) -> Clause:
    tokens = [token for token in comparison.tokens if not token.is_whitespace]
    if len(tokens) != 3:
        raise refused(f"Invalid comparison clause. Expected 3 tokens found {len(tokens)}")
    if not isinstance(tokens[0], Identifier):
        raise refused(f"Invalid comparison clause. Expected 'Identifier' found '{tokens[0]}'")
    word, dot, key = tokens[0].value.partition(".")
    if not dot:
        word, key = ATTRIBUTE, tokens[0].value
    if word not in _WORDS:
        raise refused(f"Invalid entity type '{word}'. Valid entity types are {_WORDS}")
    what = ATTRIBUTE if word == ATTRIBUTE else TAG
    if what == ATTRIBUTE and key not in kind.attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{set(kind.attributes)}'")
    key = trimmed(trimmed(key, "'", '"'), "`")
    clause = Clause(what, key, tokens[1].value.upper(), _value(what, key, tokens[2], kind))
    _check_comparator(clause, kind)
    return clause


def _value(what: str, key: str, token: Token, kind: _Kind) -> Value:
    if (text := read_text(token)) is not None:
        return text
    if what == TAG:
        raise refused(f"Expected a quoted string value for tag (e.g. 'my-value'). Got value {token.value}")
    if isinstance(token, Parenthesis):
        if key not in kind.lists:
            raise refused(
                f"Only {sorted(kind.lists)} attributes support comparison with a list of quoted string values."
            )
        return read_list(token.value)
    if kind.numbers and token.ttype in NUMBERS:
        if key not in kind.numbers:
            known = {"creation_timestamp", "last_updated_timestamp", *kind.numbers}
            raise refused(f"Only the '{known}' attributes support comparison with numeric values.")
        return int(token.value) if token.ttype is types.Literal.Number.Integer else float(token.value)
    raise refused(
        f"Expected a quoted string value or a list of quoted string values for attributes. Got value {token.value}"
    )


def _check_comparator(clause: Clause, kind: _Kind) -> None:
    if clause.kind == TAG:
        if clause.comparator not in _TEXTUAL:
            raise refused(f"Invalid comparator for tag: {clause.comparator}")
    elif clause.key in kind.numbers:
        if clause.comparator not in _NUMERIC:
            raise refused(f"Invalid comparator for attribute {clause.key}: {clause.comparator}")
    elif clause.comparator not in (*_TEXTUAL, *(_LISTS if clause.key in kind.lists else ())):
        raise refused(f"Invalid comparator for attribute: {clause.comparator}")
    if isinstance(clause.value, tuple) and clause.comparator not in _LISTS:
        raise refused(f"A list of values needs IN or NOT IN, got '{clause.comparator}'", BAD_REQUEST)


def _condition(clause: Clause, tags: str, columns: dict[str, str], kind: _Kind) -> tuple[str, list[Any]]:
    if clause.kind == TAG:
        return pair_condition(tags, clause.key, clause)
    if clause.key not in kind.numbers:
        return compare(columns[clause.key], clause)
    try:
        if isinstance(clause.value, float):
            raise ValueError
        number = int(str(clause.value)[:400])
    except ValueError:
        raise refused(f"Invalid value for numeric attribute '{clause.key}': {clause.value!r}") from None
    return compare(columns[clause.key], clause._replace(value=max(-(2**63), min(number, 2**63 - 1))))


def _prompts(clauses: list[Clause], table: str, model: str) -> tuple[str, list[Clause]]:
    """Return the condition that leaves prompts out, unless a filter asks for them, and the other clauses."""
    for each in clauses:
        if each.kind == TAG and each.key == PROMPT_TAG:
            value = str(each.value).lower()
            if (each.comparator, value) in (("=", "true"), ("!=", "false")):
                return "1", clauses
            break
    rest = [each for each in clauses if each.kind != TAG or each.key != PROMPT_TAG]
    prompt = f"SELECT t.model FROM {table} AS t WHERE t.key = '{PROMPT_TAG}' AND t.value = 'true'"
    return f"{model} NOT IN ({prompt})", rest


def search_models(
    db: sqlite3.Connection, text: str, order_by: Sequence[str], most: int, token: str, project: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Return a page of registered models, and the token of the next one; empty for none."""
    clauses = _parse(text, _MODELS)
    check_clauses(clauses, order_by)
    orders: dict[str, str] = {}
    for order in order_by:
        name, ascending = split_order(order)
        if name not in _MODEL_ORDERS:
            raise refused(f"Invalid order by key '{name}' specified. Valid keys are '{set(_MODEL_ORDERS)}'")
        _add_order(orders, f"m.{_MODEL_ORDERS[name]}", ascending, order_by)
    orders.setdefault("m.name", "ASC")
    offset = read_offset(token)
    without, clauses = _prompts(clauses, "registered_tags", "m.number")
    tests = [
        _condition(each, "registered_tags AS t WHERE t.model = m.number", {"name": "m.name"}, _MODELS)
        for each in clauses
    ]
    fields = ", ".join(f"m.{name}" for name in MODEL_FIELDS.split(", "))
    rows = _page(db, f"{fields} FROM registered_models AS m", [(without, []), *tests], orders, (most, offset), project)
    found = [describe_model(db, RegisteredModel(*row)) for row in rows[:most]]
    return found, page_token(offset + most) if len(rows) > most else ""


def search_versions(
    db: sqlite3.Connection, text: str, order_by: Sequence[str], most: int, token: str, project: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Return a page of versions that are not deleted, and the token of the next one; empty for none."""
    clauses = _parse(text, _VERSIONS)
    check_clauses(clauses, order_by)
    orders: dict[str, str] = {}
    for order in order_by or ("last_updated_timestamp DESC", "name ASC", "version_number DESC"):
        kind, key, ascending = parse_order(order, _ORDERS_OF_VERSIONS)
        if kind != ATTRIBUTE and key not in _VERSION_ORDERS:
            raise refused(f"Invalid order by key '{key}' specified. Valid keys are {set(_VERSION_ORDERS)}")
        _add_order(orders, _VERSION_ORDERS[key], ascending, order_by)
    orders.setdefault("m.name", "ASC")
    orders.setdefault("v.version", "DESC")
    offset = read_offset(token)
    without, clauses = _prompts(clauses, "version_tags", "v.model")
    tags = "version_tags AS t WHERE t.model = v.model AND t.version = v.version"
    tests: list[Sql] = [(without, []), (f"v.stage != '{DELETED}'", [])]
    tests += [_condition(each, tags, _VERSION_COLUMNS, _VERSIONS) for each in clauses]
    fields = ", ".join(f"v.{name}" for name in VERSION_FIELDS.split(", "))
    source = f"m.name, {fields} FROM model_versions AS v JOIN registered_models AS m ON m.number = v.model"
    rows = _page(db, source, tests, orders, (most, offset), project)
    found = [describe_version(db, name, ModelVersion(*row)) for name, *row in rows[:most]]
    return found, page_token(offset + most) if len(rows) > most else ""


def _add_order(orders: dict[str, str], column: str, ascending: bool, order_by: Sequence[str]) -> None:
    if column in orders:
        raise refused(f"`order_by` contains duplicate fields: {list(order_by)}", BAD_REQUEST)
    orders[column] = "ASC" if ascending else "DESC"


def _page(
    db: sqlite3.Connection,
    source: str,
    tests: Sequence[tuple[str, list[Any]]],
    orders: dict[str, str],
    page: tuple[int, int],
    project: str | None,
) -> list[tuple[Any, ...]]:
    """Return the rows of a page and one more, where there is one."""
    conditions, values = [test for test, _ in tests], [value for _, given in tests for value in given]
    if project is not None:
        conditions.append("m.project = ?")
        values.append(project)
    terms = ", ".join(f"{column} {turn}" for column, turn in orders.items())
    query = f"SELECT {source} WHERE {' AND '.join(conditions)} ORDER BY {terms} LIMIT ? OFFSET ?"
    return db.execute(query, [*values, page[0] + 1, page[1]]).fetchall()
