"""Logs, events and alerts: search by text, severity, place and time."""

from collections.abc import Callable
from typing import Any, TypedDict

from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.toolbox.endpoint import (
    IN_CONTEXT,
    LIMIT,
    OF_RECORDS,
    OFFSET,
    Attrs,
    Endpoint,
    Next,
    Param,
    Reader,
    page_of,
    record_conditions,
    seconds,
)
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LogRow, read_log_rows
from stepscope.model import names
from stepscope.model.names import ATTR_SCOPE_NAME, SEVERITIES
from stepscope.model.records import Alert, Log, Seconds, kind
from stepscope.wire.plain import plain


def find_logs(engine: Engine, query: RecordQuery) -> list[LogRow]:
    """Search logs and events."""
    return _find(engine, "logs", query)


def find_alerts(engine: Engine, query: RecordQuery) -> list[LogRow]:
    """Search alerts."""
    return _find(engine, "alerts", query)


def _find(engine: Engine, table: str, query: RecordQuery) -> list[LogRow]:
    order = "" if query.order == "oldest" else " DESC"
    page = f"LIMIT {int(query.offset)}, {int(query.limit)}"
    return read_log_rows(engine, table, query.conditions(), f"time{order}, rank, span_id {page}")


class RecordJson(TypedDict):
    """A log, event or alert."""

    kind: str
    run: str
    rank: int
    attempt: int
    time: Seconds
    step: int | None
    axis: str | None
    trace_id: str | None
    span_id: str | None
    severity: str
    severity_number: int
    name: str | None
    body: Any
    attrs: Attrs
    scope: str
    observed: Seconds
    flags: int


class LogPage(TypedDict):
    """Logs and events, or alerts."""

    logs: list[RecordJson]
    next: Next


class AlertPage(TypedDict):
    """Alerts that runs recorded."""

    alerts: list[RecordJson]
    next: Next


def record_json(row: LogRow, run: str) -> RecordJson:
    """A log, event or alert."""
    what = row.record
    return {
        "kind": kind(what),
        "run": run,
        "rank": row.rank,
        "attempt": row.attempt,
        "time": seconds(what.time),
        "step": what.step,
        "axis": what.axis,
        "trace_id": what.trace_id.hex() if what.trace_id else None,
        "span_id": what.span_id.hex() if what.span_id else None,
        "severity": names.severity_word(what.severity),
        "severity_number": what.severity,
        "name": None if isinstance(what, Log) else what.name,
        "body": what.message if isinstance(what, Alert) else plain(what.body),
        "scope": what.scope if isinstance(what, Log) else str(what.attrs.get(ATTR_SCOPE_NAME, "")),
        "observed": seconds(what.observed),
        "flags": what.flags,
        "attrs": plain(what.attrs),
    }


Find = Callable[[Engine, RecordQuery], list[LogRow]]


_LEVELS = (*SEVERITIES, *map(str, range(1, 25)))
_RECORD_PARAMS = (
    *OF_RECORDS,
    Param("q", "text", "with this text in name or body, ignoring case"),
    Param("severity", "choice", "at least this severity: a word or OpenTelemetry's number", choices=_LEVELS),
    *IN_CONTEXT,
    Param("sort", "choice", "the order", "newest", choices=("newest", "oldest")),
    *(LIMIT, OFFSET),
)


@Endpoint(
    "/api/logs",
    "findLogs",
    (
        *_RECORD_PARAMS,
        Param("kind", "choice", "this kind only; by default logs and events", choices=("log", "event", "alert")),
    ),
    attrs=True,
)
def logs(reader: Reader, given: dict[str, Any]) -> LogPage:
    """Logs and events, or alerts, by run, step, text, severity, trace and any attribute."""
    of_alerts = given["kind"] == "alert"
    kind, find = (None, find_alerts) if of_alerts else (given["kind"], find_logs)
    found, following = _records(reader, {**given, "kind": kind}, find)
    return {"logs": found, "next": following}


@Endpoint("/api/alerts", "findAlerts", _RECORD_PARAMS, attrs=True)
def alerts(reader: Reader, given: dict[str, Any]) -> AlertPage:
    """Alerts by run, step, text and severity."""
    found, following = _records(reader, {**given, "kind": None}, find_alerts)
    return {"alerts": found, "next": following}


def _records(reader: Reader, given: dict[str, Any], find: Find) -> tuple[list[RecordJson], int | None]:
    query = RecordQuery(
        **record_conditions(reader, given),
        kind=given["kind"],
        text=given["q"],
        severity=_severity(given["severity"]),
    )
    return page_of(reader, given, find(reader.engine, query), record_json)


def _severity(given: str | None) -> int | None:
    return None if given is None else SEVERITIES.get(given) or int(given)
