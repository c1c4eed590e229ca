"""Diagnosis of stored runs: those that were missed, evicted, or diagnosed by an older engine."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from stepscope.diagnosis.record_order import Written
from stepscope.diagnosis.run_diagnosis import VERSION
from stepscope.hub.diagnosing.tracked import TrackedRun
from stepscope.hub.runs.run_states import RunStates
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.finding_catalog import undiagnosed
from stepscope.hub.store.read.replay import SLICE, Extent, extent_of, replay
from stepscope.hub.store.read.run_catalog import list_runs, read_writers, run_ids
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.read.step_times import earlier_step_times
from stepscope.model.ports import Batch

CHUNK = 4000
"""The number of records diagnosed before another run has its turn."""
MAX_OPEN = 4
"""The most concurrent replays."""
IMPORT_SECONDS = 1.0
"""Seconds until a run whose journals are being imported is checked again."""
VIEWED_SECONDS = 30.0
"""A run that was asked about this recently is replayed first."""
BEHIND_SECONDS = 10.0
"""While the store is behind, a replay starts this long after the last record of its run."""


class _Replay:
    """The replay of one run."""

    def __init__(self, engine: Engine, row: RunRow) -> None:
        self._engine, self.row = engine, row
        self.tracked = TrackedRun(row, earlier_step_times(engine, row))
        self._extent = Extent(0, {}, 0)
        self.share = 0.0
        self._records = self._read(extent_of(engine, row.number))

    @property
    def left(self) -> float:
        """The approximate number of records left."""
        return self._extent.records * (1 - self.share)

    def _read(self, extent: Extent) -> Iterator[Written]:
        since, self._extent = self._extent.commit, extent
        for share, records in replay(self._engine, self.row.number, extent, since):
            yield from records
            self.share = share

    def advance(self) -> bool:
        """Diagnose some records; True when all stored records are diagnosed."""
        some = list(islice(self._records, CHUNK))
        self.tracked.take(some)
        if some:
            return False
        newer = extent_of(self._engine, self.row.number)
        if newer.commit > self._extent.commit:
            few = newer.records - self._extent.records <= SLICE
            self._records = self._read(newer)
            if not few:
                return False
            self.tracked.take(self._records)
        self.tracked.replayed(newer.batches, self.row.world_size)
        return True


class Replays:
    """The queue of runs to replay, and their progress. One thread advances it; any thread may query it."""

    def __init__(
        self,
        engine: Engine,
        states: RunStates,
        busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        is_written_here: Callable[[int], bool] = lambda number: True,
    ) -> None:
        self._engine, self._states, self._busy, self._clock = engine, states, busy, clock
        self._is_written_here = is_written_here
        """Returns whether this hub writes a run, by its number: another one diagnoses the rest."""
        self._queued: dict[str, float] = {}
        """Runs of which records came, and when they are looked at."""
        self._last_records: dict[str, float] = {}
        """When records of them came last."""
        self._old: dict[str, None] = {}
        """Runs that were stored before, the newest first."""
        self._viewed: dict[str, float] = {}
        """Runs that somebody looks at, and when they were last asked about."""
        self._open: dict[str, _Replay] = {}
        self.advancing = ""
        """The run that is or was advanced last."""
        self.is_moving = False
        """Whether there is more to do at once."""

    def __len__(self) -> int:
        return len(self._queued.keys() | self._old.keys())

    def find_missed(self) -> None:
        """Find the runs that were not fully diagnosed, or by another version of the engine."""
        numbers = [number for number in undiagnosed(self._engine, VERSION) if self._is_written_here(number)]
        names = run_ids(self._engine, numbers)
        self._old = {names[number]: None for number in numbers if number in names}

    def queue(self, run: str) -> None:
        """Queue a run that has new records."""
        self._old.pop(run, None)
        self._queued.setdefault(run, 0.0)
        self._last_records[run] = self._clock()

    def follow(self, run: str, batches: Sequence[Batch]) -> TrackedRun | None:
        """Begin to diagnose a run with its first batches; None where it must be replayed.

        They must be all that is stored of a run that goes on, in its first attempt.
        """
        begun = {batch.writer.id for batch in batches if batch.seq == 0}
        writers = [batch.writer for batch in batches]
        if self.is_queued(run) or [True for who in writers if who.id not in begun or who.attempt > 1]:
            return None
        row = next(iter(list_runs(self._engine, ids=[run])), None)
        if row is None or self._states.state(row) != "running":
            return None
        tracked = TrackedRun(row, earlier_step_times(self._engine, row))
        tracked.feed(batches)
        return tracked if tracked.covers(extent_of(self._engine, row.number).batches) else None

    def prefer(self, run: str) -> None:
        """Replay a run before others: somebody waits for it."""
        self._viewed[run] = self._clock()

    def is_queued(self, run: str) -> bool:
        """Return whether a run is queued."""
        return run in self._queued or run in self._old

    def forget(self, run: str) -> None:
        """Remove a run from the queue."""
        self._queued.pop(run, None)
        self._last_records.pop(run, None)
        self._old.pop(run, None)
        self._viewed.pop(run, None)
        self._open.pop(run, None)

    def progress(self, run: str) -> float:
        """Return the diagnosed share of a run."""
        found = self._open.get(run)
        return found.share if found is not None else 0.0

    @property
    def current(self) -> dict[str, Any] | None:
        """Return the current replay and its progress."""
        found = next(iter(list(self._open.values())), None)
        return None if found is None else {"run": found.row.id, "share": round(found.share, 3)}

    def replay_now(self, run: str) -> TrackedRun | None:
        """Replay a whole run, whatever its state; None when it is not in the store."""
        found = self._open.pop(run, None) or self._begin(run, importing=True)
        if found is None:
            return None
        while not found.advance():
            pass
        return self._finish(found)

    def advance(self) -> TrackedRun | None:
        """Diagnose some records of the run with the highest priority; return the run when it is complete."""
        chosen = self._choose()
        self.is_moving = chosen is not None
        if chosen is None:
            return None
        self.advancing = chosen.row.id
        if not chosen.advance():
            return None
        return self._finish(chosen)

    def _choose(self) -> _Replay | None:
        """Return the replay of a run that is looked at, else the shortest among active runs, then among older ones."""
        now, busy = self._clock(), self._busy()
        viewed = list(self._viewed.items())  # a copy: other threads add to it
        for run, seen in sorted(viewed, key=lambda each: -each[1]):
            if now - seen > VIEWED_SECONDS or not self.is_queued(run):
                self._viewed.pop(run, None)
            elif run in self._open or (self._queued.get(run, 0.0) <= now and self._start(run, now)):
                return self._open[run]
        for run, due in list(self._queued.items()):
            if busy and now - self._last_records.get(run, 0.0) < BEHIND_SECONDS:
                continue  # reading now would have to be repeated soon
            if run not in self._open and due <= now and len(self._open) < MAX_OPEN:
                self._start(run, now)
        ready = [self._open[run] for run in self._queued if run in self._open]
        if ready:
            return min(ready, key=lambda each: each.left)
        for run in list(self._old):
            if run in self._open or self._start(run, now):
                return self._open[run]
        return None

    def _start(self, run: str, now: float) -> bool:
        begun = self._begin(run)
        if begun is not None:
            self._open[run] = begun
            return True
        if run in self._queued:
            self._queued[run] = now + IMPORT_SECONDS
        return False

    def _begin(self, run: str, importing: bool = False) -> _Replay | None:
        """Start a replay, except while journals of the run are being imported: their records are not in order."""
        row = next(iter(list_runs(self._engine, ids=[run])), None)
        if row is None:
            self.forget(run)
            return None
        if not importing and self._states.state(row) == "importing":
            self._old.pop(run, None)
            self._queued.setdefault(run, self._clock() + IMPORT_SECONDS)
            return None
        return _Replay(self._engine, row)

    def _finish(self, found: _Replay) -> TrackedRun:
        self.forget(found.row.id)
        row = next(iter(list_runs(self._engine, ids=[found.row.id])), found.row)
        self._report_dead(found.tracked, row)
        return found.tracked

    def _report_dead(self, tracked: TrackedRun, row: RunRow) -> None:
        """Report to the engine the processes that are certainly gone without an exit record."""
        if not row.beginning:
            return
        silence = self._states.silence(row.id, tracked.diagnosis.ended)
        mains = [each for each in read_writers(self._engine, row.number) if each.writer.main]
        unread = self._states.unread(row.id, [each.writer.id for each in mains])
        newest = max((each.writer.attempt for each in mains), default=1)
        crashed = self._states.state(row) == "crashed"
        for each in mains:
            who = each.writer
            if who.id in unread or (who.attempt, who.rank) in tracked.diagnosis.ended:
                continue
            unknown = (who.attempt, who.rank) not in silence.known
            if who.attempt < newest or (unknown and crashed):
                tracked.diagnosis.died(who.rank, each.seen, who.attempt)
        for rank, attempt, seen in silence.dead:
            tracked.diagnosis.died(rank, int(seen * 1e9), attempt)
