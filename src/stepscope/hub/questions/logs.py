"""Logs, events and alerts: search by text, severity, place and time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stepscope.hub.questions import conditions
from stepscope.hub.questions.endpoint import (
    EXACT_RUN,
    LIMIT,
    NAME_PARAM,
    NEXT,
    OFFSET,
    RANK_PARAM,
    SINCE,
    SPAN_PARAM,
    STEP_PARAM,
    TRACE_PARAM,
    UNTIL,
    Endpoint,
    Reader,
    nanoseconds,
    next_offset,
)
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.schemas import (
    ANYTHING,
    ATTRS,
    INTEGER,
    SECONDS,
    STEP,
    TEXT,
    Schema,
    many,
    maybe,
    seconds,
    thing,
)
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.log_rows import LogRow, read_log_rows
from stepscope.model import names
from stepscope.model.names import SEVERITIES
from stepscope.model.records import ALERT, EVENT, LOG, Alert, Log, kind
from stepscope.wire.otlp.names import ATTR_SCOPE_NAME
from stepscope.wire.plain import plain

_KINDS = {"log": LOG, "event": EVENT, "alert": ALERT}


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Search conditions, all of which must hold. `text` is searched in body and name, ignoring case."""

    run: int | None = None
    step: int | None = None
    rank: int | None = None
    kind: Literal["log", "event"] | None = None
    name: str | None = None
    text: str | None = None
    severity: int | None = None
    """The least severity."""
    trace_id: bytes | None = None
    span_id: bytes | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    oldest: bool = False
    """Oldest first, for following a log from `since` on."""
    limit: int = 200
    offset: int = 0


def find_logs(engine: Engine, question: LogQuery) -> list[LogRow]:
    """Search logs and events."""
    return _find(engine, "logs", question)


def find_alerts(engine: Engine, question: LogQuery) -> list[LogRow]:
    """Search alerts."""
    return _find(engine, "alerts", question)


def _find(engine: Engine, table: str, question: LogQuery) -> list[LogRow]:
    where = " AND ".join(_conditions(question)) or "1"
    order = "" if question.oldest else " DESC"
    page = f"LIMIT {int(question.offset)}, {int(question.limit)}"
    return read_log_rows(engine, table, where, f"time{order}, rank, span_id {page}")


def _conditions(question: LogQuery) -> list[str]:
    found = [
        *conditions.exactly(run=question.run, step=question.step, rank=question.rank),
        *conditions.named(question.name),
        *conditions.traced(question.trace_id, question.span_id),
        *conditions.between(question.since, question.until),
        *conditions.with_attrs(question.attrs),
    ]
    if question.kind is not None:
        found.append(f"kind = {_KINDS[question.kind]}")
    if question.severity is not None:
        found.append(f"severity >= {int(question.severity)}")
    if question.text:
        needle = literal.text(question.text)
        found.append(f"(positionCaseInsensitiveUTF8(body, {needle}) + positionCaseInsensitiveUTF8(name, {needle}) > 0)")
    return found


def record_json(row: LogRow, run: str) -> dict[str, Any]:
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


Find = Callable[[Engine, LogQuery], list[LogRow]]


def logs(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/logs`; alerts are there when they are asked for."""
    if given["kind"] == "alert":
        return _records(reader, {**given, "kind": None}, find_alerts, "logs")
    return _records(reader, given, find_logs, "logs")


def alerts(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/alerts`."""
    return _records(reader, {**given, "kind": None}, find_alerts, "alerts")


def _records(reader: Reader, given: dict[str, Any], find: Find, name: str) -> dict[str, Any]:
    question = LogQuery(
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
    shown = [record_json(row, owners.get(row.run, "")) for row in rows[: given["limit"]]]
    return {name: shown, "next": next_offset(rows, given)}


def _severity(given: str | None) -> int | None:
    return None if given is None else SEVERITIES.get(given) or int(given)


RECORD: Schema = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["log", "event", "alert"]},
        "run": TEXT,
        "rank": INTEGER,
        "attempt": INTEGER,
        "time": SECONDS,
        "step": STEP,
        "axis": maybe(TEXT),
        "trace_id": maybe(TEXT),
        "span_id": maybe(TEXT),
        "severity": TEXT,
        "severity_number": INTEGER,
        "name": maybe(TEXT),
        "body": ANYTHING,
        "attrs": ATTRS,
        "scope": TEXT,
        "observed": SECONDS,
        "flags": INTEGER,
    },
    "required": ["kind", "run", "rank", "time", "step", "severity", "name", "body", "attrs"],
    "additionalProperties": False,
}
_LEVELS = (*SEVERITIES, *map(str, range(1, 25)))
_RECORD_PARAMS = (
    *(EXACT_RUN, STEP_PARAM, RANK_PARAM, NAME_PARAM),
    Param("q", "text", "with this text in name or body, in any case"),
    Param("severity", "choice", "at least this severity: a word or OpenTelemetry's number", choices=_LEVELS),
    *(TRACE_PARAM, SPAN_PARAM),
    *(SINCE, UNTIL),
    Param("sort", "choice", "in which order", "newest", choices=("newest", "oldest")),
    *(LIMIT, OFFSET),
)

ENDPOINTS = (
    Endpoint(
        "/api/logs",
        "findLogs",
        "Logs and events, or alerts, by run, step, text, severity, trace and any attribute.",
        logs,
        thing(logs=many(RECORD), next=NEXT),
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
        thing(alerts=many(RECORD), next=NEXT),
        _RECORD_PARAMS,
        attrs=True,
    ),
)
