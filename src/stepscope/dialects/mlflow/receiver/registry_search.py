"""`registered-models/search` and `model-versions/search`: filters, orders and pages, by MLflow's rules for them."""

import sqlite3
from collections.abc import Collection
from typing import Any, NamedTuple

from sqlparse import tokens as types
from sqlparse.sql import Comparison, Parenthesis, Token

from stepscope.dialects.mlflow.receiver import filter_grammar as grammar
from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import refused
from stepscope.dialects.mlflow.receiver.model_registry import (
    DELETED,
    PROMPT_TAG,
    ModelVersion,
    RegisteredModel,
    describe_model,
    describe_version,
)
from stepscope.dialects.mlflow.receiver.tracking_rows import columns_of

DEFAULT_MODELS, MAX_MODELS = 100, 1000
DEFAULT_VERSIONS, MAX_VERSIONS = 200_000, 200_000
_WORDS = ("attribute", "tag", "tags")
_MODEL_ORDERS = {"name": "name", "timestamp": "updated", "last_updated_timestamp": "updated"}
_VERSION_COLUMNS = {"name": "m.name", "version_number": "v.version", "run_id": "v.run_id", "source_path": "v.source"}
_VERSION_ORDERS = {
    "name": "m.name",
    "version_number": "v.version",
    "creation_timestamp": "v.created",
    "last_updated_timestamp": "v.updated",
}
_ORDERS_OF_VERSIONS = grammar.Subject(tuple(_VERSION_ORDERS), (), (), words=_WORDS)


class _Kind(NamedTuple):
    """What may be compared: attributes, those that are numbers, and those that a list may be given for."""

    attributes: Collection[str]
    numbers: Collection[str]
    lists: Collection[str]


_MODELS = _Kind(("name",), (), ("name",))
_VERSIONS = _Kind(tuple(_VERSION_COLUMNS), ("version_number",), ("name", "run_id"))


def _parse(text: str, kind: _Kind) -> list[grammar.Clause]:
    """Parse a filter string, or refuse it with MLflow's message."""
    return [_clause(each, kind) for each in grammar.read_comparisons(text, quoted=False)]


def _clause(comparison: Comparison, kind: _Kind) -> grammar.Clause:
    token, comparator, value = grammar.split_comparison(comparison, nulls=False)
    name = grammar.name_of(token)
    word, dot, key = name.partition(".")
    if not dot:
        word, key = grammar.ATTRIBUTE, name
    if word not in _WORDS:
        raise refused(f"Invalid entity type '{word}'. Valid entity types are {_WORDS}")
    what = grammar.ATTRIBUTE if word == grammar.ATTRIBUTE else grammar.TAG
    if what == grammar.ATTRIBUTE and key not in kind.attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{set(kind.attributes)}'")
    key = grammar.trimmed(grammar.trimmed(key, "'", '"'), "`")
    clause = grammar.Clause(what, key, comparator.upper(), _value(what, key, value, kind))
    _check_comparator(clause, kind)
    return clause


def _value(what: str, key: str, token: Token, kind: _Kind) -> grammar.Value:
    if (text := grammar.read_text(token)) is not None:
        return text
    if what == grammar.TAG:
        raise refused(f"Expected a quoted string value for tag (e.g. 'my-value'). Got value {token.value}")
    if isinstance(token, Parenthesis):
        if key not in kind.lists:
            raise refused(
                f"Only {sorted(kind.lists)} attributes support comparison with a list of quoted string values."
            )
        return grammar.read_list(token.value)
    if kind.numbers and token.ttype in grammar.NUMBERS:
        if key not in kind.numbers:
            known = {"creation_timestamp", "last_updated_timestamp", *kind.numbers}
            raise refused(f"Only the '{known}' attributes support comparison with numeric values.")
        return int(token.value) if token.ttype is types.Literal.Number.Integer else float(token.value)
    raise refused(
        f"Expected a quoted string value or a list of quoted string values for attributes. Got value {token.value}"
    )


def _check_comparator(clause: grammar.Clause, kind: _Kind) -> None:
    if clause.kind == grammar.TAG:
        if clause.comparator not in grammar.TEXTUAL:
            raise refused(f"Invalid comparator for tag: {clause.comparator}")
    elif clause.key in kind.numbers:
        if clause.comparator not in grammar.NUMERIC:
            raise refused(f"Invalid comparator for attribute {clause.key}: {clause.comparator}")
    elif clause.comparator not in (*grammar.TEXTUAL, *(grammar.LISTS if clause.key in kind.lists else ())):
        raise refused(f"Invalid comparator for attribute: {clause.comparator}")
    grammar.check_list(clause.comparator, clause.value)


def _condition(clause: grammar.Clause, tags: str, columns: dict[str, str], kind: _Kind) -> sql.Part:
    if clause.kind == grammar.TAG:
        return sql.pair_condition(tags, clause.key, clause)
    if clause.key not in kind.numbers:
        return sql.compare(columns[clause.key], clause)
    try:
        if isinstance(clause.value, float):
            raise ValueError
        number = int(str(clause.value)[:400])
    except ValueError:
        raise refused(f"Invalid value for numeric attribute '{clause.key}': {clause.value!r}") from None
    return sql.compare(columns[clause.key], clause._replace(value=max(-(2**63), min(number, 2**63 - 1))))


def _prompts(clauses: list[grammar.Clause], table: str, model: str) -> tuple[sql.Part, list[grammar.Clause]]:
    """Return the condition that leaves prompts out, unless a filter asks for them, and the other clauses."""
    for each in clauses:
        if each.kind == grammar.TAG and each.key == PROMPT_TAG:
            value = str(each.value).lower()
            if (each.comparator, value) in (("=", "true"), ("!=", "false")):
                return ("1", []), clauses
            break
    rest = [each for each in clauses if each.kind != grammar.TAG or each.key != PROMPT_TAG]
    prompt = f"SELECT t.model FROM {table} AS t WHERE t.key = '{PROMPT_TAG}' AND t.value = 'true'"
    return (f"{model} NOT IN ({prompt})", []), rest


def search_models(db: sqlite3.Connection, asked: sql.Asked, most: int, project: str | None) -> dict[str, Any]:
    """Return a page of registered models."""
    clauses = _parse(asked.filter, _MODELS)
    sql.check_clauses(clauses, asked.order_by)
    orders: dict[str, str] = {}
    for text in asked.order_by:
        name, ascending = grammar.split_order(text)
        if name not in _MODEL_ORDERS:
            raise refused(f"Invalid order by key '{name}' specified. Valid keys are '{set(_MODEL_ORDERS)}'")
        sql.add_order(orders, f"m.{_MODEL_ORDERS[name]}", "ASC" if ascending else "DESC", asked.order_by)
    orders.setdefault("m.name", "ASC")
    page = sql.Page(most, sql.read_offset(asked.token))
    without, clauses = _prompts(clauses, "registered_tags", "m.number")
    tags = "registered_tags AS t WHERE t.model = m.number"
    tests = [without, *sql.of_project("m.project", project)]
    tests += [_condition(each, tags, {"name": "m.name"}, _MODELS) for each in clauses]
    source: sql.Part = (f"{columns_of(RegisteredModel, 'm')} FROM registered_models AS m", [])
    rows = page.select(db, source, tests, _terms(orders))
    found = [describe_model(db, RegisteredModel(*row)) for row in rows[:most]]
    return page.body("registered_models", found, is_last=len(rows) <= most)


def search_versions(db: sqlite3.Connection, asked: sql.Asked, most: int, project: str | None) -> dict[str, Any]:
    """Return a page of versions that are not deleted."""
    clauses = _parse(asked.filter, _VERSIONS)
    sql.check_clauses(clauses, asked.order_by)
    orders: dict[str, str] = {}
    for text in asked.order_by or ("last_updated_timestamp DESC", "name ASC", "version_number DESC"):
        kind, key, ascending = grammar.parse_order(text, _ORDERS_OF_VERSIONS)
        if kind != grammar.ATTRIBUTE and key not in _VERSION_ORDERS:
            raise refused(f"Invalid order by key '{key}' specified. Valid keys are {set(_VERSION_ORDERS)}")
        sql.add_order(orders, _VERSION_ORDERS[key], "ASC" if ascending else "DESC", asked.order_by)
    orders.setdefault("m.name", "ASC")
    orders.setdefault("v.version", "DESC")
    page = sql.Page(most, sql.read_offset(asked.token))
    without, clauses = _prompts(clauses, "version_tags", "v.model")
    tags = "version_tags AS t WHERE t.model = v.model AND t.version = v.version"
    tests = [without, (f"v.stage != '{DELETED}'", []), *sql.of_project("m.project", project)]
    tests += [_condition(each, tags, _VERSION_COLUMNS, _VERSIONS) for each in clauses]
    fields = f"m.name, {columns_of(ModelVersion, 'v')}"
    source: sql.Part = (f"{fields} FROM model_versions AS v JOIN registered_models AS m ON m.number = v.model", [])
    rows = page.select(db, source, tests, _terms(orders))
    found = [describe_version(db, name, ModelVersion(*row)) for name, *row in rows[:most]]
    return page.body("model_versions", found, is_last=len(rows) <= most)


def _terms(orders: dict[str, str]) -> sql.Part:
    return ", ".join(f"{column} {turn}" for column, turn in orders.items()), []
