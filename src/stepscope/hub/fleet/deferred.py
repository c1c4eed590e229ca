"""Batches whose shard is down, kept in a journal for each shard, so that the records of other shards do not wait."""

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import IntakeBatch, frames_of, pack_whole
from stepscope.hub.intake.store_pump import BatchStore, IntakeReader, ReceivedBatch, Source
from stepscope.hub.store.schema import ShardUnavailable
from stepscope.hub.store.store import Outcome
from stepscope.journal.following import Cursors
from stepscope.journal.segments import READ_BYTES, Journal
from stepscope.model.ports import Batch, Writer

_PAUSE_SECONDS = 3.0
"""How long after a failure a shard is tried again."""
_PROBE_BYTES = 64 * 1024
"""What it is tried with."""


class DeferredShard:
    """The journal of one shard: `keep` appends to it, and as a source it is read again, a while after a failure.

    What still cannot be stored then is appended once more. One thread uses it.
    """

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        cursors: Cursors,
        counters: Counters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._writer, self._clock = folder, writer, clock
        self._journal: Journal | None = None
        self._reader = IntakeReader(folder, cursors, counters, cursor=f"deferred-{folder.name}")
        self.bytes_behind = self._reader.bytes_behind
        self._read: set[tuple[str, str, int]] = set()
        """The batches that were read since the last `settle` or `rewind`."""
        self._not_before = float("-inf")
        self._failing = False

    def read(self, limit: int = READ_BYTES) -> list[ReceivedBatch]:
        """Return the next batches; none at the end, and none while the shard is left alone."""
        if self._clock() < self._not_before:
            return []
        found = self._reader.read(_PROBE_BYTES if self._failing else limit)
        self._failing = False
        self._read.update(item.batch.key for item in found)
        return found

    def holds(self, batch: Batch) -> bool:
        """Return whether a batch was just read from here."""
        return batch.key in self._read

    def settle(self) -> bool:
        """Count what was read as stored, or kept anew."""
        self._read.clear()
        return self._reader.settle()

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""
        self._read.clear()
        self._reader.rewind()

    def keep(self, packed: Sequence[bytes]) -> None:
        """Append packed batches, synced; OSError when the disk does not take them."""
        self._not_before, self._failing = self._clock() + _PAUSE_SECONDS, True
        if self._journal is None:
            self._journal = Journal(self._folder, self._writer, fsync=True)
        for part in frames_of(packed):
            self._journal.append(part)

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()


class DeferringStore:
    """A store that takes batches also while their shard is unavailable, as long as another shard takes any.

    They are kept in a journal of that shard, up to `most_bytes`; then everything waits, as it does while no shard takes
    anything. One thread uses it.
    """

    def __init__(
        self,
        store: BatchStore,
        shards: Sequence[DeferredShard],
        receiver: Callable[[Batch], str],
        takes_writes: Callable[[int], bool],
        most_bytes: int,
    ) -> None:
        self._store, self._shards = store, shards
        self._receiver, self._takes_writes, self._most_bytes = receiver, takes_writes, most_bytes
        self._kept: dict[tuple[str, str, int], str] = {}

    @property
    def sources(self) -> Sequence[Source]:
        """What is to be read again."""
        return self._shards

    def outcome(self, batch: Batch) -> str:
        """Return what became of a batch of the last group: `deferred`, `retried` (deferred once more), or empty."""
        return self._kept.get(batch.key, "")

    def write_many(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        """Store batches and return the outcome of each: None also for one that is in the journal of its shard."""
        self._kept.clear()
        outcomes = list(self._store.write_many(batches))
        waiting: dict[int, list[int]] = {}
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, ShardUnavailable):
                waiting.setdefault(outcome.shard, []).append(index)
        if waiting and self.bytes_behind() < self._most_bytes and self._others_go_on(waiting.keys()):
            for shard, indices in waiting.items():
                self._defer(shard, indices, batches, outcomes)
        return outcomes

    def bytes_behind(self) -> int:
        """Count the bytes that wait for their shards."""
        return sum(each.bytes_behind() for each in self._shards)

    def _others_go_on(self, away: Collection[int]) -> bool:
        return any(self._takes_writes(shard) for shard in range(len(self._shards)) if shard not in away)

    def _defer(self, shard: int, indices: Sequence[int], batches: Sequence[Batch], outcomes: list[Outcome]) -> None:
        packed: list[bytes] = []
        kept: list[int] = []
        for index in indices:
            batch = batches[index]
            made, lost = pack_whole(IntakeBatch.of(self._receiver(batch), batch))
            if made is not None and not lost:  # else it waits as it is: all that is read from a journal can be packed
                packed.append(made)
                kept.append(index)
        try:
            self._shards[shard].keep(packed)
        except OSError:
            return  # the disk is full, or gone: they wait where they are
        for index in kept:
            outcomes[index] = None
            repeated = self._shards[shard].holds(batches[index])
            self._kept[batches[index].key] = "retried" if repeated else "deferred"

    def close(self) -> None:
        """Close the journals."""
        for each in self._shards:
            each.close()
