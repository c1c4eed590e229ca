"""Spans to a trace file that Perfetto and chrome://tracing open, and that `read` takes back without loss."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from stepscope.model import names
from stepscope.model.records import Span
from stepscope.wire.chrome.nesting import threads_of
from stepscope.wire.plain import plain

_encode = msgspec.json.Encoder().encode
_STATUSES = ("unset", "ok", "error")
_PIECE = 2000


class Lane(NamedTuple):
    """The spans of one rank of a run: a process in the file."""

    run: str
    rank: int
    spans: Sequence[Span]


def write(title: str, lanes: Sequence[Lane]) -> Iterator[bytes]:
    """Write a file piece by piece. Spans that are still open are begun and never ended."""
    base = min((span.time for lane in lanes for span in lane.spans), default=0)
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
            yield {"ph": "i", "name": inner.name, **place, "args": plain(inner.attrs)}


def _event(span: Span, pid: int, tid: int, base: int) -> dict[str, Any]:
    about: dict[str, Any] = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
    if span.parent_id:
        about["parent_id"] = span.parent_id.hex()
    if span.step is not None:
        about[span.axis or names.ATTR_STEP] = span.step
    if span.status:
        about["status"] = _STATUSES[min(span.status, 2)]
    if span.message:
        about["status_message"] = span.message
    event = {
        "ph": "B" if span.duration is None else "X",
        "name": span.name,
        "cat": span.scope or "span",
        "pid": pid,
        "tid": tid,
        "ts": (span.time - base) / 1000,
        "args": {**plain(span.attrs), **about},
    }
    return event if span.duration is None else {**event, "dur": span.duration / 1000}
