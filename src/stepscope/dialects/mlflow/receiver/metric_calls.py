"""The endpoints under `metrics/`, which wait until earlier writes are stored, and their queries."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import SEE_DOCS, missing_value, refused
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.run_records import MILLION
from stepscope.dialects.mlflow.receiver.run_table import find_run, json_number
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.extend.receiver import Answer, Engine, Refused, literal, run_number

MAX_RUNS, MAX_VALUES = 100, 25_000
MAX_SAMPLED = 2500
_FARTHEST = 2**40
"""Larger than any series."""
_BY_TIME = "time, step, if(isNaN(value), 0, value)"
_BY_STEP = "step, time, if(isNaN(value), 0, value), isNaN(value)"


def runs_of(fields: Fields) -> Sequence[str]:
    """Return the run ids of a request."""
    return [run for name in ("run_id", "run_uuid", "run_ids") for run in fields.texts(name)]


def get_history(tracking: Tracking, call: Call) -> Reply:
    """Return all values of a metric, or a page of them."""
    fields = call.fields
    run, key = fields.run(), fields.required("metric_key")
    most = fields.whole("max_results")
    if most is not None and most <= 0:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be a positive integer.")
    page = sql.Page(most or 0, sql.read_offset(fields.text("page_token")))
    if not _may_read(tracking, run, call.project):
        return Reply({})
    found = _history(tracking.engine(), run, key, None if most is None else most + 1, page.offset)
    return Reply(page.body("metrics", _describe(key, found[:most]), is_last=most is None or len(found) <= most))


def get_history_bulk(tracking: Tracking, call: Call) -> Reply:
    """Return the values of a metric of several runs."""
    fields = call.fields
    runs = fields.texts("run_id")
    if not runs:
        raise refused("GetMetricHistoryBulk request must specify at least one run_id.")
    if len(runs) > MAX_RUNS:
        raise refused(
            f"GetMetricHistoryBulk request cannot specify more than {MAX_RUNS} run_ids. Received {len(runs)} run_ids."
        )
    key = fields.optional_text("metric_key")
    if key is None:
        raise refused("GetMetricHistoryBulk request must specify a metric_key.")
    wanted = fields.whole("max_results")
    most = min(max(MAX_VALUES if wanted is None else wanted, 0), MAX_VALUES)
    found: list[dict[str, Any]] = []
    for run in sorted(set(runs)):
        if len(found) < most and _may_read(tracking, run, call.project):
            values = _history(tracking.engine(), run, key, most - len(found))
            found += _describe(key, values, run)
    return Reply({"metrics": found})


def get_history_bulk_interval(tracking: Tracking, call: Call) -> Reply:
    """Return a sample of the values of a metric of several runs."""
    fields = call.fields
    runs, key = fields.texts("run_ids"), fields.text("metric_key")
    if not runs:
        raise missing_value("run_ids")
    if len(runs) > MAX_RUNS:
        raise refused(
            f"GetMetricHistoryBulkInterval request must specify at most {MAX_RUNS} run_ids. "
            f"Received {len(runs)} run_ids.{SEE_DOCS}"
        )
    if not key:
        raise missing_value("metric_key")
    most = fields.whole("max_results")
    if most is not None and not 1 <= most <= MAX_SAMPLED:
        raise refused(f"max_results must be between 1 and {MAX_SAMPLED}.{SEE_DOCS}")
    steps = _interval(fields.whole("start_step"), fields.whole("end_step"))
    found: list[dict[str, Any]] = []
    for run in runs:
        if _may_read(tracking, run, call.project):
            values = _sample(tracking.engine(), run, key, most or MAX_SAMPLED, steps)
            found += _describe(key, values, run)
    return Reply({"metrics": found} if found else {})


def _interval(start: int | None, end: int | None) -> tuple[int, int] | None:
    if start is None and end is None:
        return None
    if start is None or end is None:
        raise refused("If either start step or end step are specified, both must be specified.")
    if start > end:
        raise refused(f"end_step must be greater than start_step. Found start_step={start} and end_step={end}.")
    return start, end


def _may_read(tracking: Tracking, run: str, project: str | None) -> bool:
    """Return whether a run exists in the token's project."""
    try:
        with tracking.database.read() as db:
            find_run(db, run, project)
    except Refused:
        return False
    return True


class _Value(NamedTuple):
    """One value; times in milliseconds."""

    timestamp: int
    step: int
    value: float


def _history(engine: Engine, run: str, key: str, most: int | None = None, offset: int = 0) -> list[_Value]:
    """Return the values of a metric by time, without duplicates (same time, step and value)."""
    if offset >= _FARTHEST:
        return []
    limit = f"LIMIT {most} OFFSET {offset}" if most is not None else f"LIMIT {2**63 - 1} OFFSET {offset}"
    found = _ask(engine, run, key, f"ORDER BY {_BY_TIME} {limit}")
    return _values(found, range(len(found.array("time")))) if found is not None else []


def _ask(engine: Engine, run: str, key: str, rest: str, where: str = "1") -> Answer | None:
    """Query the values of a metric; None when the run is not in the store."""
    number = run_number(engine, run)
    if number is None:
        return None
    series = f"SELECT series FROM series WHERE run = {number} AND key = {literal.text(key)}"
    return engine.query(f"SELECT DISTINCT step, time, value FROM metrics WHERE series IN ({series}) AND {where} {rest}")


def _values(found: Answer, where: Iterable[int]) -> list[_Value]:
    steps, times, values = (found.array(name) for name in ("step", "time", "value"))
    return [_Value(int(times[at]) // MILLION, int(steps[at]), float(values[at])) for at in where]


def _sample(engine: Engine, run: str, key: str, most: int, steps: tuple[int, int] | None) -> list[_Value]:
    """Return at most `most` values by step, evenly spaced, including the first and the last."""
    where = "1" if steps is None else f"step BETWEEN {steps[0]} AND {steps[1]}"
    found = _ask(engine, run, key, f"ORDER BY {_BY_STEP}", where)
    size = len(found.array("time")) if found is not None else 0
    if found is None or size <= most:
        return _values(found, range(size)) if found is not None else []
    share, larger = divmod(size, most)
    starts = [at * share + min(at, larger) for at in range(most - 1)]
    return _values(found, [*starts, size - 1])


def _describe(key: str, values: Sequence[_Value], run: str = "") -> list[dict[str, Any]]:
    """Return values in MLflow's JSON, with the run id when one is given."""
    named = {"run_id": run} if run else {}
    return [
        {"key": key, "value": json_number(each.value), "timestamp": each.timestamp, "step": each.step, **named}
        for each in values
    ]
