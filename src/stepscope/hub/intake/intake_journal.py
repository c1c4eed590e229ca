"""The intake journal: accepted records are synced to disk before they are acknowledged, many requests per fsync."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from stepscope.journal import layout
from stepscope.journal.segments import SEGMENT_BYTES, Journal
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.wire import frames

MEGA = 1024 * 1024
GROUP_BYTES = 8 * MEGA
FRAME_BYTES = 32 * MEGA
_SPACE_SECONDS = 1.0
_LEAST, _MOST = -(2**63), 2**64


Mark = tuple[int, int]
"""A position in the hub's journal: the segment, and the offset in it."""


class StoreProgress:
    """Two positions in the hub's journal: how far it is written, and how far it is stored. Safe from any thread."""

    def __init__(
        self, written: Mark = (0, 0), stored: Mark = (0, 0), on_wait: Callable[[], object] = lambda: None
    ) -> None:
        self._lock = threading.Lock()
        self._written = max(written, stored)
        self._stored = stored
        self._waiting: list[tuple[Mark, Future[None]]] = []
        self._on_wait = on_wait
        """Called when someone begins to wait for a position."""

    @property
    def written(self) -> Mark:
        """How far the journal is written; everything acknowledged so far is before it."""
        return self._written

    def is_stored(self, mark: Mark) -> bool:
        """Return whether everything before a position is stored."""
        return self._stored >= mark

    def wrote(self, mark: Mark) -> None:
        """Set how far the intake has written."""
        self._written = mark

    def store(self, mark: Mark) -> None:
        """Set how far the store is; completes the futures of earlier positions."""
        with self._lock:
            self._stored = max(mark, self._stored)
            done = [future for wanted, future in self._waiting if wanted <= self._stored]
            self._waiting = [each for each in self._waiting if each[0] > self._stored]
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def after(self, mark: Mark) -> "Future[None]":
        """Return a future that completes when everything before a position is stored."""
        future: Future[None] = Future()
        with self._lock:
            if self._stored < mark:
                self._waiting.append((mark, future))
            else:
                future.set_result(None)
        if not future.done():
            self._on_wait()
        return future


class Intake:
    """Accepts packed batches from any thread; its own thread writes and syncs them in groups."""

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        *,
        most_bytes: int = 4096 * MEGA,
        most_waiting: int = 256 * MEGA,
        spare_bytes: int = 64 * MEGA,
        written: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        self.folder = folder
        self._check = check
        """Raises Retry when the folder was replaced or removed."""
        self._written = written
        """Called after each group is synced."""
        self.progress = StoreProgress(_end_of(folder), on_wait=on_wait)
        """How far the journal is written and stored."""
        self._journal = Journal(folder, writer, segment_bytes=min(SEGMENT_BYTES, most_bytes // 8), fsync=True)
        self._most_bytes, self._most_waiting, self._spare_bytes = most_bytes, most_waiting, spare_bytes
        self._changed = threading.Condition()
        self._waiting: list[tuple[Sequence[bytes], int, Future[None]]] = []
        self._waiting_bytes = 0
        self._closing = False
        self._space: tuple[float, bool] = (0.0, True)
        self.size = 0
        """Bytes of the journal on disk."""
        self.groups = 0
        self.problem = ""
        """Why nothing can be written; empty when it can."""
        self.measure()
        self._thread = threading.Thread(target=self._loop, name="stepscope-intake", daemon=True)
        self._thread.start()

    def submit(self, batches: Sequence[bytes]) -> "Future[None]":
        """Queue packed batches; the future completes when they are synced, or with Retry. Never raises."""
        future: Future[None] = Future()
        size = sum(map(len, batches))
        refusal = self._refusal(size)
        with self._changed:
            if refusal is None and self._closing:
                refusal = Retry("the hub is shutting down", after=2.0)
            if refusal is None and batches:
                self._waiting.append((batches, size, future))
                self._waiting_bytes += size
                self._changed.notify()
                return future
        if refusal is None:
            future.set_result(None)
        else:
            future.set_exception(refusal)
        return future

    @property
    def waiting(self) -> int:
        """Bytes queued and not yet written."""
        return self._waiting_bytes

    def _refusal(self, size: int) -> Retry | None:
        if self.size + self._waiting_bytes + size > self._most_bytes:
            return Retry("the hub's journal is full: the store does not keep up", after=5.0)
        if self._waiting_bytes + size > self._most_waiting:
            return Retry("too many requests at once", after=1.0)
        if not self._has_space():
            return Retry("the hub's disk is full", after=10.0)
        return None

    def _has_space(self) -> bool:
        now = time.monotonic()
        if now >= self._space[0]:
            try:
                places = (self.folder, *self.folder.parents)
                found = os.statvfs(next(path for path in places if path.exists()))
                self._space = (now + _SPACE_SECONDS, found.f_bavail * found.f_frsize > self._spare_bytes)
            except OSError:
                self._space = (now + _SPACE_SECONDS, True)
        return self._space[1]

    def measure(self) -> None:
        """Measure the journal's size; the pump calls this after removing stored segments."""
        size = 0
        for path in layout.list_segments(self.folder):
            with contextlib.suppress(OSError):
                size += path.stat().st_size
        self.size = size

    def close(self) -> None:
        """Write what is queued, accept nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._journal.close()

    def _loop(self) -> None:
        while group := self._take():
            self._write(group)

    def _take(self) -> list[tuple[Sequence[bytes], int, "Future[None]"]]:
        """Wait for requests and collect one group; empty when closed and all is written."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            total = count = 0
            for _, size, _ in self._waiting:
                if count and total + size > GROUP_BYTES:
                    break
                total, count = total + size, count + 1
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            return group

    def _write(self, group: Sequence[tuple[Sequence[bytes], int, "Future[None]"]]) -> None:
        refusal: Retry | None = None
        try:
            self._check()  # the journal would recreate a folder that is gone, and its records would be lost
            for part in frames_of([batch for batches, _, _ in group for batch in batches]):
                self.size += self._journal.append(part)
            self._check()
            self.progress.wrote(self._journal.end)
        except Retry as error:
            refusal = error
        except Exception as error:  # whatever it is: a client that retries loses nothing
            refusal = Retry(f"the hub's journal cannot be written: {error}", after=5.0)
        self.problem = str(refusal or "")
        with self._changed:
            self._waiting_bytes -= sum(size for _, size, _ in group)
        self.groups += 1
        for _, _, future in group:
            if future.set_running_or_notify_cancel():
                future.set_exception(refusal) if refusal else future.set_result(None)
        if refusal is None:
            self._written()


def _end_of(folder: Path) -> tuple[int, int]:
    """The end position of the journal of an earlier process."""
    segments = layout.list_segments(folder)
    with contextlib.suppress(OSError):
        return (int(segments[-1].stem), segments[-1].stat().st_size) if segments else (0, 0)
    return 0, 0


def frames_of(batches: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split batches so that each part fits in a frame."""
    part: list[bytes] = []
    size = 0
    for batch in batches:
        if part and size + len(batch) > FRAME_BYTES:
            yield part
            part, size = [], 0
        part.append(batch)
        size += len(batch)
    if part:
        yield part


MAX_BYTES = 16 * 1024 * 1024
"""The largest size of a batch that may be split."""
MAX_WRITERS = 20_000

_UNPACKABLE = (ValueError, TypeError, OverflowError, RecursionError)


class IntakeBatch(msgspec.Struct, array_like=True, frozen=True):
    """One batch, and the receiver that took it."""

    receiver: str
    writer: Writer
    seq: int
    records: list[Metric | Span | Log | Event | Alert]
    request: int = 0
    """See `Batch.request`."""

    @classmethod
    def of(cls, receiver: str, batch: Batch) -> "IntakeBatch":
        """Make one of a batch."""
        return cls(receiver, batch.writer, batch.seq, list(batch.records), batch.request)

    def batch(self) -> Batch:
        """The batch itself."""
        return Batch(self.writer, self.seq, list(self.records), self.request)


class SequenceNumbers:
    """Sequence numbers for batches of clients that send none: consecutive per writer, never reused.

    The first number is the time in milliseconds, shifted, so nothing need be kept across restarts of the
    hub, even if the clock is set back: no process uses a million numbers per millisecond.
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
                if len(self._following) >= MAX_WRITERS:
                    self._following.clear()
                number = self._clock() // 1_000_000 << 20
            self._following[writer] = number + 1
            return number


def shifted_clock(hub: str) -> Callable[[], int]:
    """A clock that is up to an hour ahead, for each hub differently.

    Hubs on one store that number the batches of the same client must not begin with the same number.
    """
    ahead = int(hub, 16) % 3_600_000 * 1_000_000
    return lambda: time.time_ns() + ahead


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IntakeBatch).decode


def pack(batch: IntakeBatch) -> bytes | None:
    """Pack a batch; None when a record cannot be packed or all exceed the size of a frame."""
    try:
        packed = _encode(batch)
    except _UNPACKABLE:
        try:
            packed = _encode(msgspec.structs.replace(batch, records=[_packable(record) for record in batch.records]))
        except _UNPACKABLE:
            return None
    return packed if len(packed) < frames.LIMIT - frames.BATCH_BYTES else None


Packed = tuple[list[bytes], int]
"""Packed batches, and how many records could not be packed."""


def pack_parts(
    receiver: str,
    writer: Writer,
    records: list[Record],
    numbers: SequenceNumbers,
    request: Callable[[], int] = lambda: 0,
) -> Packed:
    """Pack records in as many batches as needed; also count those that cannot be packed.

    `request` gives each batch of a request its number, the same whenever the same bytes are taken.
    """
    packed = pack(IntakeBatch(receiver, writer, numbers.take(writer.id), records, request()))
    if packed is not None and len(packed) <= MAX_BYTES:
        return [packed], 0
    if len(records) < 2:
        return ([packed], 0) if packed is not None else ([], len(records))
    middle = len(records) // 2
    first, lost = pack_parts(receiver, writer, records[:middle], numbers, request)
    second, lost_too = pack_parts(receiver, writer, records[middle:], numbers, request)
    return first + second, lost + lost_too


def pack_whole(batch: IntakeBatch) -> tuple[bytes | None, int]:
    """Pack a batch under its sequence number without the records that cannot be packed, and count those.

    None when its writer cannot be packed: one of its texts has half a surrogate pair.
    """
    packed = pack(batch)
    if packed is not None:
        return packed, 0
    kept = [record for record in map(_packable, batch.records) if _fits(record)]
    packed = pack(msgspec.structs.replace(batch, records=kept))
    if packed is None:
        kept, packed = [], pack(msgspec.structs.replace(batch, records=[]))
    return packed, len(batch.records) - len(kept)


def _fits(record: Record) -> bool:
    try:
        return len(_encode(record)) <= MAX_BYTES
    except _UNPACKABLE:
        return False


def unpack(payload: memoryview) -> tuple[int, list[IntakeBatch], int]:
    """Read a batch of the hub's journal, as `frames.unpack_batch` reads one of a trainer's."""
    seq = frames.batch_seq(payload)
    batches: list[IntakeBatch] = []
    bad = 0
    for raw in frames.raw_records(payload[frames.BATCH_BYTES - 5 :]):
        try:
            batches.append(_decode(raw))
        except (ValueError, RecursionError):
            bad += 1
    return seq, batches, bad


def _packable(value: msgspec.Struct) -> Any:
    """Copy a record so that MessagePack can hold it: integers beyond 64 bits and half surrogate pairs become text.

    Texts, attributes and bodies are changed, not times and steps.
    """
    changed = {name: _field(value, name) for name in value.__struct_fields__}
    return msgspec.structs.replace(value, **changed)


def _field(value: msgspec.Struct, name: str) -> Any:
    found = getattr(value, name)
    if isinstance(value, Metric) and name == "values":
        return {_text(key): _number(each) for key, each in found.items()}
    return found if type(found) is int and name != "body" else _nested(found)


def _nested(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, msgspec.Struct):
        return _packable(value)
    if isinstance(value, dict):
        return {_nested(key): _nested(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_nested(inner) for inner in value)
    return str(value) if type(value) is int and not _LEAST <= value < _MOST else value


def _number(value: Any) -> Any:
    if type(value) is not int or _LEAST <= value < _MOST:
        return _nested(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
