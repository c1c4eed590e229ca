"""Endpoints of spans, traces, logs, events and alerts."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from stepscope.hub.questions import schemas, shapes
from stepscope.hub.questions import step_json as steps
from stepscope.hub.questions.endpoint import (
    EXACT_RUN,
    LIMIT,
    OFFSET,
    SINCE,
    UNTIL,
    Endpoint,
    Reader,
    nanoseconds,
    whole,
)
from stepscope.hub.questions.logs import LogQuestion, LogRow, find_alerts, find_logs
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.schemas import INTEGER, MS, RECORD, SECONDS, TEXT, many, maybe, thing
from stepscope.hub.questions.spans import SpanQuestion, find_spans, read_trace
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.engine import Engine
from stepscope.model.names import SEVERITIES

Find = Callable[[Engine, LogQuestion], list[LogRow]]


def spans(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/spans`."""
    status = given["status"]
    if given["error"] is not None and status is None:
        status = "error" if given["error"] else None
    question = SpanQuestion(
        run=reader.among(given["run"]),
        step=given["step"],
        rank=given["rank"],
        name=given["name"],
        status=None if status is None else shapes.STATUSES.index(status),
        min_duration=whole(given["min_ms"], 1e6),
        attrs=given["attrs"],
        trace_id=given["trace_id"],
        span_id=given["span_id"],
        since=nanoseconds(given["since"]),
        until=nanoseconds(given["until"]),
        slowest=given["sort"] == "slowest",
        limit=given["limit"] + 1,
        offset=given["offset"],
    )
    rows = find_spans(reader.engine, question)
    owners = reader.owners({row.run for row in rows})
    shown = [shapes.span(row, owners.get(row.run, "")) for row in rows[: given["limit"]]]
    return {"spans": shown, "next": _next(rows, given)}


def _next(rows: Sequence[Any], given: dict[str, Any]) -> int | None:
    """The offset of the next page, where there is one."""
    return given["offset"] + given["limit"] if len(rows) > given["limit"] else None


def trace(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/traces/{trace_id}`."""
    ended, still_open = read_trace(reader.engine, given["trace_id"], limit=20_000)
    owners = reader.owners({row.run for row in (*ended, *still_open)})
    ended = [row for row in ended if row.run in owners]
    still_open = [row for row in still_open if row.run in owners]
    if not ended and not still_open:
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, f"there is no trace {given['trace_id'].hex()}"))
    return {"trace_id": given["trace_id"].hex(), **steps.trace(ended, still_open, owners)}


def logs(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/logs`; alerts are there when they are asked for."""
    if given["kind"] == "alert":
        return _records(reader, {**given, "kind": None}, find_alerts, "logs")
    return _records(reader, given, find_logs, "logs")


def alerts(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/alerts`."""
    return _records(reader, {**given, "kind": None}, find_alerts, "alerts")


def _records(reader: Reader, given: dict[str, Any], find: Find, name: str) -> dict[str, Any]:
    question = LogQuestion(
        run=reader.among(given["run"]),
        step=given["step"],
        rank=given["rank"],
        kind=given["kind"],
        name=given["name"],
        text=given["q"],
        severity=_severity(given["severity"]),
        trace_id=given["trace_id"],
        span_id=given["span_id"],
        attrs=given["attrs"],
        since=nanoseconds(given["since"]),
        until=nanoseconds(given["until"]),
        oldest=given["sort"] == "oldest",
        limit=given["limit"] + 1,
        offset=given["offset"],
    )
    rows = find(reader.engine, question)
    owners = reader.owners({row.run for row in rows})
    shown = [shapes.record(row, owners.get(row.run, "")) for row in rows[: given["limit"]]]
    return {name: shown, "next": _next(rows, given)}


def _severity(given: str | None) -> int | None:
    return None if given is None else SEVERITIES.get(given) or int(given)


_LEVELS = (*SEVERITIES, *map(str, range(1, 25)))
_STEP = Param("step", "integer", "at this step")
_RANK = Param("rank", "integer", "of this rank", low=0, high=2**32 - 1)
_NAME = Param("name", "text", "with this name")
_TRACE = Param("trace_id", "hex", "of this trace", width=16)
_SPAN = Param("span_id", "hex", "of this span", width=8)
_RECORD_PARAMS = (
    *(EXACT_RUN, _STEP, _RANK, _NAME),
    Param("q", "text", "with this text in name or body, in any case"),
    Param("severity", "choice", "at least this severity: a word or OpenTelemetry's number", choices=_LEVELS),
    *(_TRACE, _SPAN),
    *(SINCE, UNTIL),
    Param("sort", "choice", "in which order", "newest", choices=("newest", "oldest")),
    *(LIMIT, OFFSET),
)
_NEXT = maybe(INTEGER)

ENDPOINTS = (
    Endpoint(
        "/api/spans",
        "findSpans",
        "Spans by run, step, name, status, duration and any attribute (attr.KEY=VALUE).",
        spans,
        thing(spans=many(thing(**schemas.SPAN_FIELDS)), next=_NEXT),
        (
            *(EXACT_RUN, _STEP, _RANK, _NAME),
            Param("status", "choice", "with this status", choices=shapes.STATUSES),
            Param("error", "boolean", "true: failed ones only"),
            Param("min_ms", "number", "that lasted at least so many milliseconds"),
            *(_TRACE, _SPAN, SINCE, UNTIL),
            Param("sort", "choice", "in which order", "newest", choices=("newest", "slowest")),
            *(LIMIT, OFFSET),
        ),
        attrs=True,
    ),
    Endpoint(
        "/api/traces/{trace_id}",
        "readTrace",
        "A whole trace: its spans, parents first, with depth and critical path.",
        trace,
        thing(
            trace_id=TEXT,
            begin=SECONDS,
            duration_ms=MS,
            ranks=many(INTEGER),
            runs=many(TEXT),
            open=INTEGER,
            spans=many(thing(**schemas.NODE_FIELDS)),
        ),
        (Param("trace_id", "hex", "the trace", required=True, place="path", width=16),),
    ),
    Endpoint(
        "/api/logs",
        "findLogs",
        "Logs and events, or alerts, by run, step, text, severity, trace and any attribute.",
        logs,
        thing(logs=many(RECORD), next=_NEXT),
        (
            *_RECORD_PARAMS,
            Param("kind", "choice", "of this kind only; without, logs and events", choices=("log", "event", "alert")),
        ),
        attrs=True,
    ),
    Endpoint(
        "/api/alerts",
        "findAlerts",
        "Alerts by run, step, text and severity.",
        alerts,
        thing(alerts=many(RECORD), next=_NEXT),
        _RECORD_PARAMS,
        attrs=True,
    ),
)
