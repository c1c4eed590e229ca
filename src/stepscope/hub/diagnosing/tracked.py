"""A run that is diagnosed as its records arrive: the engine's state, and the batches it has processed."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.record_order import Written, in_order, is_watched, written_at
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.write.ledger import Ranges, writer_key
from stepscope.model.ports import Batch
from stepscope.model.records import Span

LATE_NS = 60 * 10**9
"""A new writer whose records are this much older than the newest cannot be merged in order."""


class TrackedRun:
    """A run being diagnosed. Not thread-safe."""

    def __init__(self, row: RunRow, earlier: Sequence[float] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Start with the median step times of similar earlier runs, in seconds."""
        self.number, self.id, self.project = row.number, row.id, row.project
        self._clock = clock
        self.diagnosis = Diagnosis(world=max(row.world_size, 1), earlier=earlier)
        self.batches: dict[int, Ranges] = {}
        """The batches that were fed, by writer."""
        self.last_seen = clock()
        """When the last record came."""
        self.stored = -1
        """The engine's count of changes when its findings were last stored."""
        self.stored_at = 0.0
        self.settled = False
        """Whether the store knows that nothing is left to diagnose."""
        self.config = row.beginning.get("config")
        """The configuration for which earlier runs like this one were looked up."""
        self._newest = 0
        self._stored: list[Finding] | None = None

    @property
    def series(self) -> int:
        """The number of series in the engine."""
        return len(self.diagnosis.run.series)

    @property
    def changed(self) -> bool:
        """Whether the findings may differ from the stored ones."""
        return self.diagnosis.changes != self.stored

    def replayed(self, batches: Mapping[int, Ranges], world_size: int) -> None:
        """Count batches as fed, after a replay from the store."""
        self.batches = {writer: known.copy() for writer, known in batches.items()}
        self.diagnosis.run.world = max(world_size, 1)

    def covers(self, batches: Mapping[int, Ranges]) -> bool:
        """Return whether all of some batches were fed."""
        return all(_covers(self.batches.get(writer), known) for writer, known in batches.items())

    def compare_with(self, earlier: Sequence[float]) -> None:
        """Compare with the median step times of other earlier runs, in seconds, from now on."""
        self.diagnosis.run.earlier = tuple(earlier)

    def feed(self, batches: Sequence[Batch]) -> bool:
        """Diagnose batches that are new; False when a writer is too late to be merged in order."""
        fresh = []
        for batch in batches:
            key = writer_key(batch.writer)
            known = self.batches.get(key)
            if known is not None and batch.seq in known:
                continue
            if known is None:
                newest = max([record.time for record in batch.records], default=0)
                if newest and newest < self._newest - LATE_NS:
                    return False
                known = self.batches[key] = Ranges()
            known.add(batch.seq)
            fresh.append(batch)
        if fresh:
            world = max(batch.writer.world_size for batch in fresh)
            self.diagnosis.run.world = max(world, self.diagnosis.run.world)
            if len({batch.writer.id for batch in fresh}) == 1:
                self._take_in_order(fresh)
            else:
                self.take(in_order(fresh))
            self.last_seen, self.settled = self._clock(), False
        return True

    def _take_in_order(self, batches: Sequence[Batch]) -> None:
        """Diagnose batches of one writer, which are in order."""
        who = batches[0].writer
        watched = [
            record for batch in batches for record in batch.records if type(record) is Span or is_watched(record)
        ]
        self.diagnosis.feed_many(who.rank, watched, who.attempt, who.host)
        self._newest = max([self._newest, *map(written_at, watched)])

    def take(self, records: Iterable[Written]) -> None:
        """Diagnose records, which must be in order."""
        for (rank, attempt, host), some in groupby(records, key=itemgetter(1, 2, 3)):
            together = list(some)
            self.diagnosis.feed_many(rank, [each.record for each in together], attempt, host)
            self._newest = max([self._newest, *[each.at for each in together]])

    def tick(self) -> None:
        """Advance the engine to the current time, by the clock of the records."""
        self.diagnosis.tick(self._newest + int((self._clock() - self.last_seen) * 1e9))

    def findings(self) -> list[Finding]:
        """Return the findings so far."""
        return self.diagnosis.findings()

    def remember(self, found: list[Finding]) -> bool:
        """Remember the stored findings; return whether they changed."""
        before, self._stored = self._stored, found
        return found != (before or [])


def _covers(mine: Ranges | None, known: Ranges) -> bool:
    return mine is not None and all(any(a <= first and last <= b for a, b in mine) for first, last in known)
