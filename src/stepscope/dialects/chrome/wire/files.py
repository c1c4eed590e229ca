"""Read and write Chrome trace files."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec

from stepscope.dialects.chrome.wire.events import (
    OWN_FIELDS,
    Document,
    Draft,
    attr_args,
    key,
    nest,
    parse,
    read_attrs,
    read_links,
    small_number,
    span_fields,
    status_number,
    take_name,
    text_of,
    threads_of,
)
from stepscope.model.records import FIRST_STEP, LAST_STEP, Attrs, Metric, Record, Span, SpanEvent
from stepscope.wire.otlp.decode.origin import Group, Origin, read_id, take_step
from stepscope.wire.otlp.replies import BadRequest, Rejections

BAD_TIME = "the event has no usable time"
NEVER_BEGAN = "the event ends what never began"
YEAR_2000 = 946_684_800 * 10**9
SHIFTED = "stepscope.import.shifted_ns"
"""On the resource: how far the times of a file were shifted whose clock did not start in 1970."""

_LATEST = 2**62
_SILENT = frozenset("stfNODPvVRpc()=")
"""Phases without a span: flows, objects, marks, memory dumps, contexts."""
_MAX_KEPT = 100_000
_Hashable = TypeVar("_Hashable", bound=Hashable)
_STEP = re.compile(r"ProfilerStep\s*#(\d{1,18})")


class Imported(NamedTuple):
    """The content of a file; `ignored` counts events that cannot become records, by phase."""

    groups: list[Group]
    rejections: Rejections
    ignored: dict[str, int]


def read(data: bytes, now: int, *, run: str = "", project: str = "imports") -> Imported:
    """Read a trace file; BadRequest for anything else. The same bytes give the same ids.

    Times that are not since 1970 are shifted so that the file ends at `now`.
    """
    document = parse(data)
    trace_id = hashlib.blake2b(data, digest_size=16).digest()
    reading = _Reading(document, trace_id)
    try:
        for event in document.events:
            reading.take(event)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not JSON: {error}") from None
    reading.finish()
    shift = _shift(reading, now)
    origin = Origin(
        run=run or document.title or f"import-{trace_id.hex()[:8]}",
        project=project,
        world_size=document.world_size,
        resource={"service.name": project, **({SHIFTED: shift} if shift else {})},
    )
    return Imported(_groups(reading, origin, shift), reading.refused, dict(+reading.ignored))


@dataclass(slots=True)
class _Reading:
    """Turns events into drafts."""

    document: Document
    trace_id: bytes
    drafts: list[Draft] = field(default_factory=list)
    counters: list[tuple[int, Any, dict[str, float]]] = field(default_factory=list)
    refused: Rejections = field(default_factory=lambda: Rejections("traces"))
    ignored: Counter[str] = field(default_factory=Counter)
    _begun: dict[Any, list[Draft]] = field(default_factory=dict)
    _values: dict[Any, Any] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        """Add an event."""
        phase = event.get("ph") if isinstance(event, dict) else None
        if not isinstance(phase, str) or len(phase) != 1:
            self.ignored["unknown"] += 1
            return
        if phase == "M":
            take_name(self.document, event)
            return
        if phase in _SILENT:
            self.ignored[phase] += 1
            return
        time = _nanoseconds(event.get("ts"))
        if time is None:
            self.refused.add(BAD_TIME, str(event.get("name", ""))[:80])
        elif phase == "X":
            self.drafts.append(self._draft(event, time, _nanoseconds(event.get("dur", 0)) or 0))
        elif phase in "Bb":
            draft = self._draft(event, time, None, apart=phase == "b")
            self.drafts.append(draft)
            self._begun.setdefault(_pair(event, phase), []).append(draft)
        elif phase in "Ee":
            self._end(event, _pair(event, "B" if phase == "E" else "b"), time)
        elif phase == "C":
            self._count(event, time)
        elif phase in "iIn":
            self.drafts.append(self._draft(event, time, 0, instant=True))
        else:
            self.ignored[phase] += 1

    def _draft(
        self, event: dict[str, Any], time: int, duration: int | None, *, apart: bool = False, instant: bool = False
    ) -> Draft:
        name, category = event.get("name"), event.get("cat")
        args = event.get("args")
        attrs: Attrs = args if isinstance(args, dict) else {}
        if isinstance(category, str) and category and OWN_FIELDS not in attrs:
            attrs.setdefault("chrome.category", self._once(category))
        place = self._once((key(event.get("pid")), key(event.get("tid"))))
        seed = int.from_bytes(self.trace_id[:8], "big") + len(self.drafts)
        id = ((seed & (2**64 - 1)) or 1).to_bytes(8, "big")
        title = self._once(name) if isinstance(name, str) and name else "(no name)"
        return Draft(title, place, time, duration, attrs, id, apart=apart, instant=instant)

    def _once(self, value: _Hashable) -> _Hashable:
        """The same object for equal values: names and places are repeated in every event."""
        found: _Hashable = self._values.get(value, value)
        if found is value and len(self._values) < _MAX_KEPT:
            self._values[value] = value
        return found

    def _end(self, event: dict[str, Any], pair: Any, time: int) -> None:
        waiting = self._begun.get(pair)
        if not waiting:
            self.refused.add(NEVER_BEGAN, str(event.get("name", ""))[:80])
            return
        draft = waiting.pop()
        draft.duration = max(time - draft.time, 0)
        if isinstance(args := event.get("args"), dict):
            draft.attrs.update(args)

    def _count(self, event: dict[str, Any], time: int) -> None:
        args, name = event.get("args"), str(event.get("name", "counter"))
        given = args if isinstance(args, dict) else {}
        numbers = {inner: value for inner, value in given.items() if isinstance(value, (int, float))}
        if not numbers:
            self.ignored["C"] += 1
            return
        lone = len(numbers) == 1
        values = {name if lone else f"{name}.{inner}": _double(value) for inner, value in numbers.items()}
        self.counters.append((time, key(event.get("pid")), values))

    def finish(self) -> None:
        """Set the names of processes and threads on the drafts, apply Stepscope's fields, and infer parents."""
        for draft in self.drafts:
            _describe(draft, self.document, self.trace_id)
        self.drafts = nest(self.drafts)


def _describe(draft: Draft, document: Document, trace_id: bytes) -> None:
    """Apply Stepscope's own fields of a span; for other files set the names of process and thread."""
    attrs, (pid, tid) = draft.attrs, draft.place
    draft.trace_id = trace_id
    if (fields := attrs.pop(OWN_FIELDS, None)) is not None:
        _restore(draft, fields if isinstance(fields, dict) else {})
    elif not draft.instant:
        attrs.setdefault("thread.id", tid)
        if (pid, tid) in document.threads:
            attrs.setdefault("thread.name", document.threads[pid, tid])
        if pid in document.processes:
            attrs.setdefault("process.name", document.processes[pid])
    if draft.known:
        return
    draft.step, draft.axis = take_step(attrs)
    if draft.step is None and (found := _STEP.match(draft.name)):
        draft.step = int(found[1])


def _restore(draft: Draft, fields: Attrs) -> None:
    """Restore the span, or the event of a span, that a draft was written from."""
    trace_id, span_id = read_id(fields.get("trace_id"), 16), read_id(fields.get("span_id"), 8)
    if trace_id is None or span_id is None:
        return
    draft.trace_id, draft.known = trace_id, True
    draft.attrs = read_attrs(draft.attrs, fields.get("packed"))
    if draft.instant:
        draft.parent = span_id
        return
    draft.id, draft.parent = span_id, read_id(fields.get("parent_id"), 8)
    step = fields.get("step")
    if type(step) is int and FIRST_STEP <= step <= LAST_STEP:
        draft.step, draft.axis = step, text_of(fields.get("axis")) or None
    draft.kind = small_number(fields.get("kind"), 5)
    draft.status, draft.message = (
        status_number(fields.get("status")),
        text_of(fields.get("message")),
    )
    draft.scope, draft.flags = (
        text_of(fields.get("scope")),
        small_number(fields.get("flags"), 2**32 - 1),
    )
    draft.links = read_links(fields.get("links"))


def _groups(reading: _Reading, origin: Origin, shift: int) -> list[Group]:
    groups: dict[int, Group] = {}

    def records_of(pid: Any) -> list[Record]:
        rank = reading.document.rank_of(pid)
        if rank not in groups:
            size = max(origin.world_size, rank + 1)
            fields = {name: getattr(origin, name) for name in ("run", "project", "resource")}
            groups[rank] = Group(Origin(**fields, rank=rank, world_size=size), [])
        return groups[rank].records

    base = reading.document.base + shift
    drafts = reading.drafts[::-1]
    reading.drafts = []
    while drafts:  # each is freed as its span is made
        draft = drafts.pop()
        records_of(draft.place[0]).append(_span(draft, base))
    for time, pid, values in reading.counters:
        records_of(pid).append(Metric(time + base, None, None, None, dict(values)))
    return [groups[rank] for rank in sorted(groups)]


def _span(draft: Draft, base: int) -> Span:
    return Span(
        time=draft.time + base,
        duration=draft.duration,
        step=draft.step,
        axis=draft.axis,
        trace_id=draft.trace_id,
        span_id=draft.id,
        parent_id=draft.parent,
        name=draft.name,
        span_kind=draft.kind,
        status=draft.status,
        message=draft.message,
        attrs=draft.attrs,
        events=tuple(SpanEvent(each.time + base, each.name, each.attrs) for each in draft.instants or ()),
        links=draft.links,
        scope=draft.scope,
        flags=draft.flags,
    )


def _shift(reading: _Reading, now: int) -> int:
    times = [draft.time for draft in reading.drafts] + [time for time, _, _ in reading.counters]
    if not times or min(times) + reading.document.base >= YEAR_2000:
        return 0
    ends = [draft.time + (draft.duration or 0) for draft in reading.drafts] or times
    return now - max(ends) - reading.document.base


def _nanoseconds(given: Any) -> int | None:
    """Convert microseconds, possibly as text, to ns; None if invalid."""
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < _LATEST:
        return None
    found = given * 1000 if isinstance(given, int) else round(given * 1000)
    return found if found < _LATEST else None


def _double(value: int | float) -> float:
    """A number as a double; an integer beyond the range is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _pair(event: dict[str, Any], phase: str) -> Any:
    """The key that a begin event and its end event share."""
    if phase == "B":
        return phase, key(event.get("pid")), key(event.get("tid"))
    inner = event.get("id2")
    id = next(iter(inner.values()), "") if isinstance(inner, dict) else event.get("id")
    return phase, key(event.get("cat")), key(id), key(event.get("name"))


_encode = msgspec.json.Encoder().encode
_PIECE = 2000


class Lane(NamedTuple):
    """The spans of one rank of a run: a process in the file."""

    run: str
    rank: int
    spans: Sequence[Span]


def write(title: str, lanes: Sequence[Lane]) -> Iterator[bytes]:
    """Write a file piece by piece. Spans that are still open are begun and never ended."""
    times = (time for lane in lanes for span in lane.spans for time in (span.time, *(e.time for e in span.events)))
    base = min(times, default=0)
    head = {"displayTimeUnit": "ms", "baseTimeNanoseconds": base, "traceName": title}
    yield _encode(head)[:-1] + b',"traceEvents":['
    first = True
    for number, lane in enumerate(lanes):
        events = _events(number, lane, base)
        while piece := [event for _, event in zip(range(_PIECE), events, strict=False)]:
            yield (b"" if first else b",\n") + b",\n".join(map(_encode, piece))
            first = False
    yield b"]}\n"


def _events(pid: int, lane: Lane, base: int) -> Iterator[dict[str, Any]]:
    name = {"name": f"{lane.run} rank {lane.rank}"}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": name}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": lane.rank}}
    for span, tid in zip(lane.spans, threads_of(lane.spans), strict=True):
        yield _event(span, pid, tid, base)
        for inner in span.events:
            place = {"pid": pid, "tid": tid, "ts": (inner.time - base) / 1000, "s": "t"}
            owner = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
            yield {"ph": "i", "name": inner.name, **place, "args": _args(inner.attrs, owner)}


def _event(span: Span, pid: int, tid: int, base: int) -> dict[str, Any]:
    event = {
        "ph": "B" if span.duration is None else "X",
        "name": span.name,
        "cat": span.scope or "span",
        "pid": pid,
        "tid": tid,
        "ts": (span.time - base) / 1000,
        "args": _args(span.attrs, span_fields(span)),
    }
    return event if span.duration is None else {**event, "dur": span.duration / 1000}


def _args(attrs: Attrs, fields: Attrs) -> Attrs:
    """Write the arguments of an event: the attributes as they are, and Stepscope's fields beside them."""
    written = attr_args(attrs)
    packed = {"packed": written["packed"]} if "packed" in written else {}
    return {**written.get("attrs", {}), OWN_FIELDS: {**fields, **packed}}
