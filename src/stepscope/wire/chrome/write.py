"""Spans to a trace file that Perfetto and chrome://tracing open, and from which `read` makes the same spans."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from stepscope.model.records import Attrs, Span
from stepscope.wire.chrome import own_fields
from stepscope.wire.chrome.nesting import threads_of

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
        "args": _args(span.attrs, own_fields.span_fields(span)),
    }
    return event if span.duration is None else {**event, "dur": span.duration / 1000}


def _args(attrs: Attrs, own: Attrs) -> Attrs:
    """Write the arguments of an event: the attributes as they are, and beside them what Chrome does not know."""
    written = own_fields.attr_args(attrs)
    packed = {"packed": written["packed"]} if "packed" in written else {}
    return {**written.get("attrs", {}), own_fields.NAME: {**own, **packed}}
