"""Spans: search by anything they carry, whole traces, and what is still open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from stepscope.hub.questions import conditions
from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.tables import NO_STEP
from stepscope.model.records import Link, Span, SpanEvent

_COLUMNS = (
    *("run", "rank", "attempt", "time", "duration", "step", "axis", "trace_id", "span_id", "parent_id", "name"),
    *("span_kind", "status", "message", "scope", "attr_names", "attr_values", "attr_types"),
    *("flags", "writer"),
    *("event_times", "event_names", "event_attrs", "link_traces", "link_spans", "link_attrs"),
)
_SELECT = ", ".join(_COLUMNS)
_NOBODY = bytes(8)


class SpanRow(Struct, frozen=True):
    """A span and who recorded it."""

    run: int
    rank: int
    attempt: int
    span: Span
    writer: int = 0
    """The key of the process that recorded it; 0 where it was stored before that was kept."""


@dataclass(frozen=True, slots=True)
class SpanQuestion:
    """Which spans; every condition given must hold. `attrs` compares values by their text."""

    run: int | None = None
    step: int | None = None
    rank: int | None = None
    name: str | None = None
    status: int | None = None
    min_duration: int | None = None
    attrs: Mapping[str, str] = field(default_factory=dict)
    trace_id: bytes | None = None
    span_id: bytes | None = None
    since: int | None = None
    until: int | None = None
    slowest: bool = False
    """Order by duration instead of the newest first."""
    limit: int = 100
    offset: int = 0


def find_spans(engine: Engine, question: SpanQuestion) -> list[SpanRow]:
    """Search ended spans."""
    where = " AND ".join(_conditions(question)) or "1"
    if question.trace_id is not None:
        where += f" AND {_whereabouts(engine, question.trace_id)}"
    order = "duration DESC, time DESC" if question.slowest else "time DESC"
    return _read(engine, f"SELECT {_SELECT} FROM spans WHERE {where} ORDER BY {order}, span_id", question)


def _conditions(question: SpanQuestion) -> list[str]:
    found = [
        *conditions.exactly(run=question.run, step=question.step, rank=question.rank, status=question.status),
        *conditions.named(question.name),
        *conditions.traced(question.trace_id, question.span_id),
        *conditions.between(question.since, question.until),
        *conditions.carrying(question.attrs),
    ]
    if question.min_duration is not None:
        found.append(f"duration >= {int(question.min_duration)}")
    return found


def _whereabouts(engine: Engine, trace_id: bytes) -> str:
    """The condition that narrows a table down to the runs and steps of a trace."""
    found = engine.query(f"SELECT DISTINCT run, step FROM traces WHERE trace_id = {literal.fixed(trace_id)}")
    places = list(found.rows("run", "step"))
    if not places:
        return "0"
    runs, steps = {run for run, _ in places}, {step for _, step in places}
    return f"run IN {literal.integers(runs)} AND step IN {literal.integers(steps)}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which spans: those of a trace, or those of a run from one step to another."""

    trace_id: bytes | None = None
    run: int | None = None
    first: int = 0
    last: int = 0


def condition(engine: Engine, stretch: Stretch) -> str:
    """The condition of a stretch on a table of spans."""
    if stretch.trace_id is not None:
        return f"trace_id = {literal.fixed(stretch.trace_id)} AND {_whereabouts(engine, stretch.trace_id)}"
    return f"run = {int(stretch.run or 0)} AND step BETWEEN {int(stretch.first)} AND {int(stretch.last)}"


def read_trace(engine: Engine, trace_id: bytes, *, limit: int = 100_000) -> tuple[list[SpanRow], list[SpanRow]]:
    """The spans of a trace in the order they began: those that ended, and those still open."""
    return read_stretch(engine, Stretch(trace_id=trace_id), limit=limit)


def read_stretch(engine: Engine, stretch: Stretch, *, limit: int) -> tuple[list[SpanRow], list[SpanRow]]:
    """The spans of a stretch in the order they began: those that ended, and those still open."""
    where = condition(engine, stretch)
    page = SpanQuestion(limit=limit)
    ended = _read(engine, f"SELECT {_SELECT} FROM spans WHERE {where} ORDER BY time, span_id", page)
    begun = _read(engine, f"SELECT {_SELECT} FROM open_spans WHERE {where} ORDER BY time, span_id", page, open=True)
    over = {row.span.span_id for row in ended}
    return ended, [row for row in begun if row.span.span_id not in over]


def open_spans(engine: Engine, run: int, *, step: int | None = None, limit: int = 1000) -> list[SpanRow]:
    """The spans of a run that began and have not ended, the newest first."""
    begun = f"run = {run}" + ("" if step is None else f" AND step = {int(step)}")
    steps = f"SELECT DISTINCT step FROM open_spans WHERE {begun}"
    over = f"SELECT span_id FROM spans WHERE run = {run} AND step IN ({steps})"
    sql = f"SELECT {_SELECT} FROM open_spans WHERE {begun} AND span_id NOT IN ({over}) ORDER BY time DESC, span_id"
    return _read(engine, sql, SpanQuestion(limit=limit), open=True)


def usual_durations(engine: Engine, run: int, first: int, last: int) -> dict[str, float]:
    """The median duration of each span name over a stretch of steps."""
    found = engine.query(
        f"""SELECT name, quantileExact(0.5)(duration) AS median FROM spans
        WHERE run = {run} AND step BETWEEN {first} AND {last} AND step > {NO_STEP} GROUP BY name"""
    )
    return dict(found.rows("name", "median"))


def _read(engine: Engine, sql: str, page: SpanQuestion, *, open: bool = False) -> list[SpanRow]:
    found = engine.query(f"{sql} LIMIT {int(page.offset)}, {int(page.limit)}")
    return [_row(row, open=open) for row in found.rows(*_COLUMNS)]


def _row(row: Sequence[Any], *, open: bool) -> SpanRow:
    run, rank, attempt, time, duration, step, axis, trace_id, span_id, parent_id, name, *rest = row
    kind, status, message, scope, names, values, types, flags, writer, *lists = rest
    event_times, event_names, event_attrs, link_traces, link_spans, link_attrs = lists
    span = Span(
        time=time,
        duration=None if open else duration,
        step=step_of(step),
        axis=axis or None,
        trace_id=trace_id,
        span_id=span_id,
        parent_id=None if parent_id == _NOBODY else parent_id,
        name=name,
        span_kind=kind,
        status=status,
        message=message,
        attrs=attrs.restore(names, values, types),
        events=tuple(map(SpanEvent, event_times, event_names, map(attrs.from_json, event_attrs))),
        links=tuple(
            Link(bytes.fromhex(trace), bytes.fromhex(span), attrs.from_json(text))
            for trace, span, text in zip(link_traces, link_spans, link_attrs, strict=True)
        ),
        scope=scope,
        flags=flags,
    )
    return SpanRow(run, rank, attempt, span, writer)
