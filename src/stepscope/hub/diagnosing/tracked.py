"""One run that is diagnosed as its records arrive: the engine's state, and which batches it has seen."""

import time
from collections.abc import Callable, Iterable, Sequence

from stepscope.diagnosis.engine import Diagnosis
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.order import Written, in_order, is_watched, written_at
from stepscope.hub.store.run_catalog import RunRow
from stepscope.hub.store.write.ledger import Ranges, writer_key
from stepscope.model.ports import Batch

LATE_NS = 60 * 10**9
"""A new writer whose records are older than the newest by so much does not fit into the order any more."""


class TrackedRun:
    """A run under diagnosis. One thread uses it at a time."""

    def __init__(self, row: RunRow, earlier: Sequence[float] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the median step times of earlier runs like this one, in seconds."""
        self.number, self.id, self.project = row.number, row.id, row.project
        self._clock = clock
        self.diagnosis = Diagnosis(world=max(row.world_size, 1), earlier=earlier)
        self.batches: dict[int, Ranges] = {}
        """The batches that were fed, by writer."""
        self.heard = clock()
        """When the last record came."""
        self.stored = -1
        """The engine's count of changes when its findings were last stored."""
        self.stored_at = 0.0
        self.settled = False
        """Whether the store knows that nothing is left to diagnose."""
        self._newest = 0
        self._told: list[Finding] | None = None

    @property
    def series(self) -> int:
        """How many series the engine keeps."""
        return len(self.diagnosis.run.series)

    @property
    def changed(self) -> bool:
        """Whether the findings may differ from what is stored."""
        return self.diagnosis.changes != self.stored

    def feed(self, batches: Sequence[Batch]) -> bool:
        """Diagnose batches, but for those that were fed before; False when a writer comes too late to fit in."""
        fresh = []
        for batch in batches:
            key = writer_key(batch.writer)
            known = self.batches.get(key)
            if known is not None and batch.seq in known:
                continue
            newest = max([record.time for record in batch.records], default=0)
            if known is None and newest and newest < self._newest - LATE_NS:
                return False
            if known is None:
                known = self.batches[key] = Ranges()
            known.add(batch.seq)
            fresh.append(batch)
        if fresh:
            world = max(batch.writer.world_size for batch in fresh)
            self.diagnosis.run.world = max(world, self.diagnosis.run.world)
            if len({batch.writer.id for batch in fresh}) == 1:
                self._take_as_written(fresh)
            else:
                self.take(in_order(fresh))
            self.heard, self.settled = self._clock(), False
        return True

    def _take_as_written(self, batches: Sequence[Batch]) -> None:
        """Diagnose batches of one writer: they are in order."""
        for who, _, records in batches:
            watched = [record for record in records if is_watched(record)]
            self.diagnosis.feed_many(who.rank, watched, who.attempt, who.host)
            self._newest = max([self._newest, *map(written_at, watched)])

    def take(self, records: Iterable[Written]) -> None:
        """Diagnose records that are in order."""
        feed = self.diagnosis.feed
        for at, rank, attempt, host, record in records:
            feed(rank, record, attempt, host)
            self._newest = max(self._newest, at)

    def tick(self) -> None:
        """Tell the engine what time it is by the clock of the records."""
        self.diagnosis.tick(self._newest + int((self._clock() - self.heard) * 1e9))

    def findings(self) -> list[Finding]:
        """What is wrong so far."""
        return self.diagnosis.findings()

    def remember(self, found: list[Finding]) -> bool:
        """Remember what is stored; whether it differs from what was stored before."""
        told, self._told = self._told, found
        return found != (told or [])
