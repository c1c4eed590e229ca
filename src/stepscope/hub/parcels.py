"""What the hub's journal holds: parcels, each a batch of one writer on its way into the store."""

import threading
import time
from collections.abc import Callable

import msgspec

from stepscope.model.ports import Batch
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.model.writer import Writer
from stepscope.wire import frames

MOST_BYTES = 16 * 1024 * 1024
"""A parcel that may be parted is not larger."""
MOST_WRITERS = 20_000

_UNPACKABLE = (ValueError, TypeError, OverflowError, RecursionError)


class Parcel(msgspec.Struct, array_like=True, frozen=True):
    """One batch, and which receiver took it."""

    receiver: str
    writer: Writer
    seq: int
    records: list[Metric | Span | Log | Event | Alert]

    def batch(self) -> Batch:
        """The batch inside."""
        return Batch(self.writer, self.seq, list(self.records))


class Numbers:
    """Numbers batches for clients that do not: in a row for each writer, and never the same twice.

    The first number is the time in milliseconds, shifted, so nothing need be remembered from one life of the
    hub to the next, even if the clock is set back: no life gives out a million numbers in each millisecond.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._following: dict[str, int] = {}

    def take(self, writer: str) -> int:
        """The next number of a writer."""
        with self._lock:
            number = self._following.get(writer)
            if number is None:
                if len(self._following) >= MOST_WRITERS:
                    self._following.clear()
                number = self._clock() // 1_000_000 << 20
            self._following[writer] = number + 1
            return number


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parcel).decode


def pack(parcel: Parcel) -> bytes | None:
    """Pack a parcel; None when a record cannot be packed or all are more than a frame can hold."""
    try:
        packed = _encode(parcel)
    except _UNPACKABLE:
        return None
    return packed if len(packed) < frames.LIMIT - frames.BATCH_BYTES else None


Packed = tuple[list[bytes], int]
"""Parcels, and how many records cannot be packed."""


def pack_parts(receiver: str, writer: Writer, records: list[Record], numbers: Numbers) -> Packed:
    """Pack records in as many parcels as they need; also count those that cannot be packed."""
    packed = pack(Parcel(receiver, writer, numbers.take(writer.id), records))
    if packed is not None and len(packed) <= MOST_BYTES:
        return [packed], 0
    if len(records) < 2:
        return ([packed], 0) if packed is not None else ([], len(records))
    middle = len(records) // 2
    first, lost = pack_parts(receiver, writer, records[:middle], numbers)
    second, lost_too = pack_parts(receiver, writer, records[middle:], numbers)
    return first + second, lost + lost_too


def pack_whole(parcel: Parcel) -> tuple[bytes, int]:
    """Pack a parcel that keeps its number, without the records that cannot be packed, and count those."""
    packed = pack(parcel)
    if packed is not None:
        return packed, 0
    kept = [record for record in parcel.records if _fits(record)]
    packed = pack(msgspec.structs.replace(parcel, records=kept))
    if packed is None:
        kept, packed = [], _encode(msgspec.structs.replace(parcel, records=[]))
    return packed, len(parcel.records) - len(kept)


def _fits(record: Record) -> bool:
    try:
        return len(_encode(record)) <= MOST_BYTES
    except _UNPACKABLE:
        return False


def unpack(payload: memoryview) -> tuple[int, list[Parcel], int]:
    """Read a batch of the hub's journal, as `frames.unpack_batch` reads one of a trainer's."""
    seq = frames.batch_seq(payload)
    parcels: list[Parcel] = []
    bad = 0
    for raw in frames.raw_records(payload[frames.BATCH_BYTES - 5 :]):
        try:
            parcels.append(_decode(raw))
        except (ValueError, RecursionError):
            bad += 1
    return seq, parcels, bad
