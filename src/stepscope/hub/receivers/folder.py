"""The folder receiver: follows every journal under a home, active ones more often than silent ones."""

import contextlib
import heapq
import os
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.hub.counters import Counters
from stepscope.hub.sources import ReceivedBatch
from stepscope.journal import layout
from stepscope.journal.following import Cursors
from stepscope.journal.segments import READ_BYTES, Position, Tail
from stepscope.model.records import Record

RECEIVER = "folder"
SOONEST, LATEST = 0.25, 60.0
"""Seconds between two looks at a writer: an eighth of its silence, within these bounds."""
RUN_SOONEST, RUN_LATEST = 1.0, 5.0
"""The same for new writers of a run."""
HOME_SECONDS = 1.0


class _Watched:
    """A folder looked at again and again; `run` is empty for the folder of runs, `writer` for a run."""

    __slots__ = ("folder", "mtime", "run", "seen", "tail", "turn", "writer")

    def __init__(self, folder: Path, run: str = "", writer: str = "") -> None:
        self.folder, self.run, self.writer = folder, run, writer
        self.mtime = -1
        self.seen = 0.0
        """When it last changed, in seconds of the wall clock."""
        self.tail: Tail | None = None
        self.turn = 0
        """Its newest entry in the queue; older ones do not count."""

    @property
    def key(self) -> str:
        return f"{self.run}/{self.writer}"


class FolderReceiver:
    """Batches from trainers' journals. One thread reads; what was read counts as stored only after `settle`."""

    def __init__(
        self,
        home: Path,
        cursors: Cursors,
        counters: Counters,
        mask: Callable[[list[Record]], list[Record]] = lambda records: records,
        clock: Callable[[], float] = time.time,
        *,
        only: str | None = None,
    ) -> None:
        self._only = only
        """The one run that is followed; None for all."""
        self._cursors = cursors
        self._counters = counters
        self._mask = mask
        self._clock = clock
        self._known: set[Path] = set()
        self._queue: list[tuple[float, int, _Watched]] = []
        self._count = 0
        self._read: dict[str, _Watched] = {}
        """Writers read since the last `settle`."""
        self.drained: dict[str, tuple[Position, int]] = {}
        """Where a journal ends in a torn frame, by writer: the position, and the size of that segment then."""
        self.writers = 0
        self._add(_Watched(layout.runs_folder(home)), due=0.0)

    def read(self, limit: int = READ_BYTES) -> list[ReceivedBatch]:
        """Return the next batches of one writer that is due and has some, about `limit` bytes; none when none is."""
        now = self._clock()
        while self._queue and self._queue[0][0] <= now:
            _, turn, watched = heapq.heappop(self._queue)
            if turn != watched.turn:
                continue
            try:
                items = self._look(watched, now, limit)
            except Exception:  # raised again: a folder that fails must stay in the queue
                self._add(watched, now + RUN_LATEST)
                raise
            if items:
                return items
        return []

    def _look(self, watched: _Watched, now: float, limit: int) -> list[ReceivedBatch]:
        if watched.writer:
            return self._follow(watched, now, limit)
        if watched.run:
            self._look_for_writers(watched, now)
        else:
            self._look_for_runs(watched, now)
        return []

    def settle(self) -> bool:
        """Move the cursors to what was read; tell whether any moved."""
        for key, watched in self._read.items():
            if watched.tail is not None:
                self._cursors.set(key, watched.tail.position)
                self._count_damage(watched.tail)
        moved = bool(self._read)
        self._read.clear()
        return moved

    def rewind(self) -> None:
        """Forget what was read since the last `settle`; it is read again, at once."""
        for watched in self._read.values():
            watched.tail = None
            self._add(watched, due=0.0)
        self._read.clear()

    def next_due(self) -> float:
        """Seconds until something is due."""
        return max(self._queue[0][0] - self._clock(), 0.0) if self._queue else HOME_SECONDS

    def _add(self, watched: _Watched, due: float) -> None:
        self._count += 1
        watched.turn = self._count
        heapq.heappush(self._queue, (due, self._count, watched))

    def _look_for_runs(self, watched: _Watched, now: float) -> None:
        if _changed(watched, now):
            for run in layout.list_runs(watched.folder.parent) if self._only is None else [self._only]:
                self._meet(_Watched(watched.folder / run, run))
        self._add(watched, now + HOME_SECONDS)

    def _look_for_writers(self, watched: _Watched, now: float) -> None:
        changed = _changed(watched, now)
        if changed is None:
            self._known.discard(watched.folder)
            return
        if changed:
            for writer in layout.list_writers(watched.folder.parent.parent, watched.run):
                if self._meet(_Watched(watched.folder / writer, watched.run, writer)):
                    self.writers += 1
        self._add(watched, now + _wait(now - watched.seen, RUN_SOONEST, RUN_LATEST))

    def _meet(self, fresh: _Watched) -> bool:
        """Follow a folder from now on, the one changed last first; False when it is followed already."""
        if fresh.folder in self._known:
            return False
        self._known.add(fresh.folder)
        try:
            changed = os.stat(fresh.folder).st_mtime
        except OSError:
            changed = 0.0
        self._add(fresh, due=-changed)
        return True

    def _follow(self, watched: _Watched, now: float, limit: int) -> list[ReceivedBatch]:
        position = watched.tail.position if watched.tail is not None else self._cursors.get(watched.key)
        more = _unread(watched, position, now)
        if more is None:
            self._forget(watched)
            return []
        if not more:
            self._add(watched, now + _wait(now - watched.seen, SOONEST, LATEST))
            return []
        if watched.tail is None:
            watched.tail = Tail(watched.folder, position)
        masked = (batch._replace(records=self._mask(batch.records)) for batch in watched.tail.read(limit))
        items = [ReceivedBatch(RECEIVER, batch) for batch in masked]
        self._read[watched.key] = watched
        if not items:
            self._note_end(watched.key, watched.tail)
        self._add(watched, now if items else now + _wait(now - watched.seen, SOONEST, LATEST))
        return items

    def _note_end(self, key: str, tail: Tail) -> None:
        with contextlib.suppress(OSError):
            size = os.stat(layout.segment_path(tail.folder, tail.position.segment)).st_size
            self.drained[key] = tail.position, size

    def _count_damage(self, tail: Tail) -> None:
        self._counters.add("dropped", RECEIVER, tail.damaged, "damaged frame")
        self._counters.add("rejected", RECEIVER, tail.unreadable, "unreadable record")
        tail.damaged = tail.unreadable = 0

    def _forget(self, watched: _Watched) -> None:
        self._known.discard(watched.folder)
        self._read.pop(watched.key, None)
        self._cursors.forget(watched.key)
        self.drained.pop(watched.key, None)
        self.writers -= 1


def _changed(watched: _Watched, now: float) -> bool | None:
    """Tell whether entries came or went since the last look; None when the folder is gone."""
    try:
        found = os.stat(watched.folder)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    fresh = found.st_mtime_ns != watched.mtime
    watched.mtime = _settled(found, now)
    watched.seen = found.st_mtime
    return fresh


def _unread(watched: _Watched, position: Position, now: float) -> int | None:
    """Count the bytes a writer has behind a position, with two looks at the disk; None when it is gone."""
    fresh = _changed(watched, now)
    if fresh is None:
        return None
    try:
        segment = os.stat(layout.segment_path(watched.folder, position.segment))
    except OSError:  # not yet there, or gone under the quota: the tail finds the next
        return int(fresh)
    watched.seen = max(watched.seen, segment.st_mtime)
    return segment.st_size - position.offset or int(fresh)


def _settled(found: os.stat_result, now: float) -> int:
    """The time stamp of a folder; none while it may change again within its stamp's precision."""
    return found.st_mtime_ns if now - found.st_mtime > 2.0 else -1


def _wait(silence: float, soonest: float, latest: float) -> float:
    return min(max(silence / 8, soonest), latest)
