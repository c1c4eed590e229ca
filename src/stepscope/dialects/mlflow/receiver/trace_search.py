"""`traces/search`: filters, orders and pages of traces, by MLflow's rules for them."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from sqlparse import tokens as types
from sqlparse.sql import Comparison, Parenthesis, Token, TokenList

from stepscope.dialects.mlflow.receiver import filter_grammar as grammar
from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import numbers_of
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.trace_table import MlflowTrace, describe_trace
from stepscope.dialects.mlflow.receiver.tracking_rows import columns_of

DEFAULT_TRACES, MAX_TRACES = 100, 500
NAME_TAG, SOURCE_RUN = "mlflow.traceName", "mlflow.sourceRun"
METADATA = "request_metadata"
_KINDS = {
    **dict.fromkeys(("tag", "tags"), grammar.TAG),
    **dict.fromkeys(("attribute", "attributes", "trace"), grammar.ATTRIBUTE),
    **dict.fromkeys(("metadata", METADATA), METADATA),
}
_OF_SPANS = ("span", "feedback", "expectation", "issue")
"""What MLflow's server can search by, and a hub cannot: the contents of spans, and assessments."""
_TABLES = {grammar.TAG: "trace_tags", METADATA: "trace_metadata"}
_END = "(t.timestamp + coalesce(t.duration, 0))"
_NUMBERS = {
    **dict.fromkeys(("timestamp", "timestamp_ms"), "t.timestamp"),
    **dict.fromkeys(("execution_time", "execution_time_ms"), "t.duration"),
    **dict.fromkeys(("end_time", "end_time_ms"), _END),
}
_COLUMNS = {**_NUMBERS, "request_id": "t.trace_id", "status": "t.status", "client_request_id": "t.client_id"}
_ORDERS = {**_COLUMNS, "experiment_id": "t.experiment"}
_PAIRS = {"name": (grammar.TAG, NAME_TAG), "run_id": (METADATA, SOURCE_RUN)}
"""Attributes that are kept as a tag or as metadata."""
_LISTED = ("client_request_id", "name", "request_id", "run_id", "status")


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


def _clause(comparison: Comparison) -> grammar.Clause:
    name, word, value = grammar.split_comparison(comparison)
    timed = name.match(types.Name.Builtin, ["timestamp", "timestamp_ms"])
    kind, key = _identifier(name.value if timed else grammar.name_of(name), (*_COLUMNS, *_PAIRS))
    comparator = word.upper()
    clause = grammar.Clause(kind, key, comparator, None if value is None else _value(kind, key, value))
    _check_comparator(clause)
    if kind == grammar.ATTRIBUTE and key in _PAIRS:
        return grammar.Clause(*_PAIRS[key], comparator, clause.value)
    return clause


def _identifier(text: str, attributes: Sequence[str]) -> tuple[str, str]:
    word, dot, key = text.partition(".")
    word, key = (grammar.trimmed(word, "`"), key) if dot else (grammar.ATTRIBUTE, text)
    if word in _OF_SPANS or (_KINDS.get(word) == grammar.ATTRIBUTE and key.lower() in ("text", "prompt")):
        raise refused(f"'{text}' is not supported: a Stepscope hub searches traces by attributes, tags and metadata")
    if word not in _KINDS:
        known = sorted({*_KINDS, *_OF_SPANS})
        raise refused(f"Invalid entity type '{word}'. Valid values are {known}")
    key = grammar.trimmed(grammar.trimmed(key, "'", '"'), "`")
    if _KINDS[word] == grammar.ATTRIBUTE and key not in attributes:
        raise refused(f"Invalid attribute key '{key}' specified. Valid keys are '{sorted(attributes)}'")
    return _KINDS[word], key


def _value(kind: str, key: str, token: Token) -> grammar.Value:
    if (text := grammar.read_text(token)) is not None:
        return text
    if kind == METADATA or (kind == grammar.TAG and not isinstance(token, Parenthesis)):
        raise refused(f"Expected a quoted string value for {kind} (e.g. 'my-value'). Got value {token.value}")
    if isinstance(token, Parenthesis):
        if kind == grammar.ATTRIBUTE and key not in _LISTED:
            raise refused(f"Only attributes in {set(_LISTED)} supports comparison with a list of quoted string values.")
        return grammar.read_list(token.value)
    if token.ttype in grammar.NUMBERS:
        if key not in _NUMBERS:
            raise refused(f"Only the '{set(_NUMBERS)}' attributes support comparison with numeric values.")
        return grammar.read_number(token)
    raise refused(
        f"Expected a quoted string value or a list of quoted string values for attributes. Got value {token.value}"
    )


def _check_comparator(clause: grammar.Clause) -> None:
    if clause.comparator == "RLIKE":
        raise refused("RLIKE is not supported: a Stepscope hub searches with LIKE and ILIKE")
    if clause.key in _NUMBERS and clause.kind == grammar.ATTRIBUTE:
        known: tuple[str, ...] = grammar.NUMERIC
    elif clause.kind == grammar.ATTRIBUTE:
        known = (*grammar.TEXTUAL, *grammar.LISTS, *(grammar.NULLS if clause.key in _PAIRS else ()))
    else:
        known = (*grammar.TEXTUAL, *grammar.NULLS)
    if clause.comparator not in known:
        raise refused(f"Invalid comparator '{clause.comparator}' not one of '{set(known)}'")
    grammar.check_list(clause.comparator, clause.value)


def _condition(clause: grammar.Clause) -> sql.Part:
    if clause.kind == grammar.ATTRIBUTE:
        return sql.compare(_COLUMNS[clause.key], clause)
    test, values = sql.pair_condition(f"{_TABLES[clause.kind]} AS t WHERE t.trace = trace_id", clause.key, clause)
    if clause[:3] == (METADATA, SOURCE_RUN, "="):  # also traces that were linked to the run
        linked = "EXISTS (SELECT 1 FROM trace_runs AS r WHERE r.trace = trace_id AND r.run_id = ?)"
        return f"({test} OR {linked})", [*values, clause.value]
    return test, values


def _order(order_by: Sequence[str]) -> sql.Part:
    """Return the ORDER BY terms; missing values come last, and ties are broken by time, the newest first."""
    terms: dict[str, str] = {}
    values: list[Any] = []
    for text in order_by:
        name, ascending = grammar.split_order(text)
        kind, key = _identifier(name, (*_ORDERS, *_PAIRS))
        kind, key = _PAIRS.get(key, (kind, key)) if kind == grammar.ATTRIBUTE else (kind, key)
        column = _ORDERS.get(key, "") if kind == grammar.ATTRIBUTE else f"{kind}.{key}"
        term = column
        if kind != grammar.ATTRIBUTE:
            term = f"(SELECT o.value FROM {_TABLES[kind]} AS o WHERE o.trace = trace_id AND o.key = ?)"
            values += [key, key]
        sql.add_order(terms, column, f"{term} IS NULL, {term} {'ASC' if ascending else 'DESC'}", order_by)
    for column, turn in (("t.timestamp", "DESC"), ("t.trace_id", "ASC")):
        terms.setdefault(column, f"{column} {turn}")
    return ", ".join(terms.values()), values


def search_traces(
    db: sqlite3.Connection, experiments: Sequence[str], fields: Fields, project: str | None
) -> dict[str, Any]:
    """Return a page of traces. As in MLflow, a full page has a next one."""
    wanted = fields.whole("max_results")
    most = DEFAULT_TRACES if wanted is None else wanted
    if most > MAX_TRACES:
        raise wrong_type("max_results", most)
    sql.check_count(most)
    numbers, asked = numbers_of(experiments), sql.read_search(fields)
    order = _order(asked.order_by)
    clauses = [_clause(each) for each in grammar.read_comparisons(asked.filter, prepare=_join_times)]
    sql.check_clauses(clauses, asked.order_by)
    page = sql.Page(most, sql.read_offset(asked.token))
    tests = [(f"t.experiment IN {numbers}", []), *sql.of_project("t.project", project), *map(_condition, clauses)]
    rows = page.select(db, (f"{columns_of(MlflowTrace, 't')} FROM traces AS t", []), tests, order)
    found = [describe_trace(db, MlflowTrace(*row)) for row in rows[:most]]
    return page.body("traces", found, is_last=len(rows) < most)
