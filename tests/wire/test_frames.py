"""Frames: what goes in comes out to the bit, and damage costs the frame it hits."""

import struct
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.model.ports import Writer
from stepscope.model.records import (
    METRIC,
    Alert,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Record,
    Span,
    SpanEvent,
    Summary,
)
from stepscope.wire import frames

pack = msgspec.msgpack.encode

times = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**64 - 1)
integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(width=64)
some_float = st.none() | floats
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.none() | st.booleans() | integers | floats | texts | st.binary(max_size=12)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
attrs = st.dictionaries(texts, nested, max_size=4)
few_counts = st.lists(counts, max_size=4).map(tuple)
values = (
    integers
    | floats
    | st.builds(Histogram, counts, some_float, some_float, some_float, st.tuples(floats), few_counts)
    | st.builds(
        ExponentialHistogram,
        counts,
        some_float,
        some_float,
        some_float,
        st.integers(-10, 20),
        counts,
        floats,
        integers,
        few_counts,
        integers,
        few_counts,
    )
    | st.builds(Summary, counts, floats, st.lists(st.tuples(floats, floats), max_size=3).map(tuple))
)
instruments = st.builds(Instrument, texts, texts, texts, st.booleans(), st.booleans(), times, texts)
where = (st.none() | times, st.none() | texts)
trace = (st.none() | st.binary(min_size=16, max_size=16), st.none() | st.binary(min_size=8, max_size=8))
span_events = st.lists(st.builds(SpanEvent, times, texts, attrs), max_size=2).map(tuple)
links = st.lists(st.builds(Link, st.binary(), st.binary(), attrs), max_size=2).map(tuple)
severities = st.integers(0, 24)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        Metric,
        times,
        *where,
        st.none() | texts,
        st.dictionaries(texts, values, max_size=4),
        attrs,
        st.none() | instruments,
    ),
    st.builds(
        Span,
        times,
        st.none() | counts,
        *where,
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
        trace[1],
        texts,
        st.integers(0, 5),
        st.integers(0, 2),
        texts,
        attrs,
        span_events,
        links,
        texts,
    ),
    st.builds(Log, times, *where, *trace, severities, nested, attrs, texts),
    st.builds(Event, times, *where, *trace, severities, texts, attrs, nested),
    st.builds(Alert, times, *where, *trace, severities, texts, texts, attrs),
)


def batch(seq: int, *texts: str) -> bytes:
    """Frame a batch of logs."""
    return frames.pack_batch(seq, [pack(Log(seq, None, None, None, None, 9, text)) for text in texts])


def payloads(data: bytes, *, final: bool = True) -> list[bytes]:
    """Return the payloads that a scan finds."""
    found = frames.scan(data, final=final)
    return [bytes(each.payload) for each in found if isinstance(each, frames.Frame)]


def damages(data: bytes) -> list[frames.Damage]:
    """Return the damage that a scan finds."""
    return [each for each in frames.scan(data, final=True) if isinstance(each, frames.Damage)]


def only_payload(data: bytes) -> memoryview:
    """Return the payload of the one frame in a buffer."""
    (found,) = frames.scan(data, final=True)
    assert isinstance(found, frames.Frame)
    return found.payload


@settings(max_examples=80)
@given(st.integers(0, 2**64 - 1), st.lists(records, max_size=6))
def test_every_kind_of_record_round_trips(seq: int, given_records: list[Record]) -> None:
    """A batch of any records comes back whole; packed again it is the same to the bit, NaN included."""
    payload = only_payload(frames.pack_batch(seq, [pack(record) for record in given_records]))
    assert frames.batch_seq(payload) == seq
    number, found, bad = frames.unpack_batch(payload)
    assert (number, bad) == (seq, 0)
    assert [type(record) for record in found] == [type(record) for record in given_records]
    assert [pack(record) for record in found] == [pack(record) for record in given_records]


@pytest.mark.parametrize(
    "bits",
    [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8DEADBEEF0001, 0x7FF0000000000000, 0xFFF0000000000000, 1 << 63, 1],
    ids=["nan", "-nan", "nan with a payload", "inf", "-inf", "-0.0", "smallest"],
)
def test_odd_floats_keep_their_bits(bits: int) -> None:
    """NaN with its sign and payload, the infinities, minus zero and subnormals keep every bit."""
    (value,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    packed = pack(Metric(1, 2, None, None, {"x": value}, {"y": value}))
    _, (record,), _ = frames.unpack_batch(only_payload(frames.pack_batch(0, [packed])))
    assert isinstance(record, Metric)
    for back in (record.values["x"], record.attrs["y"]):
        assert struct.pack(">d", back) == bits.to_bytes(8, "big")


@given(texts, attrs)
def test_a_writer_round_trips(text: str, resource: dict[str, Any]) -> None:
    """The head gives back the writer with its resource."""
    writer = Writer(id=text, run=text, project=text, name=text, rank=3, main=False, resource=resource)
    payload = only_payload(frames.pack_head(writer))
    assert frames.is_head(payload)
    assert pack(frames.unpack_head(payload)) == pack(writer)
    with pytest.raises(ValueError, match="not a batch"):
        frames.batch_seq(payload)


def test_a_batch_is_no_head() -> None:
    """A head and a batch are distinguished by their first bytes, and an empty payload is neither."""
    assert not frames.is_head(only_payload(batch(1)))
    assert not frames.is_head(memoryview(b""))
    with pytest.raises(ValueError, match="not a batch"):
        frames.unpack_batch(memoryview(b""))


def test_keys_that_are_no_text_become_text() -> None:
    """A dict given to `log` is packed as it is: numbers, None and tuples as keys are read back as text."""
    odd = (0, 1, 2, None, "trainer", {0: 1.5, None: 2, (1, 2): 3, b"k": 4, "loss": 5})
    event = (3, 1, None, None, None, None, 9, "name", {7: {8: [{9: None}]}})
    good = pack(Log(1, None, None, None, None, 9, "kept"))
    payload = only_payload(frames.pack_batch(4, [pack(odd), good, pack(event)]))
    seq, found, bad = frames.unpack_batch(payload)
    assert (seq, bad) == (4, 0)
    assert found == [
        Metric(1, 2, None, "trainer", {"0": 1.5, "None": 2, "(1, 2)": 3, "b'k'": 4, "loss": 5}),
        Log(1, None, None, None, None, 9, "kept"),
        Event(1, None, None, None, None, 9, "name", {"7": {"8": [{"9": None}]}}),
    ]


def test_truth_values_in_a_metric_are_numbers() -> None:
    """A metric that holds True is read as a 1, beside its other values."""
    packed = pack((0, 1, None, None, None, {"done": True, "won": False, "nan": float("nan")}, {"flag": True}))
    _, (record,), bad = frames.unpack_batch(only_payload(frames.pack_batch(0, [packed])))
    assert isinstance(record, Metric)
    assert bad == 0
    assert (record.values["done"], record.values["won"]) == (1, 0)
    assert str(record.values["nan"]) == "nan"
    assert record.attrs == {"flag": True}


def test_a_record_that_cannot_be_read_costs_only_itself() -> None:
    """Unknown tags, wrong types and non-records are counted; their neighbours are read."""
    good = pack(Log(1, None, None, None, None, 9, "kept"))
    bad = [pack((9, 1)), pack((0, "soon")), pack({"a": 1}), pack(None), pack((0, 1, None, None, None, {"x": "y"}))]
    payload = only_payload(frames.pack_batch(0, [good, *bad, good]))
    _, found, unreadable = frames.unpack_batch(payload)
    assert len(found) == 2
    assert unreadable == len(bad)


def test_a_record_nested_too_deep_raises_nothing_but_a_value_error() -> None:
    """A record deeper than the interpreter's stack is refused as any other bad one."""
    deep = b"\x91" * (sys.getrecursionlimit() * 2) + b"\xc0"
    payload = only_payload(frames.pack_batch(0, [deep]))
    with pytest.raises(ValueError, match="too deep"):
        frames.unpack_batch(payload)
    with pytest.raises(ValueError, match="too deep"):
        frames.unpack_record(deep)


def test_a_batch_that_is_no_array_is_refused() -> None:
    """A payload that starts as a batch and goes on as something else is a ValueError."""
    payload = bytearray(only_payload(batch(1, "a")))
    payload[frames.BATCH_BYTES - 5] = 0xC1
    with pytest.raises(ValueError, match="malformed"):
        frames.unpack_batch(memoryview(bytes(payload)))


def test_a_frame_too_large_to_be_read_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no reader would take is refused when it is packed, not lost when it is read."""
    monkeypatch.setattr(frames, "LIMIT", 100)
    assert payloads(frames.frame(bytes(100))) == [bytes(100)]
    with pytest.raises(ValueError, match="101 bytes"):
        frames.frame(bytes(101))


def test_a_cut_at_every_byte_leaves_the_frames_before_it() -> None:
    """A buffer cut anywhere yields exactly its whole frames; the rest is waited for, or damage once it is final."""
    parts = [batch(1, "one"), batch(2, "two", "zwei"), batch(3), batch(4, "four")]
    data, ends = b"".join(parts), [sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    for cut in range(len(data) + 1):
        whole = [n for n, end in enumerate(ends) if end <= cut]
        expected = [part[frames.PREFIX_BYTES :] for part in parts[: len(whole)]]
        assert payloads(data[:cut], final=False) == expected
        assert not [each for each in frames.scan(data[:cut]) if isinstance(each, frames.Damage)]
        start = ends[whole[-1]] if whole else 0
        assert damages(data[:cut]) == ([frames.Damage(start, cut)] if start < cut else [])


def test_every_flipped_bit_costs_one_frame_and_is_seen_once() -> None:
    """One flipped bit anywhere is one stretch of damage, within the frame it hit."""
    parts = [batch(1, "one"), batch(2, "two"), batch(3, "three")]
    data = b"".join(parts)
    starts = [sum(map(len, parts[:n])) for n in range(len(parts))]
    for bit in range(len(data) * 8):
        hit = max(n for n, start in enumerate(starts) if start * 8 <= bit)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        expected = [part[frames.PREFIX_BYTES :] for n, part in enumerate(parts) if n != hit]
        assert payloads(bytes(flipped)) == expected
        assert damages(bytes(flipped)) == [frames.Damage(starts[hit], starts[hit] + len(parts[hit]))]


@given(st.lists(st.binary(max_size=40) | st.just(frames.MARK) | st.just(batch(7, "cut")[:-1]), max_size=4))
def test_garbage_between_frames_costs_no_frame(garbage: list[bytes]) -> None:
    """Any bytes between frames, marks and cut frames among them, leave the frames around them whole."""
    good = [batch(number, f"batch {number}") for number in range(len(garbage) + 1)]
    data = good[0] + b"".join(junk + part for junk, part in zip(garbage, good[1:], strict=True))
    assert payloads(data) == [part[frames.PREFIX_BYTES :] for part in good]
    assert len(damages(data)) == sum(map(bool, garbage))


def test_a_frame_inside_a_cut_frame_is_no_frame() -> None:
    """A log that quotes a journal does not come to life when its own frame is torn or still being written."""
    inner = batch(99, "quoted")
    outer = frames.pack_batch(1, [pack(Log(1, None, None, None, None, 9, inner * 3))])
    for cut in range(len(outer)):
        assert payloads(outer[:cut], final=False) == payloads(outer[:cut], final=True) == []


def test_a_frame_inside_a_damaged_frame_is_no_frame() -> None:
    """Nor does it when a bit of that log is flipped: the frame's own length is trusted."""
    inner = batch(99, "quoted")
    outer = bytearray(frames.pack_batch(1, [pack(Log(1, None, None, None, None, 9, inner))]))
    outer[frames.PREFIX_BYTES] ^= 1
    assert payloads(bytes(outer) + batch(2, "next")) == [batch(2, "next")[frames.PREFIX_BYTES :]]


def test_damage_at_the_end_is_told_from_a_frame_that_is_still_written() -> None:
    """A damaged last frame is reported only once another frame follows or the file has ended."""
    broken = bytearray(batch(1, "one"))
    broken[-1] ^= 1
    after = batch(2, "two")
    assert list(frames.scan(bytes(broken))) == []
    assert list(frames.scan(bytes(broken) + after[: frames.PREFIX_BYTES - 1])) == []
    assert list(frames.scan(bytes(broken) + after[: frames.PREFIX_BYTES])) == [frames.Damage(0, len(broken))]
    assert damages(bytes(broken)) == [frames.Damage(0, len(broken))]


def test_zeros_after_a_crash_are_damage() -> None:
    """A file whose last blocks never reached the disk ends in zeros: one stretch of damage, nothing else."""
    data = batch(1, "one") + bytes(5000)
    assert payloads(data) == payloads(batch(1, "one"))
    assert damages(data) == [frames.Damage(len(batch(1, "one")), len(data))]


def test_a_scan_can_start_anywhere() -> None:
    """From the offset behind a frame a scan goes on with the next, in offsets of the buffer."""
    data = batch(1, "one") + batch(2, "two")
    first, second = frames.scan(data)
    assert list(frames.scan(data, first.end)) == [second]
    assert second.start == first.end


def test_keys_that_read_alike_lose_no_value() -> None:
    """A number and the same number as a text are two keys; each value is kept."""
    packed = msgspec.msgpack.encode((METRIC, 1, 2, None, None, {1: 0.1, "1": 0.2, 2.5: 0.4, "2.5": 0.5}))
    record = frames.unpack_record(packed)
    assert isinstance(record, Metric)
    assert sorted(record.values.values()) == [0.1, 0.2, 0.4, 0.5]
    packed = msgspec.msgpack.encode((METRIC, 1, 2, None, None, {1: 0.1, "1": 0.2}))
    record = frames.unpack_record(packed)
    assert isinstance(record, Metric)
    assert record.values == {"1 (int)": 0.1, "1": 0.2}
