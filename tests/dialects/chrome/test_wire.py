"""Trace files of Chrome's format: what spans become in them, and what becomes of files others wrote."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.dialects.chrome.wire.files import SHIFTED, Lane, read, write
from stepscope.model.records import Link, Metric, Span, SpanEvent
from stepscope.wire.otlp.decode.json_request import PART_BYTES
from stepscope.wire.otlp.replies import BadRequest

NOW = 1_790_000_000 * 10**9


def imported(events: Any, **more: Any) -> Any:
    """Read a file with these events."""
    return read(json.dumps({"traceEvents": events, **more}).encode(), NOW)


def spans_of(found: Any) -> dict[str, Span]:
    """The spans of all groups by name."""
    return {record.name: record for group in found.groups for record in group.records if isinstance(record, Span)}


def span(number: int, **more: Any) -> Span:
    """A span of a trace."""
    fields: dict[str, Any] = {"time": NOW + number * 1000, "duration": 500, "step": number, "axis": None}
    fields |= {"trace_id": b"t" * 16, "span_id": number.to_bytes(8, "big"), "parent_id": None, "name": f"s{number}"}
    return Span(**{**fields, **more})


def test_our_own_files_come_back_whole() -> None:
    """Every field of a span survives the way out and in, whatever its attributes are called, and so do ranks."""
    inner = SpanEvent(NOW + 2100, "tick", {"n": 1})
    early = SpanEvent(NOW - 5, "before it began", {"raw": b"\x00"})
    link = Link(b"l" * 16, b"m" * 8, {"why": "cause", "w3c.tracestate": "a=b", "raw": b"\xff"})
    odd = {"status": "mine", "trace_id": "mine", "chrome.category": "c", "step": "x", "inf": math.inf, "raw": b"\x01"}
    given = [
        span(
            4,
            time=NOW,
            step=0,
            duration=9000,
            attrs=odd,
            span_kind=3,
            flags=0x301,
            links=(link,),
            events=(early, inner),
        ),
        span(1, duration=9000, scope="lib", attrs={"a": "b", "list": [1, 2]}),
        span(2, parent_id=(1).to_bytes(8, "big"), status=2, message="no", events=(inner,)),
        span(3, step=7, axis="policy_version", duration=None),
    ]
    found = read(b"".join(write("run", [Lane("run", 0, given[:2]), Lane("run", 3, given[2:])])), NOW)
    assert [(group.origin.run, group.origin.rank, group.origin.world_size) for group in found.groups] == [
        ("run", 0, 1),
        ("run", 3, 4),
    ]
    assert [record for group in found.groups for record in group.records] == given
    assert (found.rejections.count, found.ignored) == (0, {})


def test_what_a_profiler_writes() -> None:
    """Spans nest by time within a thread, steps are inherited, ranks and names are taken from the file."""
    events = [
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": 1, "args": {"name": "main"}},
        {"ph": "X", "name": "aten::add", "pid": 9, "tid": 1, "ts": 110.5, "dur": 10, "cat": "cpu_op", "args": {"x": 1}},
        {"ph": "X", "name": "ProfilerStep#5", "pid": 9, "tid": 1, "ts": 100, "dur": "100"},
        {"ph": "X", "name": "kernel", "pid": 9, "tid": "stream 7", "ts": 130, "dur": 40},
        {"ph": "i", "name": "mark", "pid": 9, "tid": 1, "ts": 115, "s": "t"},
        {"ph": "s", "id": 3, "pid": 9, "tid": 1, "ts": 110, "name": "ac2g"},
    ]
    found = imported(events, baseTimeNanoseconds=NOW, distributedInfo={"rank": 2, "world_size": 8})
    (group,) = found.groups
    assert (group.origin.rank, group.origin.world_size) == (2, 8)
    spans = spans_of(found)
    step, add, kernel = spans["ProfilerStep#5"], spans["aten::add"], spans["kernel"]
    assert (step.time, step.duration, step.step) == (NOW + 100_000, 100_000, 5)
    assert (add.parent_id, add.step, add.attrs["thread.name"], add.time) == (step.span_id, 5, "main", NOW + 110_500)
    assert add.attrs["chrome.category"] == "cpu_op"
    assert [event.name for event in add.events] == ["mark"]
    assert (kernel.parent_id, kernel.step) == (None, None)
    assert found.ignored == {"s": 1}


def test_begun_and_ended_async_and_counted() -> None:
    """B and E pair by thread, b and e by id; a counter is a metric; what never ends is open."""
    events = [
        {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "B", "name": "inner", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 3, "args": {"done": True}},
        {"ph": "b", "name": "load", "cat": "io", "id": "0x1", "pid": 1, "tid": 1, "ts": 2},
        {"ph": "e", "name": "load", "cat": "io", "id": "0x1", "pid": 1, "tid": 1, "ts": 9},
        {"ph": "C", "name": "memory", "pid": 1, "ts": 4, "args": {"used": 3}},
        {"ph": "E", "pid": 2, "tid": 1, "ts": 3, "name": "lost"},
        {"ph": "X", "name": "late", "pid": 1, "tid": 1},
        *({"ph": "C", "name": "odd", "pid": 1, "ts": 4, "args": args} for args in ([1], "x", 7, None, {"a": "b"})),
    ]
    found = imported(events)
    spans = spans_of(found)
    assert (spans["inner"].duration, spans["inner"].attrs["done"]) == (1000, True)
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert spans["outer"].duration is None
    assert spans["load"].duration == 7000
    assert [record.values for record in found.groups[0].records if isinstance(record, Metric)] == [{"memory": 3.0}]
    assert (found.rejections.count, found.ignored) == (2, {"C": 5})


def test_a_clock_of_its_own_is_moved_to_now() -> None:
    """Times that count from a boot end now, and the resource says by how much they moved."""
    found = imported([{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1000, "dur": 500}])
    assert spans_of(found)["a"].time == NOW - 500_000
    assert found.groups[0].origin.resource[SHIFTED] == NOW - 1_500_000


def test_the_same_bytes_give_the_same_ids() -> None:
    """Importing a file again makes no other spans."""
    data = b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":5},'
    first, second = read(data, NOW), read(data, NOW + 5)
    assert spans_of(first)["a"].span_id == spans_of(second)["a"].span_id
    assert first.groups[0].origin.run == second.groups[0].origin.run


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"traceEvents": 3}', b"\xff", b"3", b"[{"])
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    """A file in another format raises that error and no other."""
    with pytest.raises(BadRequest):
        read(data, NOW)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_OWN = st.dictionaries(
    st.sampled_from(["trace_id", "span_id", "kind", "status", "links", "packed", "step", "flags", "scope"]),
    _JSON | st.just("ab" * 16) | st.just("ab" * 8) | st.just([{"trace_id": "ab" * 16, "span_id": "ab" * 8}]),
)
_EVENT = st.fixed_dictionaries(
    {"ph": st.sampled_from(list("XBEbeinC")), "ts": st.integers(0, 10**6) | _JSON},
    optional={"args": _JSON | st.fixed_dictionaries({"stepscope": _JSON | _OWN}), "dur": _JSON, "id2": _JSON},
)
_FIELDS = st.sampled_from(["ph", "ts", "dur", "pid", "tid", "name", "cat", "args", "id", "id2"])


@given(
    st.lists(
        _EVENT | st.dictionaries(_FIELDS, _JSON | st.sampled_from(list("XBEbeinCM")), max_size=8) | _JSON, max_size=8
    )
)
def test_no_event_breaks_the_reader(events: list[Any]) -> None:
    """Any event is accepted, refused or ignored without an exception."""
    imported(events)


@pytest.mark.parametrize("bare", [False, True])
def test_no_call_parses_a_large_file_at_once(bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of megabytes is parsed in short calls, between which a hub answers others."""
    sizes = []

    def decode(part: Any) -> Any:
        sizes.append(memoryview(part).nbytes)
        return msgspec.json.decode(part)

    monkeypatch.setattr("stepscope.wire.otlp.decode.json_request._decode", decode)
    events = [{"ph": "X", "name": f"s{number}", "ts": number, "dur": 1, "pid": 1, "tid": 1} for number in range(20_000)]
    text = json.dumps(events)
    data = text.removesuffix("]") + "," if bare else f'{{"traceEvents": {text}}}'
    found = read(data.encode(), NOW)
    assert len(spans_of(found)) == 20_000
    assert max(sizes) <= 4 * PART_BYTES
