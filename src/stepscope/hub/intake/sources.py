"""What waits for the store, read in groups: trainers' journals and the hub's own."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import unpack
from stepscope.hub.store.write.metric_rows import as_rows, metric_rows
from stepscope.journal import layout
from stepscope.journal.following import Cursors, Following, bytes_behind
from stepscope.journal.segments import READ_BYTES, Position, Tail
from stepscope.model.ports import Batch
from stepscope.model.records import Alert, Metric, Record, Span
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
        position = self._tail.position
        self._stored((position.segment, position.offset))
        if position == self._cursors.get(self._cursor):
            return False
        before = self._cursors.get(self._cursor).segment
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
