"""The snapshot of an alert: values, slow spans and logs around its step, kept with it after the records are gone."""

from collections.abc import Mapping
from typing import Any

from stepscope.alerts.alert import Alert
from stepscope.hub.questions.logs import find_logs, record_json
from stepscope.hub.questions.series import SeriesQuery, read_series
from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.traces.stored_spans import find_spans, span_json
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.model.records import word

STEPS_BEFORE, STEPS_AFTER = 40, 5
MAX_SPANS, MAX_LOGS = 10, 20
AROUND_NS = 30_000_000_000
_LONGEST_TEXT = 500
_SPAN_FIELDS = ("name", "rank", "status", "duration_ms", "message")
_LOG_FIELDS = ("time", "step", "rank", "severity", "name")


def take(engine: Engine, alert: Alert) -> dict[str, Any] | None:
    """Read the snapshot of an alert; None when its run is not stored."""
    number = run_number(engine, alert.subject.run)
    if number is None:
        return None
    step = alert.last_step if alert.last_step is not None else alert.step
    spans = (
        [] if step is None else find_spans(engine, RecordQuery(run=number, step=step, order="slowest", limit=MAX_SPANS))
    )
    until = (alert.fired or alert.began) + AROUND_NS // 6
    logs = find_logs(engine, RecordQuery(run=number, since=until - AROUND_NS, until=until, limit=MAX_LOGS))
    return {
        "step": step,
        "values": _values(engine, number, alert, step),
        "spans": [_chosen(span_json(row, alert.subject.run), _SPAN_FIELDS) for row in spans],
        "logs": [
            {**_chosen(shown, _LOG_FIELDS), "body": str(shown["body"])[:_LONGEST_TEXT]}
            for shown in (record_json(row, alert.subject.run) for row in reversed(logs))
        ],
    }


def _values(engine: Engine, number: int, alert: Alert, step: int | None) -> dict[str, Any] | None:
    """Read the alert's metric around its step; without a step, the latest values."""
    if not alert.subject.key:
        return None
    bounds: dict[str, Any] = {"x": "time", "start": alert.began - 10 * AROUND_NS, "end": alert.changed + AROUND_NS}
    if step is not None and alert.step is not None:
        bounds = {"x": "step", "start": alert.step - STEPS_BEFORE, "end": step + STEPS_AFTER}
    question = SeriesQuery(number, alert.subject.key, points=200, rank=alert.subject.rank, **bounds)
    raw = read_series(engine, question).raw
    if raw is None:
        return None
    last = slice(-2 * STEPS_BEFORE, None)
    return {
        "key": alert.subject.key,
        "x": [int(each) for each in raw.x[last]],
        "value": [word(float(each)) for each in raw.value[last]],
    }


def _chosen(shown: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: shown.get(name) for name in fields}
