"""`runs/search` and `experiments/search`: filters as SQL, orders with NaN last."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.dialects.mlflow.receiver import filter_grammar as grammar
from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import (
    ACTIVE,
    DELETED,
    Experiment,
    describe_experiment,
    experiment_number,
    numbers_of,
)
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.run_table import MlflowRun, describe_runs
from stepscope.dialects.mlflow.receiver.tracking import Body, Call
from stepscope.dialects.mlflow.receiver.tracking_rows import columns_of

DEFAULT_RUNS = 1000
_STAGES = {1: (ACTIVE,), 2: (DELETED,), 3: (ACTIVE, DELETED)}
_VIEWS = {"ACTIVE_ONLY": 1, "DELETED_ONLY": 2, "ALL": 3}
_NUMBERED_VIEWS = {str(number): number for number in _STAGES}
_TABLES = {grammar.METRIC: "latest", grammar.PARAM: "params", grammar.TAG: "tags"}
_EXPERIMENT_COLUMNS = {
    "creation_time": "created",
    "experiment_id": "id",
    "last_update_time": "updated",
    "name": "name",
}


def _read_view(fields: Fields, name: str) -> str:
    """Return the requested lifecycle stages as SQL; active ones by default and, as with MLflow, for an unknown name."""
    given = fields.values.get(name)
    found: Any = given[0] if isinstance(given, list) and given else given
    if isinstance(found, str):
        found = _NUMBERED_VIEWS.get(found, _VIEWS.get(found, 1))
    if found is not None and found not in _VIEWS.values():
        raise wrong_type(name, found)
    return f"({', '.join(repr(each) for each in _STAGES[1 if found is None else int(found)])})"


def _run_condition(clause: grammar.Clause) -> sql.Part:
    if clause.kind == grammar.ATTRIBUTE and clause.key != "run_name":
        return sql.compare(f"r.{clause.key}", clause)
    if clause.kind == grammar.DATASET:
        test, values = sql.compare(f"d.{clause.key}", clause)
        return f"EXISTS (SELECT 1 FROM datasets AS d WHERE d.run = r.number AND {test})", values
    name = clause.kind == grammar.ATTRIBUTE
    table = "tags" if name else _TABLES[clause.kind]
    key = "mlflow.runName" if name else clause.key
    differs = clause.kind == grammar.METRIC and clause.comparator == "!="  # NaN is unequal to everything
    return sql.pair_condition(f"{table} AS t WHERE t.run = r.number", key, clause, matches_nan=differs)


def _run_orders(order_by: Sequence[str]) -> Iterable[grammar.Order]:
    orders: dict[tuple[str, str], grammar.Order] = {}
    for text in order_by:
        order = grammar.parse_order(text, grammar.RUNS)
        if order.kind == grammar.DATASET:
            raise refused("Invalid identifier type 'dataset'")
        sql.add_order(orders, (order.kind, order.key), order, order_by)
    return orders.values()


def _run_order(orders: Iterable[grammar.Order]) -> tuple[sql.Part, str]:
    """Return the columns to order by, and the ORDER BY terms; missing values and NaN come last.

    Columns rather than joins: SQLite needs minutes to plan thirty outer joins.
    """
    columns, terms, values = "", [], []
    for at, each in enumerate(orders):
        turn = "ASC" if each.ascending else "DESC"
        if each.kind == grammar.ATTRIBUTE:
            column = f"r.{'name' if each.key == 'run_name' else each.key}"
            terms += [f"{column} IS NULL", f"{column} {turn}"]
            continue
        pairs = f"FROM {_TABLES[each.kind]} AS t WHERE t.run = r.number AND t.key = ?"
        columns += f", (SELECT t.run {pairs}) AS has{at}, (SELECT t.value {pairs}) AS value{at}"
        values += [each.key] * 2
        terms += [f"has{at} IS NULL", f"value{at} IS NULL", f"value{at} {turn}"]
    if (grammar.ATTRIBUTE, "start_time") not in [each[:2] for each in orders]:
        terms.append("r.start_time DESC")
    return (columns, values), ", ".join([*terms, "r.run_id"])


def search_runs(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of runs."""
    fields = call.fields
    wanted, experiments = fields.whole("max_results"), fields.ids("experiment_ids")
    asked, stages = sql.read_search(fields), _read_view(fields, "run_view_type")
    most = DEFAULT_RUNS if wanted is None else wanted
    if most > sql.MAX_RESULTS:
        raise wrong_type("max_results", most)
    sql.check_count(most)
    clauses = grammar.parse_filter(asked.filter, grammar.RUNS)
    sql.check_clauses(clauses, asked.order_by)
    orders = _run_orders(asked.order_by)
    grammar.check_comparators(clauses, grammar.RUNS)
    page = sql.Page(most, sql.read_offset(asked.token))
    (columns, named), order = _run_order(orders)
    tests: list[sql.Part] = [(f"r.experiment IN {numbers_of(experiments)} AND r.stage IN {stages}", [])]
    tests += [*sql.of_project("r.project", call.project), *map(_run_condition, clauses)]
    source = f"{columns_of(MlflowRun, 'r')}{columns} FROM runs AS r", named
    rows = page.select(db, source, tests, (order, []))
    size = len(MlflowRun.__struct_fields__)
    found = [MlflowRun(*row[:size]) for row in rows[:most]]
    return page.body("runs", describe_runs(db, found) if found else [], is_last=len(rows) <= most)


def _experiment_condition(clause: grammar.Clause) -> sql.Part:
    kind, key, comparator, value = clause
    if kind == grammar.TAG:
        if comparator not in ("=", "!=", "LIKE", "ILIKE", "IS NULL", "IS NOT NULL"):
            raise refused(f"Invalid comparator for tag: {comparator}")
        return sql.pair_condition("experiment_tags AS t WHERE t.experiment = e.id", key, clause)
    if key == "experiment_id":
        if comparator not in ("=", "!=", "IN", "NOT IN"):
            raise refused(f"Invalid comparator for experiment_id: {comparator}")
        numbers = [experiment_number(each) for each in (value if isinstance(value, tuple) else (str(value),))]
        grammar.check_comparators([clause], grammar.EXPERIMENTS)
        listed = "NOT IN" if comparator in ("!=", "NOT IN") else "IN"
        return f"e.id {listed} ({', '.join(map(str, numbers))})", []
    grammar.check_comparators([clause], grammar.EXPERIMENTS)
    if isinstance(value, float) and not (value.is_integer() and abs(value) >= 1e18):  # a number beyond int64 is whole
        raise refused(f"Invalid value for numeric attribute '{key}': {str(value)!r}")
    return sql.compare(f"e.{_EXPERIMENT_COLUMNS[key]}", clause)


def search_experiments(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of experiments."""
    fields, project = call.fields, call.project
    asked, stages = sql.read_search(fields), _read_view(fields, "view_type")
    most = fields.whole("max_results") or 0
    sql.check_count(most)
    clauses = [_experiment_condition(each) for each in grammar.parse_filter(asked.filter, grammar.EXPERIMENTS)]
    sql.check_clauses(clauses, asked.order_by)
    terms = []
    for text in asked.order_by or ("creation_time DESC", "experiment_id ASC"):
        order = grammar.parse_order(text, grammar.EXPERIMENTS)
        if order.kind != grammar.ATTRIBUTE:
            raise refused(f"Invalid order_by entity: {order.kind}")
        terms.append(f"e.{_EXPERIMENT_COLUMNS[order.key]} {'ASC' if order.ascending else 'DESC'}")
    page = sql.Page(most, sql.read_offset(asked.token))
    tests: list[sql.Part] = [(f"e.stage IN {stages}", []), *clauses]
    tests += [] if project is None else [("(e.id = 0 OR e.project = ?)", [project])]
    source: sql.Part = (f"{columns_of(Experiment, 'e')} FROM experiments AS e", [])
    rows = page.select(db, source, tests, (", ".join([*terms, "e.id DESC"]), []))
    found = [describe_experiment(db, Experiment(*row)) for row in rows[:most]]
    return page.body("experiments", found, is_last=len(rows) <= most)
