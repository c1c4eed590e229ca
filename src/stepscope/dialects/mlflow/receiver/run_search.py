"""`runs/search` and `experiments/search`: filters as SQL, orders with NaN last, page tokens."""

import base64
import binascii
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import ACTIVE, DELETED, describe_experiment, experiment_number
from stepscope.dialects.mlflow.receiver.filter_grammar import (
    ATTRIBUTE,
    DATASET,
    EXPERIMENTS,
    METRIC,
    PARAM,
    RUNS,
    TAG,
    Clause,
    Order,
    check_comparators,
    parse_filter,
    parse_order,
)
from stepscope.dialects.mlflow.receiver.run_table import FIELDS, MlflowRun

MAX_RESULTS = 50_000
DEFAULT_RUNS = 1000
MAX_CLAUSES, MAX_ORDERS = 400, 60
"""Comparisons of one filter, and fields of one order; MLflow's server takes 63, and of attributes about 900."""
STAGES = {1: (ACTIVE,), 2: (DELETED,), 3: (ACTIVE, DELETED)}
VIEWS = {"ACTIVE_ONLY": 1, "DELETED_ONLY": 2, "ALL": 3}
_TABLES = {METRIC: "latest", PARAM: "params", TAG: "tags"}
_EXPERIMENT_COLUMNS = {
    "creation_time": "created",
    "experiment_id": "id",
    "last_update_time": "updated",
    "name": "name",
}
Sql = tuple[str, list[Any]]


def read_offset(token: str) -> int:
    """Return the offset in a page token; 0 without a token."""
    if not token:
        return 0
    try:
        decoded = base64.b64decode(token)
    except (binascii.Error, ValueError):
        raise refused("Invalid page token, could not base64-decode") from None
    try:
        parsed = json.loads(decoded)
    except (ValueError, RecursionError):
        raise refused(f"Invalid page token, decoded value={decoded!r}") from None
    offset = parsed.get("offset") if isinstance(parsed, dict) else None
    if not offset:
        raise refused(f"Invalid page token, parsed value={parsed}")
    try:
        found = int(offset)
    except (ValueError, TypeError, OverflowError):
        raise refused(f"Invalid page token, not stringable {offset}") from None
    if not -(2**63) <= found < 2**63:
        raise refused(f"Invalid page token, parsed value={parsed}")
    return max(found, 0)


def page_token(offset: int) -> str:
    """Return the page token of an offset."""
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()


def check_count(most: int) -> None:
    """Refuse a page size outside the limits."""
    if most < 1:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be a positive integer")
    if most > MAX_RESULTS:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be at most {MAX_RESULTS}")


def check_clauses(filters: Sequence[object], orders: Sequence[object]) -> None:
    """Refuse more comparisons or orders than one statement of SQLite can have."""
    for name, found, most in (("filter", filters, MAX_CLAUSES), ("order_by", orders, MAX_ORDERS)):
        if len(found) > most:
            raise refused(f"{name} must have at most {most} clauses, got {len(found)}", BAD_REQUEST)


def compare(column: str, clause: Clause) -> Sql:
    """Return SQL that compares a column with the value of a clause."""
    value: Any = clause.value
    if clause.comparator in ("IN", "NOT IN"):
        values = list(value) if isinstance(value, tuple) else [value]
        return f"{column} {clause.comparator} ({', '.join('?' for _ in values)})", values
    if clause.comparator == "ILIKE":
        return f"lower({column}) LIKE lower(?)", [value]
    return f"{column} {clause.comparator} ?", [value]


def pair_condition(pairs: str, key: str, clause: Clause, matches_nan: bool = False) -> Sql:
    """Return SQL that tests the value of a key among the tags, params or metrics `t` of one entity."""
    exists = f"EXISTS (SELECT 1 FROM {pairs} AND t.key = ?"
    if clause.comparator in ("IS NULL", "IS NOT NULL"):
        return f"{'NOT ' if clause.comparator == 'IS NULL' else ''}{exists})", [key]
    test, values = compare("t.value", clause)
    return f"{exists} AND ({test}{' OR t.value IS NULL' * matches_nan}))", [key, *values]


def _run_condition(clause: Clause) -> Sql:
    if clause.kind == ATTRIBUTE and clause.key != "run_name":
        return compare(f"r.{clause.key}", clause)
    if clause.kind == DATASET:
        test, values = compare(f"d.{clause.key}", clause)
        return f"EXISTS (SELECT 1 FROM datasets AS d WHERE d.run = r.number AND {test})", values
    name = clause.kind == ATTRIBUTE
    table = "tags" if name else _TABLES[clause.kind]
    key = "mlflow.runName" if name else clause.key
    differs = clause.kind == METRIC and clause.comparator == "!="  # NaN is unequal to everything
    return pair_condition(f"{table} AS t WHERE t.run = r.number", key, clause, matches_nan=differs)


def _run_orders(order_by: Sequence[str]) -> list[Order]:
    orders: list[Order] = []
    for text in order_by:
        order = parse_order(text, RUNS)
        if order.kind == DATASET:
            raise refused("Invalid identifier type 'dataset'")
        if order[:2] in [each[:2] for each in orders]:
            raise refused(f"`order_by` contains duplicate fields: {list(order_by)}", BAD_REQUEST)
        orders.append(order)
    return orders


def _run_order(orders: Sequence[Order]) -> tuple[str, str, list[Any]]:
    """Return the columns to order by, their values and the ORDER BY terms; missing values and NaN come last.

    Columns rather than joins: SQLite needs minutes to plan thirty outer joins.
    """
    columns, terms, values = "", [], []
    for at, each in enumerate(orders):
        turn = "ASC" if each.ascending else "DESC"
        if each.kind == ATTRIBUTE:
            column = f"r.{'name' if each.key == 'run_name' else each.key}"
            terms += [f"{column} IS NULL", f"{column} {turn}"]
            continue
        pairs = f"FROM {_TABLES[each.kind]} AS t WHERE t.run = r.number AND t.key = ?"
        columns += f", (SELECT t.run {pairs}) AS has{at}, (SELECT t.value {pairs}) AS value{at}"
        values += [each.key] * 2
        terms += [f"has{at} IS NULL", f"value{at} IS NULL", f"value{at} {turn}"]
    if (ATTRIBUTE, "start_time") not in [each[:2] for each in orders]:
        terms.append("r.start_time DESC")
    return columns, ", ".join([*terms, "r.run_id"]), values


def search_runs(
    db: sqlite3.Connection,
    experiments: Sequence[str],
    text: str,
    order_by: Sequence[str],
    view: int,
    most: int,
    token: str,
    project: str | None,
) -> tuple[list[MlflowRun], str]:
    """Return a page of runs, and the token of the next one; empty for none."""
    if most > MAX_RESULTS:
        raise wrong_type("max_results", most)
    check_count(most)
    clauses = parse_filter(text, RUNS)
    check_clauses(clauses, order_by)
    orders = _run_orders(order_by)
    check_comparators(clauses, RUNS)
    offset = read_offset(token)
    numbers = [number for each in experiments if abs(number := experiment_number(each)) < 2**63]
    columns, terms, values = _run_order(orders)
    conditions = [
        f"r.experiment IN ({', '.join(map(str, numbers))})",
        f"r.stage IN ({', '.join(repr(each) for each in STAGES[view])})",
    ]
    if project is not None:
        conditions.append("r.project = ?")
        values.append(project)
    for test, given in map(_run_condition, clauses):
        conditions.append(test)
        values += given
    fields = ", ".join(f"r.{name}" for name in FIELDS.split(", "))
    rows = db.execute(
        f"SELECT {fields}{columns} FROM runs AS r WHERE {' AND '.join(conditions)} ORDER BY {terms} LIMIT ? OFFSET ?",
        [*values, most + 1, offset],
    ).fetchall()
    size = fields.count(",") + 1
    return [MlflowRun(*row[:size]) for row in rows[:most]], page_token(offset + most) if len(rows) > most else ""


def _experiment_condition(clause: Clause) -> Sql:
    kind, key, comparator, value = clause
    if kind == TAG:
        if comparator not in ("=", "!=", "LIKE", "ILIKE", "IS NULL", "IS NOT NULL"):
            raise refused(f"Invalid comparator for tag: {comparator}")
        return pair_condition("experiment_tags AS t WHERE t.experiment = e.id", key, clause)
    if key == "experiment_id":
        if comparator not in ("=", "!=", "IN", "NOT IN"):
            raise refused(f"Invalid comparator for experiment_id: {comparator}")
        numbers = [experiment_number(each) for each in (value if isinstance(value, tuple) else (str(value),))]
        check_comparators([clause], EXPERIMENTS)
        listed = "NOT IN" if comparator in ("!=", "NOT IN") else "IN"
        return f"e.id {listed} ({', '.join(map(str, numbers))})", []
    check_comparators([clause], EXPERIMENTS)
    if isinstance(value, float) and not (value.is_integer() and abs(value) >= 1e18):  # a number beyond int64 is whole
        raise refused(f"Invalid value for numeric attribute '{key}': {str(value)!r}")
    return compare(f"e.{_EXPERIMENT_COLUMNS[key]}", clause)


def search_experiments(
    db: sqlite3.Connection, text: str, order_by: Sequence[str], view: int, most: int, token: str, project: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Return a page of experiments, and the token of the next one; empty for none."""
    check_count(most)
    tests = [_experiment_condition(each) for each in parse_filter(text, EXPERIMENTS)]
    check_clauses(tests, order_by)
    orders = []
    for order in order_by or ("creation_time DESC", "experiment_id ASC"):
        orders.append(parse_order(order, EXPERIMENTS))
        if orders[-1].kind != ATTRIBUTE:
            raise refused(f"Invalid order_by entity: {orders[-1].kind}")
    offset = read_offset(token)
    conditions, values = [f"e.stage IN ({', '.join(repr(each) for each in STAGES[view])})"], []
    if project is not None:
        conditions.append("(e.id = 0 OR e.project = ?)")
        values.append(project)
    for test, given in tests:
        conditions.append(test)
        values += given
    terms = [f"e.{_EXPERIMENT_COLUMNS[each.key]} {'ASC' if each.ascending else 'DESC'}" for each in orders]
    rows = db.execute(
        "SELECT e.id, e.name, e.artifacts, e.stage, e.created, e.updated, e.project FROM experiments AS e "
        f"WHERE {' AND '.join(conditions)} ORDER BY {', '.join(terms)}, e.id DESC LIMIT ? OFFSET ?",
        [*values, most + 1, offset],
    ).fetchall()
    found = [describe_experiment(db, row) for row in rows[:most]]
    return found, page_token(offset + most) if len(rows) > most else ""
