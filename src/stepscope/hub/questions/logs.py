"""Logs, events and alerts: search by text, severity, place and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from stepscope.hub.questions import conditions
from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.model.records import ALERT, EVENT, LOG, Alert, Event, Log

_COLUMNS = (
    *("run", "rank", "attempt", "kind", "time", "step", "axis", "trace_id", "span_id", "severity", "name"),
    *("body", "body_type", "scope", "observed", "flags", "attr_names", "attr_values", "attr_types"),
)
_KINDS = {"log": LOG, "event": EVENT, "alert": ALERT}
_NONE = (bytes(16), bytes(8))


class LogRow(Struct, frozen=True):
    """A log, event or alert and who recorded it."""

    run: int
    rank: int
    attempt: int
    record: Log | Event | Alert


@dataclass(frozen=True, slots=True)
class LogQuestion:
    """Which records; every condition given must hold. `text` is looked for in body and name, in any case."""

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


def find_logs(engine: Engine, question: LogQuestion) -> list[LogRow]:
    """Search logs and events."""
    return _find(engine, "logs", question)


def find_alerts(engine: Engine, question: LogQuestion) -> list[LogRow]:
    """Search alerts."""
    return _find(engine, "alerts", question)


def _find(engine: Engine, table: str, question: LogQuestion) -> list[LogRow]:
    where = " AND ".join(_conditions(question)) or "1"
    order = "" if question.oldest else " DESC"
    found = engine.query(
        f"""SELECT {", ".join(_COLUMNS)} FROM {table} WHERE {where}
        ORDER BY time{order}, rank, span_id LIMIT {int(question.offset)}, {int(question.limit)}"""
    )
    return [_row(row) for row in found.rows(*_COLUMNS)]


def _conditions(question: LogQuestion) -> list[str]:
    found = [
        *conditions.exactly(run=question.run, step=question.step, rank=question.rank),
        *conditions.named(question.name),
        *conditions.traced(question.trace_id, question.span_id),
        *conditions.between(question.since, question.until),
        *conditions.carrying(question.attrs),
    ]
    if question.kind is not None:
        found.append(f"kind = {_KINDS[question.kind]}")
    if question.severity is not None:
        found.append(f"severity >= {int(question.severity)}")
    if question.text:
        needle = literal.text(question.text)
        found.append(f"(positionCaseInsensitiveUTF8(body, {needle}) + positionCaseInsensitiveUTF8(name, {needle}) > 0)")
    return found


def _row(row: Sequence[Any]) -> LogRow:
    run, rank, attempt, kind, time, step, axis, trace_id, span_id, severity, name, body, letter, scope, *rest = row
    *seen, attr_names, attr_values, attr_types = rest
    values = attrs.restore(attr_names, attr_values, attr_types)
    trace, span = (None if id in _NONE else id for id in (trace_id, span_id))
    at, on = step_of(step), axis or None
    if kind == ALERT:
        return LogRow(run, rank, attempt, Alert(time, at, on, trace, span, severity, name, body, values, *seen))
    content = attrs.unspell(letter, body)
    if kind == EVENT:
        return LogRow(run, rank, attempt, Event(time, at, on, trace, span, severity, name, values, content, *seen))
    return LogRow(run, rank, attempt, Log(time, at, on, trace, span, severity, content, values, scope, *seen))
