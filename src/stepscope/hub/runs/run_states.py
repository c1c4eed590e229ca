"""States of runs, and run counts by state, from what arrived, what is stored and the journals of the home."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from stepscope.hub.runs.presence import Presence
from stepscope.hub.store.read.run_row import Ending, RunRow
from stepscope.journal import layout
from stepscope.journal.following import Cursors
from stepscope.journal.layout import process_alive
from stepscope.journal.segments import Position, find_writer
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.states import (
    STALLED_SECONDS,
    State,
    WriterFacts,
    beat_interval,
    ending_of,
    run_state,
    summed_up,
    writer_state,
)

MAX_OVER = 200_000
"""The most states of ended runs that are kept."""
LOOK_SECONDS = 1.0
"""How long the list of a run's writers is cached."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run; while its journals are imported, how many of their bytes are stored."""

    state: State
    read: int = 0
    size: int = 0


class Silence(NamedTuple):
    """Which main processes of a run's newest attempt are gone, and whether the others can be observed."""

    dead: tuple[tuple[int, int, float], ...]
    """Rank, attempt and time of the last record of each that died without an exit record."""
    known: frozenset[tuple[int, int]]
    """The attempts and ranks of which anything is known."""
    unread: bool
    """Whether some of their records are not stored yet."""
    here: bool
    """Whether one of them runs on this machine and everything it wrote is stored."""


class _Journal(NamedTuple):
    """A writer's journal on this disk: its bytes, those that are stored, and when it last changed."""

    size: int
    read: int
    changed: float
    unread: bool


class _Folder(NamedTuple):
    """The writers in a run's folder, and when it was listed."""

    looked: float
    changed: int
    writers: tuple[tuple[str, layout.WriterName], ...]


class Journals:
    """The journals of a home, for the states of runs; thread-safe."""

    def __init__(
        self,
        home: Path,
        cursors: Cursors,
        torn: Mapping[str, tuple[Position, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home, self._cursors, self._torn, self._clock = home, cursors, torn, clock
        self._folders: dict[str, _Folder] = {}
        self._writers: dict[str, Writer] = {}
        self._dead: set[str] = set()
        """Writers whose process is known to be gone; it does not come back."""

    def writers(self, run: str) -> tuple[tuple[str, layout.WriterName], ...]:
        """The writers that have a folder, with their parsed names."""
        known = self._folders.get(run)
        now = self._clock()
        if known is not None and now - known.looked < LOOK_SECONDS:
            return known.writers
        changed = _changed(f"{layout.runs_folder(self._home)}/{run}") if layout.is_safe(run) else 0
        if known is None or changed <= 0 or known.changed != changed:
            names = layout.list_writers(self._home, run) if changed else []
            parsed = ((name, layout.parse_writer(name)) for name in names)
            known = _Folder(now, changed, tuple((name, each) for name, each in parsed if each is not None))
        self._folders[run] = known._replace(looked=now)
        return known.writers

    def folders(self) -> frozenset[str]:
        """The names in the folder of runs."""
        try:
            return frozenset(os.listdir(layout.runs_folder(self._home)))
        except OSError:
            return frozenset()

    def look(self, run: str, name: str) -> _Journal:
        """Return size and progress of one journal."""
        position = self._cursors.get(f"{run}/{name}")
        end, torn_size = self._torn.get(f"{run}/{name}", (None, 0))
        size = read = waiting = 0
        changed = 0.0
        for path in layout.list_segments(layout.writer_folder(self._home, run, name)):
            try:
                found = os.stat(path)
            except OSError:
                continue
            index = int(path.stem)
            done = found.st_size if index < position.segment else 0
            if index == position.segment:
                torn = end == position and torn_size == found.st_size
                done = found.st_size if torn else min(position.offset, found.st_size)
            size, read, waiting = size + found.st_size, read + done, waiting + found.st_size - done
            changed = max(changed, found.st_mtime)
        return _Journal(size, read, changed, waiting > 0)

    def facts(self, run: str, name: str, known: WriterFacts | None) -> WriterFacts:
        """Add what a journal shows to the facts about its writer."""
        key = f"{run}/{name}"
        who = self._writers.get(key)
        if who is None:
            who = find_writer(layout.writer_folder(self._home, run, name))
            if who.wall_ns:  # else nothing of its journal is written yet, and who it is is only guessed
                self._writers[key] = who
        alive = False if key in self._dead else process_alive(who)
        if alive is False:
            self._dead.add(key)
        found = self.look(run, name)  # after its process: one that is gone writes no more
        base = known or WriterFacts(who.attempt, 0.0, main=who.main, rank=who.rank)
        return replace(base, beats=True, touched=found.changed, alive=alive, unread=found.unread)


class RunStates:
    """Computes the states of runs on demand; thread-safe."""

    def __init__(
        self,
        presence: Presence,
        journals: Journals,
        behind: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._presence, self._journals, self._clock = presence, journals, clock
        self._behind = behind
        """Whether records received over the network are waiting to be stored for longer than usual."""
        self._over: dict[str, tuple[tuple[Ending, ...], int, RunStatus | None]] = {}
        """The states of runs that have ended, with the endings and the number of attempts they were computed from."""

    def status(self, row: RunRow) -> RunStatus:
        """Return the state of a run."""
        return self._status(row, self._clock(), self._behind())

    def at_once(self) -> Callable[[RunRow], RunStatus]:
        """Return what tells the states of many runs at one moment."""
        now, behind = self._clock(), self._behind()
        active = self._presence.runs() | self._journals.folders()
        known: dict[str, RunStatus] = {}

        def look(row: RunRow) -> RunStatus:
            found = known.get(row.id)
            if found is None:
                found = None if row.id in active else self._ended(row)
                found = known[row.id] = found or self._status(row, now, behind)
            return found

        return look

    def _ended(self, row: RunRow) -> RunStatus | None:
        """The state of a run of which nothing but the store knows, and whose processes have all ended; else None."""
        known, attempts, status = self._over.get(row.id, ((), 0, None))
        endings = row.endings
        if known is not endings or attempts != row.attempts:
            reported = [end for end in endings if end.attempt == row.attempts]
            over = bool(reported) and len({end.rank for end in reported}) >= row.ranks
            status = RunStatus(summed_up({ending_of(end.status) for end in reported}) or "finished") if over else None
            if len(self._over) > MAX_OVER:
                self._over.clear()
            self._over[row.id] = (endings, row.attempts, status)
        return status

    def _status(self, row: RunRow, now: float, behind: bool) -> RunStatus:
        ends = {(end.attempt, end.rank): end for end in row.endings}
        facts = [_with_end(each, ends) for each in self._facts(row.id, ends, behind)]
        newest = max([each.attempt for each in facts] + [row.attempts])
        present = [each for each in facts if each.attempt == newest]
        present += _stored(row, newest, present, now, unread=behind)
        state = run_state(present, now) or "finished"
        if state != "importing":
            return RunStatus(state)
        found = [self._journals.look(row.id, name) for name, _ in self._journals.writers(row.id)]
        return RunStatus(state, sum(each.read for each in found), sum(each.size for each in found))

    def state(self, row: RunRow) -> State:
        """Return the state of a run alone."""
        return self.status(row).state

    def ended_since(self, row: RunRow) -> bool:
        """Whether a process of the run ended after the row was read: what the row counts is not all of it."""
        ended = {(end.attempt, end.rank) for end in row.endings}
        facts = self._presence.facts(row.id).values()
        return any(each.main and each.reported_end and (each.attempt, each.rank) not in ended for each in facts)

    def unread(self, run: str, writers: Iterable[str]) -> frozenset[str]:
        """Which of a run's writers have records that are not stored yet."""
        here = {name for name, _ in self._journals.writers(run)}
        behind = self._behind()
        return frozenset(
            name for name in writers if (self._journals.look(run, name).unread if name in here else behind)
        )

    def silence(self, run: str, ended: Collection[tuple[int, int]]) -> Silence:
        """Return which processes of the newest attempt are gone; `ended` are attempts and ranks with an exit record."""
        now = self._clock()
        behind = self._behind()
        facts = [each for each in self._facts(run, ended, behind) if each.main]
        newest = max((each.attempt for each in facts), default=0)
        present = [each for each in facts if each.attempt == newest]
        dead = [each for each in present if writer_state(each, now) == "crashed"]
        dead += [each for each in self._older(run, newest, ended, behind) if not each.alive and not each.unread]
        unread = any(each.unread for each in present)
        return Silence(
            tuple((each.rank, each.attempt, each.seen) for each in dead if (each.attempt, each.rank) not in ended),
            frozenset((each.attempt, each.rank) for each in present),
            unread,
            not unread and any(each.alive for each in present),
        )

    def _older(self, run: str, newest: int, ended: Collection[tuple[int, int]], behind: bool) -> Iterable[WriterFacts]:
        """Facts about the main processes of earlier attempts without an exit record."""
        received = self._presence.facts(run)
        for name, who in self._journals.writers(run):
            known = received.pop(name, None)
            if who.attempt < newest and (who.attempt, who.rank) not in ended:
                facts = self._journals.facts(run, name, known)
                if facts.main:
                    yield facts
        for each in received.values():
            if each.attempt < newest and each.main and each.beats and (each.attempt, each.rank) not in ended:
                yield replace(each, unread=behind)

    def _facts(self, run: str, ended: Collection[tuple[int, int]], behind: bool) -> list[WriterFacts]:
        """Facts from received records and from this disk; for a stored end the disk is not read."""
        received = self._presence.facts(run)
        here = self._journals.writers(run)
        newest = max((each.attempt for _, each in here), default=0)
        facts: list[WriterFacts] = []
        for name, who in here:
            known = received.pop(name, None)
            if who.attempt < newest:
                continue
            if known is not None and known.reported_end is not None:
                facts.append(known)
            elif known is not None or (who.attempt, who.rank) not in ended:
                facts.append(self._journals.facts(run, name, known))
        return facts + [replace(each, unread=behind) if behind else each for each in received.values()]


def _with_end(facts: WriterFacts, ends: Mapping[tuple[int, int], Ending]) -> WriterFacts:
    """Add the stored end to the facts about a writer that reported none since the hub started."""
    end = ends.get((facts.attempt, facts.rank))
    if end is None or not facts.main or facts.reported_end is not None:
        return facts
    return replace(facts, reported_end=ending_of(end.status), reported_at=end.time / 1e9)


def _stored(row: RunRow, attempt: int, present: list[WriterFacts], now: float, *, unread: bool) -> list[WriterFacts]:
    """Facts from the store about the ranks of an attempt that are not known otherwise."""
    covered = {each.rank for each in present if each.main}
    ends = [end for end in row.endings if end.attempt == attempt and end.rank not in covered]
    facts = [WriterFacts(attempt, end.time / 1e9, ending_of(end.status), end.time / 1e9, rank=end.rank) for end in ends]
    covered |= {end.rank for end in ends}
    latest = max((max(each.seen, each.touched) for each in (*present, *facts)), default=0.0)
    silent = len(covered) < row.ranks and (attempt == 1 or row.seen / 1e9 > latest + STALLED_SECONDS)
    if not covered or silent:
        seen = min(row.seen / 1e9, now)
        beats = bool(row.beginning) and names.ATTR_RECEIVED_FROM not in row.beginning
        interval = beat_interval(row.beginning)
        facts.append(WriterFacts(attempt, seen, beats=beats, interval=interval, unread=unread))
    return facts


def _changed(folder: str) -> int:
    """When entries of a folder changed; 0 when it does not exist, -1 while its time stamp is not reliable."""
    try:
        found = os.stat(folder)
    except OSError:
        return 0
    return found.st_mtime_ns if time.time() - found.st_mtime > 2.0 else -1


STORE_SECONDS = 10.0
WAIT_SECONDS = 1.0


class StateCounts:
    """Counts runs by state for frequent requests: the store is queried every ten seconds at most."""

    def __init__(
        self,
        presence: Presence,
        runs: Callable[[], Iterable[RunRow]],
        states: RunStates,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._presence, self._runs, self._states = presence, runs, states
        self._clock, self._now = clock, now
        self._due = float("-inf")
        self._stored: dict[str, tuple[RunRow, State]] = {}
        """The runs of the store and their states at the last query."""
        self._gone: set[str] = set()
        """Runs received that the store no longer has."""
        self._looking: threading.Thread | None = None
        self._error: Exception | None = None

    def counts(self) -> dict[str, int]:
        """Count the runs by state; an error of `runs` is raised, and until the next query counts are without them.

        A slow store is waited for a second; then the counts are those of the last query.
        """
        if self._clock() >= self._due:
            self._due = self._clock() + STORE_SECONDS
            self.begin().join(WAIT_SECONDS)
        error, self._error = self._error, None
        if error is not None:
            raise error
        received = self._presence.runs() - self._gone
        found: Counter[str] = Counter(state for run, (_, state) in self._stored.items() if run not in received)
        found.update(state for state in map(self._received_state, received) if state is not None)
        return dict(sorted(found.items()))

    def begin(self) -> threading.Thread:
        """Query the store in the background: the first table of many runs is then read before anyone asks for it."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self._look, name="stepscope-counts", daemon=True)
            self._looking.start()
        return self._looking

    def end(self, seconds: float) -> None:
        """Wait for a query that runs."""
        if self._looking is not None:
            self._looking.join(seconds)

    def _received_state(self, run: str) -> State | None:
        if run in self._stored:
            return self._states.state(self._stored[run][0])
        return run_state(self._presence.facts(run).values(), self._now())

    def _look(self) -> None:
        received = self._presence.runs()  # first: what is heard of is stored by then
        try:
            rows = self._runs()
            look = self._states.at_once()
            self._stored = {row.id: (row, look(row).state) for row in rows}
        except Exception as error:
            self._error = error
            return
        self._error = None
        self._gone = set(received - self._stored.keys())
