"""Journal frames: mark, length, two CRC32, msgpack; a damaged frame costs itself and nothing else.

    frame   = prefix (16 bytes) | payload
    prefix  = MARK (4 bytes) | length | crc32 of the payload | crc32 of the 12 bytes before  (each u32 BE)
    payload = [0, writer]  the head, first in each segment
            | [1, seq, [record, ...]]  a batch

The prefix has a CRC of its own, so that a frame still being written differs from one whose length is damaged.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from stepscope.model.ports import Writer
from stepscope.model.records import LOG, METRIC, SPAN, Alert, Event, Log, Metric, Record, Span

MARK = b"\xf7\x53\x53\x0a"
LIMIT = 64 * 1024 * 1024
"""No payload is larger; a length beyond it is damage."""

_START = struct.Struct(">4sII")
_PREFIX = struct.Struct(">4sIII")
_BATCH = struct.Struct(">BBBQBI")
PREFIX_BYTES = _PREFIX.size
BATCH_BYTES = _BATCH.size
"""The bytes of a batch before its first record; the last five are the header of the array of records."""

_encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(tuple[int, Writer])
_records = msgspec.msgpack.Decoder(list[Metric | Span | Log | Event | Alert])
_record: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Metric | Span | Log | Event | Alert)
_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])
_row = msgspec.msgpack.Decoder(list[Any])


_NOTHING = msgspec.Raw()


class MetricStart(msgspec.Struct, array_like=True, tag=METRIC, gc=False):
    """The first fields of a metric."""

    time: int
    step: int | None
    axis: str | None
    category: str | None


class SpanStart(msgspec.Struct, array_like=True, tag=SPAN, gc=False):
    """The first fields of a span."""

    time: int
    duration: int | None
    step: int | None
    axis: str | None


class LogStart(msgspec.Struct, array_like=True, tag=LOG, gc=False):
    """A log record of which the times and the step are decoded."""

    time: int
    step: int | None
    axis: str | None
    trace_id: msgspec.Raw
    span_id: msgspec.Raw
    severity: int
    body: msgspec.Raw
    attrs: msgspec.Raw = _NOTHING
    scope: msgspec.Raw = _NOTHING
    observed: int = 0


_starts = msgspec.msgpack.Decoder(list[MetricStart | SpanStart | LogStart | Event | Alert])


class Prefix(NamedTuple):
    """The prefix of a payload: where the payload ends, and its checksum."""

    end: int
    crc: int


class Frame(NamedTuple):
    """One whole frame found in a buffer, `end` being the offset behind it."""

    start: int
    end: int
    payload: memoryview
    crc: int


class Damage(NamedTuple):
    """Bytes between two offsets that are not a frame."""

    start: int
    end: int


def frame(payload: bytes) -> bytes:
    """Wrap a payload; ValueError when it is larger than a reader accepts."""
    if len(payload) > LIMIT:
        raise ValueError(f"a frame of {len(payload)} bytes: no more than {LIMIT} can be read back")
    start = _START.pack(MARK, len(payload), zlib.crc32(payload))
    return b"".join((start, zlib.crc32(start).to_bytes(4, "big"), payload))


def pack_head(writer: Writer) -> bytes:
    """Frame the identity of a writer."""
    return frame(_encode((0, writer)))


def pack_batch(seq: int, records: Sequence[bytes | msgspec.Raw]) -> bytes:
    """Frame records that are packed already."""
    head = _BATCH.pack(0x93, 1, 0xCF, seq, 0xDD, len(records))
    return frame(b"".join((head, *records)))


def is_head(payload: memoryview) -> bool:
    """Return whether a payload is a head, not a batch."""
    return len(payload) > 1 and payload[0] == 0x92 and payload[1] == 0


def unpack_head(payload: memoryview) -> Writer:
    """Read the identity of a writer; ValueError when it is not one."""
    try:
        return _head.decode(payload)[1]
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def batch_seq(payload: memoryview) -> int:
    """Read the sequence number of a batch without its records; ValueError when it is not a batch."""
    if len(payload) < BATCH_BYTES or payload[0] != 0x93 or payload[1] != 1:
        raise ValueError("not a batch")
    return int(_BATCH.unpack_from(payload)[3])


def unpack_batch(payload: memoryview) -> tuple[int, list[Record], int]:
    """Read a batch: its sequence number, its records, and how many records could not be read.

    ValueError when it is not a batch.
    """
    seq = batch_seq(payload)
    body = payload[BATCH_BYTES - 5 :]
    try:
        return seq, _records.decode(body), 0
    except (ValueError, RecursionError):
        return seq, *_one_by_one(body)


def unpack_raw_batch(payload: memoryview) -> tuple[int, list[Any], int]:
    """Read a batch like `unpack_batch`, but leave its records packed; none of them counts as unreadable."""
    return batch_seq(payload), raw_records(payload[BATCH_BYTES - 5 :]), 0


def unpack_starts(payload: memoryview) -> tuple[int, list[Any], int]:
    """Read a batch like `unpack_batch`, but of metrics, spans and logs only the first fields, which is quicker."""
    try:
        return batch_seq(payload), _starts.decode(payload[BATCH_BYTES - 5 :]), 0
    except (msgspec.ValidationError, RecursionError):
        return unpack_batch(payload)


def _one_by_one(body: memoryview) -> tuple[list[Record], int]:
    records: list[Record] = []
    bad = 0
    for raw in raw_records(body):
        try:
            records.append(unpack_record(raw))
        except ValueError:
            bad += 1
    return records, bad


def raw_records(body: memoryview) -> list[msgspec.Raw]:
    """Split an array of packed records without reading them; ValueError when it is not an array."""
    try:
        return _raws.decode(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def unpack_record(packed: bytes | msgspec.Raw) -> Record:
    """Read one record; ValueError for anything else.

    The trainer packs a dict of numbers as it is given, so it is here that keys that are no text become text,
    and that truth values among the numbers of a metric become numbers.
    """
    try:
        try:
            return _record.decode(packed)
        except ValueError:
            return _record.decode(_encode(_mended(_row.decode(packed))))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _mended(row: list[Any]) -> list[Any]:
    row = [_with_text_keys(field) for field in row]
    if len(row) > 5 and row[0] == METRIC and isinstance(row[5], dict):
        row[5] = {key: int(value) if isinstance(value, bool) else value for key, value in row[5].items()}
    return row


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        taken = {key for key in value if isinstance(key, str)}
        return {_text_key(key, taken): _with_text_keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(inner) for inner in value]
    return value


def _text_key(key: Any, taken: set[str]) -> str:
    """The text of a key; one that is not text and collides with another gets its type appended."""
    if isinstance(key, str):
        return key
    name = str(key)
    while name in taken:
        name = f"{name} ({type(key).__name__})"
    taken.add(name)
    return name


def scan(data: bytes, offset: int = 0, *, final: bool = False) -> Iterator[Frame | Damage]:
    """Yield the frames of a buffer in order, and the damage between them.

    What is left at the end is not yielded while more may come and show what it is. With `final` nothing more
    can, and it is reported as damage. Nothing inside a frame that was cut off is ever taken for a frame.
    """
    view = memoryview(data)
    while offset < len(view):
        prefix = prefix_at(view, offset)
        if prefix is not None:
            if prefix.end > len(view):
                break
            payload = view[offset + PREFIX_BYTES : prefix.end]
            if zlib.crc32(payload) == prefix.crc:
                yield Frame(offset, prefix.end, payload, prefix.crc)
                offset = prefix.end
                continue
        following = _next_start(data, view, offset, prefix)
        if following is None:
            break
        yield Damage(offset, following)
        offset = following
    if final and offset < len(view):
        yield Damage(offset, len(view))


def prefix_at(data: bytes | memoryview, offset: int = 0) -> Prefix | None:
    """Read the prefix of the frame that starts at an offset; None when none does."""
    if len(data) - offset < PREFIX_BYTES:
        return None
    mark, length, crc, check = _PREFIX.unpack_from(data, offset)
    if mark != MARK or length > LIMIT or zlib.crc32(data[offset : offset + _START.size]) != check:
        return None
    return Prefix(offset + PREFIX_BYTES + length, crc)


def _next_start(data: bytes, view: memoryview, offset: int, damaged: Prefix | None) -> int | None:
    """Find where the next frame starts: right behind the damaged one if only its payload is damaged."""
    if damaged is not None:
        if len(view) - damaged.end < PREFIX_BYTES:
            return None
        if prefix_at(view, damaged.end) is not None:
            return damaged.end
    while (offset := data.find(MARK, offset + 1)) >= 0:
        if prefix_at(view, offset) is not None:
            return offset
    return None
