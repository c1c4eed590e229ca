"""The diagnosis thread: processes records as they are stored, replays missed runs, and stores changed findings."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stepscope.alerts.alert import Expected
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.record_order import Written
from stepscope.diagnosis.run_diagnosis import VERSION
from stepscope.hub.diagnosing.tracked import TrackedRun
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.limits import MEGA
from stepscope.hub.runs.run_states import RunStates
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.read.finding_catalog import read_findings, undiagnosed
from stepscope.hub.store.read.replay import SLICE, Extent, extent_of, replay
from stepscope.hub.store.read.run_catalog import list_runs, read_writers, run_ids
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.read.step_times import earlier_step_times
from stepscope.hub.store.store import Store
from stepscope.hub.store.write.finding_rows import Diagnosed, write_findings
from stepscope.hub.threads import StoredRecords, Topic
from stepscope.model.ports import Batch
from stepscope.model.states import ENDED

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


MAX_WAITING, MAX_WAITING_BYTES = 200_000, 128 * MEGA
"""The most queued records, and their memory; beyond that their runs are replayed from the store."""
MAX_SERIES = 100_000
"""The most series in memory; the least recently active runs are evicted."""
MAX_RUNS = 256
IDLE_SECONDS = 300.0
"""A run without records for this long is evicted."""
SETTLE_SECONDS = 65.0
"""A run without records for longer than commits are apart is settled: how far it is diagnosed is stored."""
TICK_SECONDS = 0.5
NOTHING_SECONDS = 5.0
"""The same while no run is followed, or nobody reads and nobody is told; new records wake the thread."""
STORE_SECONDS = 0.5
"""The interval at which the findings of a run are stored."""
SILENT_SECONDS = 11.0
"""A run without records or heartbeats for this long is not checked for hangs: its records may be in transit."""
SHARE = 0.1
"""The share of time that the thread works while the store is overloaded..."""
LONGEST_PAUSE = 10.0
"""... with pauses of at most this many seconds."""
ERROR_SECONDS = 5.0
DEATHS = ("crash", "dead_rank")
"""Findings that name the end of a run without an exit record."""


UNSTORED = 0.999
"""The share of a run that is diagnosed, and its findings not stored yet."""


class Changed(NamedTuple):
    """A run whose findings changed."""

    run: str
    project: str
    findings: Sequence[Finding]


class Diagnosing:
    """Diagnoses the runs of a hub: what is stored waits in a queue for its thread. All methods are thread-safe."""

    def __init__(
        self,
        store: Store,
        states: RunStates,
        busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        *,
        stored: Topic[Sequence[ReceivedBatch]] | None = None,
        found: Topic[Sequence[Changed]] | None = None,
        marked: Topic[Expected] | None = None,
        is_watched: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_watched = is_watched
        """Whether someone reads, or is told: else what shows by its absence is looked for less often."""
        self._store, self._states, self._busy, self._clock = store, states, busy, clock
        self._work = threading.RLock()
        """Held while runs are diagnosed."""
        self._live: dict[str, TrackedRun] = {}
        self._replays = Replays(store.engine, states, busy, clock, store.is_written_here)
        self._announced: deque[tuple[str, str]] = deque()
        """Runs and projects whose findings are to be passed on again."""
        self._unstored: set[str] = set()
        """Runs with records that were taken and are not diagnosed, or findings that are not stored."""
        self._wake, self._halt = threading.Event(), threading.Event()
        self.waiting: StoredRecords[Batch] = StoredRecords(MAX_WAITING, MAX_WAITING_BYTES, self._wake)
        self._looked = False
        """Whether it is known which runs were not diagnosed before this hub started."""
        self._ticked = 0.0
        self._version = 0
        self.overflows = 0
        self._failed: dict[str, str] = {}
        """Runs on which the engine failed, and how."""
        self.problem = ""
        self.found: Topic[Sequence[Changed]] = found or Topic()
        """Runs whose findings were just stored, announced on this thread."""
        if stored is not None:
            stored.subscribe(self.waiting.add)
        if marked is not None:
            marked.subscribe(lambda mark: self.announce(mark.run, mark.project))
        self._thread = threading.Thread(target=self._loop, name="stepscope-diagnosing", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the thread, and store the progress of the runs."""
        self._halt.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if not self._thread.is_alive():
            try:
                self._settle(list(self._live.values()))
            except EngineError as error:
                self.problem = str(error)

    def is_waiting(self, run: str) -> bool:
        """Return whether stored records of a run are not diagnosed yet."""
        return not self._looked or run in self.waiting.runs or run in self._unstored or self._replays.is_queued(run)

    def progress(self, run: str) -> float:
        """Return the diagnosed share of a run's records; where some are missing, the run is diagnosed next."""
        if not self.is_waiting(run):
            return 1.0
        self._replays.prefer(run)
        return min(self._replays.progress(run), UNSTORED)

    def announce(self, run: str, project: str) -> None:
        """Pass on the findings of a run, or of a whole project, again, as far as they are followed."""
        self._announced.append((run, project))
        self._wake.set()

    def look_soon(self) -> None:
        """Look at once for what shows by its absence: someone has begun to read."""
        self._wake.set()

    def find_missed(self) -> None:
        """Search the store for runs that are not diagnosed, after this hub acquired a shard."""
        self._looked = False
        self._wake.set()

    def forget(self, run: str) -> None:
        """Forget a deleted run."""
        with self._work:
            self._live.pop(run, None)
            self._replays.forget(run)
            self._unstored.discard(run)

    def catch_up(self, run: str) -> float:
        """Diagnose what is not diagnosed of a run, on the calling thread; return the diagnosed share."""
        with self._work:
            self._look()
            self._drain()
            if run in self._live:
                self._tick([self._live[run]])
            elif self._replays.is_queued(run) or not self._is_over(run):
                done = self._replays.replay_now(run)
                if done is not None:
                    self._live[run] = done
                    self._wake.set()
            self._settle([self._live[run]] if run in self._live else [])
            self._unstored.discard(run)
        return 1.0

    def _is_over(self, run: str) -> bool:
        """Return whether a run has ended and all of it is diagnosed: no time that passes adds to that."""
        row = next(iter(list_runs(self._store.engine, ids=[run])), None)
        if row is None or (state := self._states.state(row)) not in ENDED:
            return False
        if row.number in undiagnosed(self._store.engine, VERSION):
            return False
        if state != "crashed" or not row.beginning:  # a run without a start has no exits that could be missing
            return True
        return any(each.kind in DEATHS for each in read_findings(self._store.engine, row.number))

    def health(self) -> dict[str, Any]:
        """Return the numbers of followed and queued runs, and the progress of the current replay."""
        return {
            "live_runs": len(self._live),
            "waiting_runs": len(self._replays),
            "replaying": self._replays.current,
            "queued_records": self.waiting.records,
            "overflows": self.overflows,
            "failed_runs": dict(list(self._failed.items())[:10]),
        }

    def _loop(self) -> None:
        while not self._halt.is_set():
            began = self._clock()
            try:
                with self._work:
                    more = self.step()
                self.problem = ""
            except EngineError as error:
                self.problem, more = f"the store could not be read for diagnosis: {error}", False
                self._halt.wait(ERROR_SECONDS)
            spent = self._clock() - began
            self._throttle(spent)
            # A replay leaves half of the time to queries; new records end the pause.
            self._wake.wait(min(spent, TICK_SECONDS) if more else self._rest())
            self._wake.clear()

    def _rest(self) -> float:
        """Return the seconds until the next tick, or until changed findings may be stored."""
        if not self._live and not len(self._replays):
            return NOTHING_SECONDS
        now = self._clock()
        stored = [each.stored_at for each in list(self._live.values()) if each.changed]
        if not stored and not len(self._replays) and not self._is_watched():
            return NOTHING_SECONDS
        return min(max(min(stored, default=now) + STORE_SECONDS - now, 0.01), TICK_SECONDS)

    def _throttle(self, spent: float) -> None:
        """Pause after this many seconds of work while the store is overloaded."""
        until = self._clock() + min(spent * (1 / SHARE - 1), LONGEST_PAUSE)
        while self._busy() and self._clock() < until and not self._halt.is_set():
            self._halt.wait(0.05)

    def step(self) -> bool:
        """Do one unit of work; return whether there is more."""
        self._look()
        moved = self._drain()
        now = self._clock()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._tick(list(self._live.values()))
        self._store_changed(now)
        self._announce()
        try:
            done = self._replays.advance()
        except EngineError:
            raise
        except Exception as error:
            done = None
            self._give_up(self._replays.advancing, error)
        if done is not None:
            self._live[done.id] = done
            self._settle([done])
        self._evict(now)
        return moved or self._replays.is_moving

    def _look(self) -> None:
        """Find, once, the runs that were not diagnosed before this hub started."""
        if not self._looked:
            self._replays.find_missed()
            self._looked = True

    def _drain(self) -> bool:
        """Diagnose queued records; a run that is not followed from its first record on is queued for replay."""
        batches, missed = self.waiting.take(self._unstored.update)
        by_run: dict[str, list[Batch]] = {run: [] for run in missed}
        for batch in batches:
            by_run.setdefault(batch.writer.run, []).append(batch)
        self.overflows += bool(missed)
        for run, own in by_run.items():
            if run in self._failed:
                continue
            try:
                tracked = None if run in missed else self._take(run, own)
            except Exception as error:
                self._give_up(run, error)
                continue
            if tracked is None:
                self._live.pop(run, None)
                self._replays.queue(run)
                continue
            self._live[run] = tracked
            if tracked.diagnosis.run.config != tracked.config:
                self._reconfigure(tracked)
        return bool(by_run)

    def _take(self, run: str, batches: Sequence[Batch]) -> TrackedRun | None:
        """Diagnose new batches of a run; None when it must be replayed."""
        tracked = self._live.get(run)
        if tracked is not None:
            return tracked if tracked.feed(batches) else None
        try:
            return self._replays.follow(run, batches)
        except EngineError:
            return None

    def _reconfigure(self, tracked: TrackedRun) -> None:
        """Compare a run whose configuration changed with other earlier runs."""
        try:
            for row in list_runs(self._store.engine, ids=[tracked.id]):
                tracked.compare_with(earlier_step_times(self._store.engine, row))
        except EngineError:
            return  # asked again with the next records
        tracked.config = tracked.diagnosis.run.config

    def _give_up(self, run: str, error: Exception) -> None:
        """Stop diagnosing a run on which the engine failed; `health` counts it."""
        self._failed[run] = repr(error)
        self._live.pop(run, None)
        self._replays.forget(run)

    def _tick(self, runs: Sequence[TrackedRun]) -> None:
        for each in runs:
            self._judge_silence(each)

    def _judge_silence(self, tracked: TrackedRun) -> None:
        """Report dead processes and the time to the engine, unless records may be in transit."""
        ended = tracked.diagnosis.ended
        found = self._states.silence(tracked.id, ended)
        for rank, attempt, seen in found.dead:
            tracked.diagnosis.died(rank, int(seen * 1e9), attempt)
        if found.here or (not found.unread and self._clock() - tracked.last_seen < SILENT_SECONDS):
            tracked.tick()

    def _store_changed(self, now: float) -> None:
        due = [each for each in self._live.values() if each.changed and now - each.stored_at >= STORE_SECONDS]
        self._write(due, {})
        quiet = [
            each for each in self._live.values()
            if not each.settled and not each.changed and now - each.last_seen >= SETTLE_SECONDS
        ]  # fmt: skip
        if quiet:
            self._settle(quiet[:8])
        unstored = {each.id for each in self._live.values() if each.changed}
        self._unstored = {run for run in self._unstored if run in unstored or self._replays.is_queued(run)}

    def _settle(self, runs: Sequence[TrackedRun]) -> None:
        """Store the findings of runs with the last diagnosed commit."""
        commits = {}
        for each in runs:
            extent = extent_of(self._store.engine, each.number)
            if each.covers(extent.batches):
                commits[each.id] = extent.commit
            each.settled = True
        self._write(runs, commits)

    def _write(self, runs: Sequence[TrackedRun], commits: dict[str, int]) -> None:
        runs = [each for each in runs if self._store.is_written_here(each.number)]
        if not runs:
            return
        made = []
        changed = []
        for each in runs:
            count, found = each.diagnosis.changes, each.findings()
            made.append(Diagnosed(each.number, found, VERSION, commits.get(each.id, 0)))
            if each.remember(found):
                changed.append(Changed(each.id, each.project, found))
            each.stored, each.stored_at = count, self._clock()
        self._version = max(time.time_ns(), self._version + 1)
        write_findings(self._store.engine, made, self._version)
        self._pass_on(changed)

    def _announce(self) -> None:
        while self._announced:
            run, project = self._announced.popleft()
            chosen = [each for each in self._live.values() if (each.id == run if run else each.project == project)]
            self._pass_on([Changed(each.id, each.project, each.findings()) for each in chosen])

    def _pass_on(self, changed: Sequence[Changed]) -> None:
        if changed:
            self.found.announce(changed, self._note_failed)

    def _note_failed(self, error: Exception) -> None:
        self.problem = f"findings could not be passed on: {error!r}"

    def _evict(self, now: float) -> None:
        """Evict the least recently active runs when there are too many series."""
        order = sorted(self._live.values(), key=lambda each: each.last_seen)
        series = sum(each.series for each in order)
        for each in order:
            idle = now - each.last_seen > IDLE_SECONDS
            if not idle and series <= MAX_SERIES and len(self._live) <= MAX_RUNS:
                break
            self._settle([each])
            del self._live[each.id]
            series -= each.series
