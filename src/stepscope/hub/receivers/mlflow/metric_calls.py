"""The endpoints under `metrics/`; each waits until earlier writes are in the store."""

from collections.abc import Sequence
from typing import Any

from stepscope.hub.receivers.mlflow import metric_history
from stepscope.hub.receivers.mlflow.mlflow_errors import SEE_DOCS, missing_value, refused
from stepscope.hub.receivers.mlflow.mlflow_runs import find_run
from stepscope.hub.receivers.mlflow.request_fields import Fields
from stepscope.hub.receivers.mlflow.run_search import page_token, read_offset
from stepscope.hub.receivers.mlflow.tracking import Call, Reply, Tracking
from stepscope.hub.refusals import Refused

MOST_RUNS, MOST_VALUES = 100, 25_000
MOST_SAMPLED = 2500


def runs_of(fields: Fields) -> Sequence[str]:
    """Return the run ids of a request."""
    return [run for name in ("run_id", "run_uuid", "run_ids") for run in fields.texts(name)]


def get_history(tracking: Tracking, call: Call) -> Reply:
    """Return all values of a metric, or a page of them."""
    fields = call.fields
    run, key = fields.run(), fields.text("metric_key", required=True)
    most = fields.whole("max_results")
    if most is not None and most <= 0:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be a positive integer.")
    offset = read_offset(fields.text("page_token"))
    if not _may_read(tracking, run, call.project):
        return Reply({})
    found = metric_history.history(tracking.engine(), run, key, None if most is None else most + 1, offset)
    more = most is not None and len(found) > most
    shown = metric_history.describe(key, found[:most] if more else found)
    body = {"metrics": shown} if shown else {}
    return Reply({**body, "next_page_token": page_token(offset + (most or 0))} if more else body)


def get_history_bulk(tracking: Tracking, call: Call) -> Reply:
    """Return the values of a metric of several runs."""
    fields = call.fields
    runs = fields.texts("run_id")
    if not runs:
        raise refused("GetMetricHistoryBulk request must specify at least one run_id.")
    if len(runs) > MOST_RUNS:
        raise refused(
            f"GetMetricHistoryBulk request cannot specify more than {MOST_RUNS} run_ids. Received {len(runs)} run_ids."
        )
    key = fields.optional_text("metric_key")
    if key is None:
        raise refused("GetMetricHistoryBulk request must specify a metric_key.")
    wanted = fields.whole("max_results")
    most = min(max(MOST_VALUES if wanted is None else wanted, 0), MOST_VALUES)
    found: list[dict[str, Any]] = []
    for run in sorted(set(runs)):
        if len(found) < most and _may_read(tracking, run, call.project):
            values = metric_history.history(tracking.engine(), run, key, most - len(found))
            found += metric_history.describe(key, values, run)
    return Reply({"metrics": found})


def get_history_bulk_interval(tracking: Tracking, call: Call) -> Reply:
    """Return a sample of the values of a metric of several runs."""
    fields = call.fields
    runs, key = fields.texts("run_ids"), fields.text("metric_key")
    if not runs:
        raise missing_value("run_ids")
    if len(runs) > MOST_RUNS:
        raise refused(
            f"GetMetricHistoryBulkInterval request must specify at most {MOST_RUNS} run_ids. "
            f"Received {len(runs)} run_ids.{SEE_DOCS}"
        )
    if not key:
        raise missing_value("metric_key")
    most = fields.whole("max_results")
    if most is not None and not 1 <= most <= MOST_SAMPLED:
        raise refused(f"max_results must be between 1 and {MOST_SAMPLED}.{SEE_DOCS}")
    steps = _interval(fields.whole("start_step"), fields.whole("end_step"))
    found: list[dict[str, Any]] = []
    for run in runs:
        if _may_read(tracking, run, call.project):
            values = metric_history.sample(tracking.engine(), run, key, most or MOST_SAMPLED, steps)
            found += metric_history.describe(key, values, run)
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
