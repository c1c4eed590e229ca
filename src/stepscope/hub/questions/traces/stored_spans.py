"""Spans: search, the spans of a trace or of some steps, and the names of spans and of their attributes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct

from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.toolbox.endpoint import (
    EXACT_RUN,
    IN_CONTEXT,
    LIMIT,
    OF_RECORDS,
    OFFSET,
    Attrs,
    Endpoint,
    Ms,
    Next,
    Param,
    Reader,
    milliseconds,
    page_of,
    record_conditions,
    seconds,
    to_int64,
)
from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.names import ATTR_FLAGS
from stepscope.model.records import Link, Seconds, Span, SpanEvent
from stepscope.wire.plain import plain

_COLUMNS = (
    *("run", "rank", "attempt", "time", "duration", "step", "axis", "trace_id", "span_id", "parent_id", "name"),
    *("span_kind", "status", "message", "scope", "attr_names", "attr_values", "attr_types"),
    *("flags", "writer"),
    *("event_times", "event_names", "event_attrs", "link_traces", "link_spans", "link_attrs"),
)
_NO_PARENT = bytes(8)
MAX_GROUPS = 200_000
"""Names of spans, of all ranks together, that are read of one step; more are left out."""


class SpanRow(Struct, frozen=True):
    """A span and the process that recorded it."""

    run: int
    rank: int
    attempt: int
    span: Span
    writer: int = 0
    """The key of the writer; 0 for spans stored before it was kept."""


def find_spans(engine: Engine, query: RecordQuery) -> list[SpanRow]:
    """Search spans that ended, or those that did not."""
    where = query.conditions()
    if query.trace_id is not None:
        where += f" AND {_within_trace(engine, query.trace_id)}"
    order = {"newest": "time DESC", "oldest": "time", "slowest": "duration DESC, time DESC"}[query.order]
    table = "spans"
    if query.open:
        table, where = "open_spans", f"{where} AND {_not_ended(where)}"
    return _read(engine, f"{table} WHERE {where} ORDER BY {order}, span_id", query.limit, query.offset, open=query.open)


def _not_ended(where: str) -> str:
    """The condition that narrows the spans that began, as chosen by another one, to those that did not end."""
    begun = f"SELECT DISTINCT run, step FROM open_spans WHERE {where}"
    return f"span_id NOT IN (SELECT span_id FROM spans WHERE (run, step) IN ({begun}))"


def _within_trace(engine: Engine, trace_id: bytes) -> str:
    """The condition that narrows a table to the runs and steps of a trace."""
    found = engine.query(f"SELECT DISTINCT run, step FROM traces WHERE trace_id = {literal.fixed(trace_id)}")
    places = list(found.rows("run", "step"))
    if not places:
        return "0"
    runs, steps = {run for run, _ in places}, {step for _, step in places}
    return f"run IN {literal.integers(runs)} AND step IN {literal.integers(steps)}"


@dataclass(frozen=True, slots=True)
class SpanRange:
    """The spans of a trace, or those of a run from one step to another."""

    trace_id: bytes | None = None
    run: int | None = None
    first: int = 0
    last: int = 0

    def condition(self, engine: Engine) -> str:
        """The condition that selects them in a table of spans."""
        if self.trace_id is not None:
            return f"trace_id = {literal.fixed(self.trace_id)} AND {_within_trace(engine, self.trace_id)}"
        return f"run = {int(self.run or 0)} AND step BETWEEN {int(self.first)} AND {int(self.last)}"


def read_trace(engine: Engine, trace_id: bytes, *, limit: int = 100_000) -> tuple[list[SpanRow], list[SpanRow]]:
    """The spans of a trace in the order they began: those that ended, and those still open."""
    return read_range(engine, SpanRange(trace_id=trace_id), limit=limit)


def read_range(engine: Engine, spans: SpanRange, *, limit: int) -> tuple[list[SpanRow], list[SpanRow]]:
    """Some spans in the order they began: those that ended, and those still open."""
    where = spans.condition(engine)
    ended = _read(engine, f"spans WHERE {where} ORDER BY time, span_id", limit)
    begun = _read(engine, f"open_spans WHERE {where} ORDER BY time, span_id", limit, open=True)
    over = {row.span.span_id for row in ended}
    return ended, [row for row in begun if row.span.span_id not in over]


def open_spans(engine: Engine, run: int, *, step: int | None = None, limit: int = 1000) -> list[SpanRow]:
    """The spans of a run that began and have not ended, the newest first."""
    return find_spans(engine, RecordQuery(run=run, step=step, open=True, limit=limit))


def usual_durations_sql(run: int, first: int, last: int) -> str:
    """The query for the median duration of each span name over a range of steps."""
    return f"""SELECT name, quantileExact(0.5)(duration) AS median FROM spans
        WHERE run = {run} AND step BETWEEN {first} AND {last} AND step > {NO_STEP} GROUP BY name"""


class RankSpans(Struct, frozen=True, gc=False):
    """The spans of one name on a rank at a step, in one attempt."""

    rank: int
    attempt: int
    name: str
    begin: int
    end: int
    spent: int
    failed: int


def outline_sql(run: int, step: int) -> str:
    """The query for what the spans of each name took on each rank, the fields of `RankSpans`."""
    return f"""SELECT rank, attempt, name, min(time) AS began, max(time + duration) AS ended, sum(duration) AS spent,
            countIf(status = 2) AS failed
        FROM spans WHERE run = {run} AND step = {step} GROUP BY rank, attempt, name
        ORDER BY rank, attempt, name LIMIT {MAX_GROUPS}"""


def outline_of(spans: Iterable[SpanRow]) -> list[RankSpans]:
    """Return the same of spans that were read."""
    return [
        RankSpans(
            row.rank,
            row.attempt,
            row.span.name,
            row.span.time,
            row.span.time + (row.span.duration or 0),
            row.span.duration or 0,
            int(row.span.status == 2),
        )
        for row in spans
    ]


def extents_of(outline: Iterable[RankSpans]) -> dict[int, tuple[int, int]]:
    """The begin of the first and the end of the last span of each rank."""
    found: dict[int, tuple[int, int]] = {}
    for each in outline:
        first, last = found.get(each.rank, (each.begin, each.end))
        found[each.rank] = min(first, each.begin), max(last, each.end)
    return found


def last_rank(extents: Mapping[int, tuple[int, int]]) -> int | None:
    """The rank whose spans ended last, of several the lowest; None without any."""
    return min(extents, key=lambda rank: (-extents[rank][1], rank), default=None)


def _read(engine: Engine, source: str, limit: int, offset: int = 0, *, open: bool = False) -> list[SpanRow]:
    found = engine.query(f"SELECT {', '.join(_COLUMNS)} FROM {source} LIMIT {int(offset)}, {int(limit)}")
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
        parent_id=None if parent_id == _NO_PARENT else parent_id,
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


STATUSES = ("unset", "ok", "error")
SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


class SpanEventJson(TypedDict):
    """An event of a span."""

    time: Seconds
    name: str
    attrs: Attrs


class LinkJson(TypedDict):
    """A link to another span."""

    trace_id: str
    span_id: str
    attrs: Attrs
    flags: int


class SpanJson(TypedDict):
    """A span."""

    run: str
    rank: int
    attempt: int
    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    status: str
    message: str
    step: int | None
    axis: str | None
    start: Seconds
    duration_ms: Ms
    scope: str
    attrs: Attrs
    events: list[SpanEventJson]
    links: list[LinkJson]
    flags: int


class PlacedSpan(SpanJson):
    """A span within a step or a trace."""

    offset_ms: Annotated[float | None, Meta(description="Milliseconds since the step or the trace began.")]


class SpanPage(TypedDict):
    """Spans that were found."""

    spans: list[SpanJson]
    next: Next


class SpanName(TypedDict):
    """The spans of a name."""

    name: str
    count: int
    errors: int
    median_ms: Ms
    longest_ms: Ms


class AttrName(TypedDict):
    """An attribute, and how many spans have it."""

    name: str
    count: int


class SpanFacets(TypedDict):
    """Names of spans and of their attributes, the most frequent first."""

    names: list[SpanName]
    attrs: list[AttrName]


def span_json(row: SpanRow, run: str) -> SpanJson:
    """A span."""
    what: Span = row.span
    return {
        "run": run,
        "rank": row.rank,
        "attempt": row.attempt,
        "trace_id": what.trace_id.hex(),
        "span_id": what.span_id.hex(),
        "parent_id": what.parent_id.hex() if what.parent_id else None,
        "name": what.name,
        "kind": _named(SPAN_KINDS, what.span_kind),
        "status": _named(STATUSES, what.status),
        "message": what.message,
        "step": what.step,
        "axis": what.axis,
        "start": seconds(what.time),
        "duration_ms": milliseconds(what.duration),
        "scope": what.scope,
        "flags": what.flags,
        "attrs": plain(what.attrs),
        "events": [{"time": seconds(e.time), "name": e.name, "attrs": plain(e.attrs)} for e in what.events],
        "links": [_link_json(link) for link in what.links],
    }


def placed_json(row: SpanRow, run: str, begin: int) -> PlacedSpan:
    """A span with its offset from `begin`."""
    return {**span_json(row, run), "offset_ms": milliseconds(row.span.time - begin)}


def _link_json(link: Link) -> LinkJson:
    """A link; its flags are kept among its attributes, and shown apart from those that the user gave."""
    given = {key: value for key, value in link.attrs.items() if key != ATTR_FLAGS}
    flags = link.attrs.get(ATTR_FLAGS, 0)
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "attrs": plain(given),
        "flags": flags if isinstance(flags, int) else 0,
    }


def _named(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else str(number)


@Endpoint(
    "/api/spans",
    "findSpans",
    (
        *OF_RECORDS,
        Param("status", "choice", "with this status", choices=STATUSES),
        Param("error", "boolean", "true: only failed spans"),
        Param("min_ms", "number", "with at least this duration, in milliseconds"),
        Param("open", "boolean", "true: those that began and have not ended, instead of those that ended", False),
        *IN_CONTEXT,
        Param("sort", "choice", "the order", "newest", choices=("newest", "slowest")),
        *(LIMIT, OFFSET),
    ),
    attrs=True,
)
def search(reader: Reader, given: dict[str, Any]) -> SpanPage:
    """Spans by run, step, name, status, duration and any attribute (attr.KEY=VALUE)."""
    status = given["status"]
    if given["error"] is not None and status is None:
        status = "error" if given["error"] else None
    query = RecordQuery(
        **record_conditions(reader, given),
        status=None if status is None else STATUSES.index(status),
        min_duration=to_int64(given["min_ms"], 1e6),
        open=given["open"],
    )
    spans, following = page_of(reader, given, find_spans(reader.engine, query), span_json)
    return {"spans": spans, "next": following}


def span_names(engine: Engine, run: int | None, *, limit: int = 500) -> list[SpanName]:
    """The names of spans with counts and durations, the most frequent first."""
    where = "1" if run is None else f"run = {int(run)}"
    found = engine.query(
        f"""SELECT name, count() AS n, countIf(status = 2) AS errors, quantile(0.5)(duration) AS median,
            max(duration) AS longest
        FROM spans WHERE {where} GROUP BY name ORDER BY n DESC, name LIMIT {int(limit)}"""
    )
    return [
        {
            "name": name,
            "count": count,
            "errors": errors,
            "median_ms": milliseconds(median),
            "longest_ms": milliseconds(longest),
        }
        for name, count, errors, median, longest in found.rows()
    ]


def attr_names(engine: Engine, run: int | None, *, limit: int = 200) -> list[AttrName]:
    """The attributes of the latest hundred thousand spans, the most frequent first."""
    where = "1" if run is None else f"run = {int(run)}"
    latest = f"SELECT attr_names FROM spans WHERE {where} ORDER BY time DESC LIMIT 100000"
    found = engine.query(
        f"""SELECT name, count() AS n FROM (SELECT arrayJoin(attr_names) AS name FROM ({latest}))
        GROUP BY name ORDER BY n DESC, name LIMIT {int(limit)}"""
    )
    return [{"name": name, "count": count} for name, count in found.rows("name", "n")]


@Endpoint("/api/spans/facets", "listSpanNames", (EXACT_RUN,))
def facets(reader: Reader, given: dict[str, Any]) -> SpanFacets:
    """Names of spans, with counts and durations, and of their attributes, for searching."""
    run = reader.number_or_all(given["run"])
    return {"names": span_names(reader.engine, run), "attrs": attr_names(reader.engine, run)}
