"""Moves batches of trainers' journals and the hub's own into the store: one thread, about two commits a second."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import unpack
from stepscope.hub.store.engine import Damaged, EngineError
from stepscope.hub.store.write.metric_rows import as_rows, metric_rows
from stepscope.hub.threads import Topic
from stepscope.journal import layout
from stepscope.journal.following import Cursors, Following, bytes_behind
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import READ_BYTES, Position, Tail
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Alert, Metric, Record, Span
from stepscope.pump import Progress, Pump
from stepscope.wire import frames


class ReceivedBatch(NamedTuple):
    """A batch on its way into the store, and which receiver took it."""

    receiver: str
    batch: Batch
    bytes: int = 0
    """About how much memory its records take; known once it is stored."""


CURSOR = "intake"
GROUP_RECORDS = 50_000
"""The size of a group in records, approximately."""
SAVE_SECONDS = 2.0
"""Seconds between two saves of the cursors; the store skips what is read again after a crash."""


class Source(Protocol):
    """A source of batches."""

    def read(self, limit: int) -> list[ReceivedBatch]:
        """Return some batches, about `limit` bytes at most; none when there is nothing more now."""

    def settle(self) -> bool:
        """Mark everything read as stored; return whether anything changed."""

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""


class GroupReader:
    """Sources read in turn, one group at a time; a source that fails delays no other. One thread uses it."""

    def __init__(
        self,
        sources: Sequence[Source],
        cursors: Cursors,
        counters: Counters,
        *,
        group_records: int = GROUP_RECORDS,
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[], None] = lambda: None,
        is_deleted: Callable[[Batch], bool] = lambda batch: False,
    ) -> None:
        self._check = check
        """Raises Retry when the folder of the cursors is gone."""
        self._is_deleted = is_deleted
        """Returns whether a batch is of a deleted run; such a batch is dropped and counted."""
        self._sources, self._cursors, self._counters = sources, cursors, counters
        self._group_records, self._clock = group_records, clock
        self._receivers: dict[tuple[str, str, int], str] = {}
        self._unsaved = False
        self._saved_at = float("-inf")
        self.number = 0
        """The number of the current group."""
        self.full = False
        """Whether the last group was full, so that more may be waiting."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next group; raise the error of a source only when no other has anything."""
        batches: list[Batch] = []
        self.number += 1
        error: Exception | None = None
        count, lively = 0, list(self._sources)
        while lively and count < self._group_records:
            source = lively.pop(0)
            try:
                found = source.read(min(limit, READ_BYTES))
            except Exception as failure:
                self._counters.add("retried", "pump", reason=type(failure).__name__)
                error = failure
                continue
            for item in found:
                if self._is_deleted(item.batch):
                    self._counters.add("dropped", item.receiver, len(item.batch.records), "deleted run")
                    batches.append(item.batch._replace(records=[]))
                    continue
                self._receivers[item.batch.key] = item.receiver
                batches.append(item.batch)
                count += len(item.batch.records)
            if found and limit >= READ_BYTES:
                lively.append(source)
        self.full = count >= self._group_records
        if error is not None and not batches:
            raise error
        return batches

    def receiver(self, batch: Batch) -> str:
        """The receiver of a batch of the current group."""
        return self._receivers.get(batch.key, "")

    def settle(self) -> None:
        """Mark the group as stored; OSError when the cursors could not be saved, which the next call retries."""
        self._receivers.clear()
        for source in self._sources:
            self._unsaved |= source.settle()
        if self._clock() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def rewind(self) -> None:
        """Discard the current group; it is read again."""
        self._receivers.clear()
        for source in self._sources:
            source.rewind()

    def save(self) -> None:
        """Save the cursors if they moved; Retry when their folder is gone."""
        if self._unsaved:
            self._check()
            self._cursors.save()
            self._unsaved, self._saved_at = False, self._clock()


class IntakeReader:
    """Reads what the intake wrote. One thread reads; what was read counts as stored only after `settle`."""

    def __init__(
        self,
        folder: Path,
        cursors: Cursors,
        counters: Counters,
        removed: Callable[[], None] = lambda: None,
        stored: Callable[[tuple[int, int]], None] = lambda position: None,
        cursor: str = CURSOR,
    ) -> None:
        self._stored = stored
        """Called with the position before which everything is stored."""
        self._cursors, self._cursor = cursors, cursor
        self._counters = counters
        self._removed = removed
        self._folder = folder
        self._tail = self._tail_from_cursor()
        stored((self._tail.position.segment, self._tail.position.offset))

    def _tail_from_cursor(self) -> Tail:
        return Tail(self._folder, self._cursors.get(self._cursor), unpack)

    def read(self, limit: int = READ_BYTES) -> list[ReceivedBatch]:
        """Return the next batches, about `limit` bytes at most; none at the end."""
        found: list[Any] = [received for batch in self._tail.read(limit) for received in batch.records]
        return [ReceivedBatch(received.receiver, received.batch()) for received in found]

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""
        self._tail = self._tail_from_cursor()

    def settle(self) -> bool:
        """Move the cursor, and remove segments without unread batches; return whether the cursor moved.

        The newest segment stays, because sequence numbers continue from its batches.
        """
        self._counters.add("dropped", "intake", sum(self._tail.take_damage()), "damaged in the hub's journal")
        position, before = self._tail.position, self._cursors.get(self._cursor).segment
        if position == self._cursors.get(self._cursor):
            return False
        self._stored((position.segment, position.offset))
        self._cursors.set(self._cursor, position)
        if position.segment > before:
            self._remove(position.segment)
        return True

    def _remove(self, least: int) -> None:
        self._cursors.save()  # or a crash would look for what is gone
        for path in layout.list_segments(self._folder):
            if int(path.stem) < least:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._removed()

    def bytes_behind(self) -> int:
        """Count the bytes not yet stored."""
        return bytes_behind(self._folder, self._cursors.get(self._cursor))


FOLDER = "folder"


def unpack_columns(payload: memoryview) -> tuple[int, list[Any], int]:
    """Read a batch like `frames.unpack_batch`, but metrics of one shape as columns: a record costs five times more."""
    rows = metric_rows(payload[frames.BATCH_BYTES - 5 :])
    if rows is None:
        return frames.unpack_batch(payload)
    return frames.batch_seq(payload), cast(list[Any], rows), 0


class FolderReceiver:
    """Batches from trainers' journals. One thread reads; what was read counts as stored only after `settle`."""

    def __init__(
        self,
        home: Path,
        cursors: Cursors,
        counters: Counters,
        mask: Callable[[Batch], Batch] = lambda batch: batch,
        clock: Callable[[], float] = time.time,
        *,
        only: str | None = None,
    ) -> None:
        runs = None if only is None else lambda: (only,)
        self._following = Following(home, cursors, runs=runs, unpack=unpack_columns, clock=clock)
        self._counters, self._mask = counters, mask
        self.next_due = self._following.next_due
        self.unread = self._following.unread_now
        self.unread_of = self._following.unread_of
        self.rewind = self._following.rewind

    @property
    def writers(self) -> int:
        """How many writers are followed."""
        return self._following.writers

    @property
    def torn(self) -> Mapping[str, tuple[Position, int]]:
        """Where a journal ends in a torn frame, by writer: the position, and the size of that segment then."""
        return self._following.torn

    def read(self, limit: int = READ_BYTES) -> list[ReceivedBatch]:
        """Return the next batches that are due, about `limit` bytes at most; none when none are."""
        batches = self._following.read(limit)
        try:
            return [ReceivedBatch(FOLDER, self._mask(batch)) for batch in batches]
        except Exception:  # raised again: without the rewind these batches would count as stored
            self.rewind()
            raise

    def settle(self) -> bool:
        """Move the cursors to what was read; return whether any moved."""
        following = self._following
        damaged, unreadable = following.damaged, following.unreadable
        moved = not following.is_settled
        following.settle()
        self._counters.add("dropped", FOLDER, following.damaged - damaged, "damaged frame")
        self._counters.add("rejected", FOLDER, following.unreadable - unreadable, "unreadable record")
        return moved


RECORD_BYTES = 300
"""What a record takes without its values."""
_ITEM_BYTES = 32
"""A number, or a text without its letters."""
_SAMPLED = 8
_PLAIN = frozenset((int, float, bool, type(None)))


def measured(items: Iterable[ReceivedBatch]) -> list[ReceivedBatch]:
    """Return batches with the memory that their records take."""
    return [item._replace(bytes=held_bytes(item.batch.records)) for item in items]


def held_bytes(records: Sequence[Record]) -> int:
    """Estimate how much memory records take."""
    size = RECORD_BYTES * len(records)
    if as_rows(records) is not None:
        return size
    metrics = 0
    for record in records:
        if isinstance(record, Metric):
            metrics += 1
            continue
        if record.attrs:
            size += _of_values(record.attrs.values())
        if isinstance(record, Span):
            if record.message or record.events or record.links:
                size += len(record.message) + _of_values(record.events) + _of_values(record.links)
        elif isinstance(record, Alert):
            size += len(record.message)
        elif record.body is not None:
            size += _of_values((record.body,))
    return size + _of_metrics(records, metrics) if metrics else size


def _of_metrics(records: Sequence[Record], count: int) -> int:
    """Estimate what metrics hold by some of them: those of one batch are alike, and there are many."""
    every = max(1, len(records) // _SAMPLED)
    some = [record for record in records[::every] if type(record) is Metric]
    found = sum([_of_values(each.values.values()) + _of_values(each.attrs.values()) for each in some])
    return found * count // max(len(some), 1)


def _of_values(values: Iterable[Any]) -> int:
    size = 0
    for value in values:
        kind = type(value)
        size += _ITEM_BYTES
        if kind is str or kind is bytes:
            size += len(value)
        elif kind is dict:
            size += _of_values(value) + _of_values(value.values())
        elif kind is list or kind is tuple:
            size += _of_values(value)
        elif kind not in _PLAIN:
            size += _of_values([getattr(value, name) for name in getattr(value, "__struct_fields__", ())])
    return size


GROUP_BYTES = 256 * 1024 * 1024
"""More than a full group of records has, which is limited by their number."""
PACE_SECONDS = 0.5
WATCHED_PACE_SECONDS = 1.5
"""The same while nobody reads where users have alert rules, which see each record within about 2 s."""
QUIET_SECONDS = 15.0
"""Time after the last request at which nobody counts as reading; the page asks more often."""
LOOK_SECONDS = 4.0
"""How often, at most, it is looked at whether the machine is busy."""
GIVE_UP_SECONDS = 2.0
"""At shutdown, a store whose next retry is this far away is not waited for: the journals keep the rest."""
_RATE_SECONDS = 30.0
_STORED = {"written": "stored"}
"""In the hub, written means acknowledged."""


class Readers:
    """The requests that read, in progress and recent. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_progress = 0
        self._last = float("-inf")
        self._subscriber: Callable[[], object] = lambda: None

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function at each request; it must be quick."""
        self._subscriber = subscriber

    def note(self) -> None:
        """Note a request that reads."""
        self._last = self._clock()
        self._subscriber()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Note a request for as long as it takes: a live stream may take hours."""
        with self._lock:
            self._in_progress += 1
        self.note()
        try:
            yield
        finally:
            with self._lock:
                self._in_progress -= 1
            self._last = self._clock()

    def any(self) -> bool:
        """Return whether anyone reads, or did until recently."""
        return self._in_progress > 0 or self._clock() - self._last < QUIET_SECONDS


class StorePump:
    """Drives one pump from the journals into the store; it survives every error, and the journals keep the rest."""

    def __init__(
        self,
        sink: Sink,
        groups: GroupReader,
        quarantine: Quarantine,
        counters: Counters,
        *,
        idle: Callable[[], float] = lambda: PACE_SECONDS,
        pace: float = PACE_SECONDS,
        quiet_pace: Callable[[], float] = lambda: PACE_SECONDS,
        is_due: Callable[[], bool] = lambda: False,
        readers: Readers | None = None,
        passed_on: Callable[[Batch], str] | None = None,
        on_safe: Callable[[Sequence[ReceivedBatch]], object] | None = None,
        stored: Topic[Sequence[ReceivedBatch]] | None = None,
        wake: threading.Event | None = None,
    ) -> None:
        self._groups, self._counters = groups, counters
        self._passed_on = passed_on
        """What became of a batch that is safe and not stored here: `forwarded`, `deferred`, `retried`; else empty.
        None where every batch is stored here."""
        self._committed = True
        self._pump = Pump(sink, groups, quarantine, group_bytes=GROUP_BYTES, on_outcome=self._on_outcome)
        self._idle = idle
        self.pace = pace
        """Seconds between two commits."""
        self._quiet_pace = quiet_pace
        """The same while nobody reads..."""
        self._quiet_seconds = PACE_SECONDS
        self._is_due = is_due
        """... unless there is a reason to store at once."""
        self._readers = readers or Readers()
        self._read = threading.Event()
        self._readers.subscribe(self._read.set)
        self.stored = stored or Topic()
        """What was just stored, announced on the pump's thread."""
        self._on_safe = on_safe
        """Called there with what was stored, forwarded or deferred, before the journal counts as stored."""
        self._wake, self._halt = wake or threading.Event(), threading.Event()
        """The first is set when there is something to store."""
        self._unsaved = ""
        self._deadline = 0.0
        self._began = float("-inf")
        self._caught_up_at = time.monotonic()
        self._complete = threading.Condition()
        self._complete_until = float("-inf")
        """What was written before this time is stored."""
        self._has_caught_up = False
        self._rates: deque[tuple[float, int]] = deque()
        """How many records were stored when, lately."""
        self._thread = threading.Thread(target=self._loop, name="stepscope-pump", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Store what is there within the time limit, save the cursors and stop."""
        self._deadline = time.monotonic() + seconds
        self._halt.set()
        self._read.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds + 5.0)

    @property
    def problem(self) -> str:
        """Why the store accepts nothing just now; empty when it does."""
        return self._unsaved or self._pump.problem

    def is_busy(self) -> bool:
        """Return whether more was waiting than one group holds."""
        return self._groups.full

    def is_reading(self) -> bool:
        """Return whether journals are still being read: since the start, or because more was waiting."""
        return not self._has_caught_up or self.is_busy()

    def seconds_behind(self) -> float:
        """Seconds since everything that was read was stored."""
        return max(time.monotonic() - self._caught_up_at - self._quiet_seconds - PACE_SECONDS, 0.0)

    def catch_up(self, seconds: float) -> bool:
        """Wait until what is written now is stored, for so long at most; return whether it is."""
        now = time.monotonic()
        if not self._thread.is_alive():
            return False
        self._wake.set()
        with self._complete:
            return self._complete.wait_for(lambda: self._complete_until >= now or self._halt.is_set(), seconds)

    def rate(self) -> float:
        """Records stored per second, over the last half minute."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(count for moment, count in list(self._rates) if moment >= since) / _RATE_SECONDS

    def _loop(self) -> None:
        while not self._halt.is_set():
            progress = self._step()
            if not (progress.moved and self._groups.full and not progress.wait):
                self._rest(progress.wait)
        self._pump.wake()
        while (left := self._deadline - time.monotonic()) > 0:
            progress = self._step()
            gives_up = self._pump.problem and progress.wait >= GIVE_UP_SECONDS
            if gives_up or progress.wait >= left or (self._pump.at_end and not progress.moved):
                break
            time.sleep(progress.wait)
        self._end()

    def _step(self) -> Progress:
        began = time.monotonic()
        progress = self._pump.step()
        if progress.moved and self._committed:
            self._began = began
        if not self._groups.full and not self._pump.problem:
            self._caught_up_at = time.monotonic()
            self._has_caught_up = True
            with self._complete:
                self._complete_until = began
                self._complete.notify_all()
        return progress

    def _rest(self, seconds: float) -> None:
        """Wait this long, keep a distance between commits, because each makes parts to merge; then wait for records."""
        self._halt.wait(max(seconds, self._began + self.pace - time.monotonic()))
        self._read.clear()
        while not self._readers.any() and not self._halt.is_set():
            self._quiet_seconds = self._quiet_pace()
            left = self._began + self._quiet_seconds - time.monotonic()
            if left <= 0 or self._read.wait(min(left, LOOK_SECONDS)) or self._is_due():
                break
        self._wake.wait(min(self._idle(), self.pace if self._readers.any() else LOOK_SECONDS))
        self._wake.clear()

    def _end(self) -> None:
        self._pump.close()
        try:
            self._groups.save()
        except (OSError, Retry) as error:
            self._unsaved = f"the hub cannot save how far it has read: {error}"

    def _on_outcome(self, outcome: str, batches: Sequence[Batch], reason: str) -> None:
        if outcome == "retried":
            self._counters.add("retried", "store", len(batches), "store")
            return
        items = [ReceivedBatch(self._groups.receiver(batch), batch) for batch in batches]
        if outcome == "written":
            if self._on_safe is not None:
                self._on_safe(items)
            if self._passed_on is not None:
                items = self._stored_here(items, self._passed_on, reason)
            self._committed = bool(items)
            if items:  # before they are counted: whoever sees the count may ask whether they are diagnosed
                self.stored.announce(measured(items), lambda error: self._count_failed(items, error))
        stored = self._count(_STORED.get(outcome, outcome), items, reason)
        if outcome == "written":
            now = time.monotonic()
            self._rates.append((now, stored))
            while self._rates[0][0] < now - _RATE_SECONDS:
                self._rates.popleft()

    def _stored_here(
        self, items: list[ReceivedBatch], passed_on: Callable[[Batch], str], reason: str
    ) -> list[ReceivedBatch]:
        """Count the batches that were passed on, and return the others."""
        elsewhere: dict[str, list[ReceivedBatch]] = {}
        for item in items:
            elsewhere.setdefault(passed_on(item.batch), []).append(item)
        here = elsewhere.pop("", [])
        for how, passed in elsewhere.items():
            self._count(how, passed, reason)
        return here

    def _count(self, outcome: str, items: Sequence[ReceivedBatch], reason: str) -> int:
        counts: dict[str, int] = {}
        for item in items:
            counts[item.receiver] = counts.get(item.receiver, 0) + len(item.batch.records)
        for receiver, count in counts.items():
            self._counters.add(outcome, receiver, count, reason[:100])
        return sum(counts.values())

    def _count_failed(self, items: Sequence[ReceivedBatch], error: Exception) -> None:
        self._counters.add("dropped", "listener", len(items), type(error).__name__)


SINK = "store"
"""Names its cursors and its quarantine."""
MAX_TRIES = 5
"""How often a group is retried on a failing engine before one of its batches is blamed."""
MAX_BLAMED = 8
"""How many batches are blamed in a row; beyond that it is the engine, and everything waits."""

Outcome = Retry | Reject | None


class BatchStore(Protocol):
    """The store, as a destination of batches."""

    def write_many(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        """Store batches; None or Reject for one means it is safe."""


class StoreSink:
    """A sink for a store that is opened and closed elsewhere."""

    divisible = False
    timeout = 600.0

    def __init__(self, store: BatchStore, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._check = check
        """Raises Retry when the folder of the store is gone."""
        self._tries = self._blamed = 0
        self._refused: dict[tuple[str, str, int], Reject] = {}
        """Rejections of batches in a group that was not completely stored yet; the store reports them once."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Store batches in one commit; those stored before are skipped."""
        self._check()
        try:
            outcomes = self._store.write_many(batches)
        except Damaged as error:
            raise Retry(str(error), after=60.0) from error  # no batch is to blame, and none will be taken soon
        except EngineError as error:
            self._tries += 1
            if self._tries < MAX_TRIES or self._blamed >= MAX_BLAMED:
                raise Retry(f"the store is failing: {error}") from error
            self._blamed += len(batches) == 1
            raise
        where, reasons = self._refusals(batches, outcomes)
        waiting = [outcome for outcome in outcomes if isinstance(outcome, Retry)]
        if waiting:
            raise max(waiting, key=lambda each: each.after or 0.0)
        self._tries = self._blamed = 0
        for batch in batches if self._refused else ():
            self._refused.pop(batch.key, None)
        if where:
            raise Reject("; ".join(sorted(reasons)[:3]), where)
        return {}

    def _refusals(self, batches: Sequence[Batch], outcomes: Sequence[Outcome]) -> tuple[list[int], set[str]]:
        """The indices of all rejected records, and the reasons."""
        where: list[int] = []
        start = 0
        reasons = set()
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, Reject):
                self._refused[batch.key] = outcome
            refused = self._refused.get(batch.key) if self._refused else None
            if refused is not None:
                where += [start + index for index in refused.where]
                reasons.add(str(refused))
            start += len(batch.records)
        return where, reasons

    def close(self) -> None:
        """Leave the store open."""
