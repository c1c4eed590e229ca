"""All journals of a home folder as one stream, and the cursors that remember how far it has been delivered."""

import contextlib
import heapq
import os
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from stepscope.journal import layout
from stepscope.journal.atomic_files import replace_file
from stepscope.journal.segments import READ_BYTES, Position, Tail, Unpack
from stepscope.model.ports import Batch
from stepscope.wire import frames


class _File(msgspec.Struct):
    """The content of a cursor file; the checksum guards against a flipped bit that would skip batches."""

    crc: int
    positions: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_file = msgspec.json.Decoder(_File).decode
_decode_positions = msgspec.json.Decoder(dict[str, Position]).decode


class Cursors:
    """The positions of one sink, by writer path relative to the runs folder.

    A damaged file counts as none: everything is read again, and a store ignores what it has seen. One that is
    there and cannot be read raises OSError.
    """

    def __init__(self, home: Path, sink: str) -> None:
        self._path = home / "cursors" / f"{sink}.json"
        self._positions = self._load()

    def get(self, writer: str) -> Position:
        """The position of a writer; the start for one never seen."""
        return self._positions.get(writer, Position())

    def set(self, writer: str, position: Position) -> None:
        """Set a writer's position; `save` persists it."""
        self._positions[writer] = position

    def forget(self, writer: str) -> None:
        """Drop a writer whose folder is gone."""
        self._positions.pop(writer, None)

    def prune(self, is_gone: Callable[[str], bool]) -> None:
        """Remove the writers that are gone, such as those of a deleted run; `save` persists it."""
        for writer in [writer for writer in self._positions if is_gone(writer)]:
            del self._positions[writer]

    def save(self) -> None:
        """Replace the file with the positions as they are now; OSError leaves the file as it was."""
        positions = _encode(self._positions)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, _encode(_File(zlib.crc32(positions), msgspec.Raw(positions))), fsync=True)

    def _load(self) -> dict[str, Position]:
        try:
            file = _decode_file(self._path.read_bytes())
            if zlib.crc32(file.positions) != file.crc:
                return {}
            return _decode_positions(file.positions)
        except (FileNotFoundError, ValueError):
            return {}


class HostCursors:
    """The positions of one sink in one file per writing host, so that shippers of several hosts can share a home."""

    def __init__(self, home: Path, sink: str) -> None:
        self._home, self._sink = home, sink
        self._files: dict[str, Cursors] = {}
        self._unsaved: set[str] = set()
        self._pruned: set[str] = set()

    def get(self, writer: str) -> Position:
        """The position of a writer; the start for one never seen."""
        return self._file_of(writer).get(writer)

    def set(self, writer: str, position: Position) -> None:
        """Set a writer's position; `save` persists it."""
        self._file_of(writer).set(writer, position)
        self._unsaved.add(_host(writer))

    def forget(self, writer: str) -> None:
        """Drop a writer whose folder is gone."""
        self._file_of(writer).forget(writer)

    def save(self) -> None:
        """Save the files that changed; after OSError the next call saves the rest."""
        for host in sorted(self._unsaved):
            cursors = self._files[host]
            if host not in self._pruned:
                self._pruned.add(host)
                cursors.prune(lambda writer: not (layout.runs_folder(self._home) / writer).is_dir())
            cursors.save()
            self._unsaved.discard(host)

    def _file_of(self, writer: str) -> Cursors:
        host = _host(writer)
        if host not in self._files:
            self._files[host] = Cursors(self._home, f"{self._sink}@{host}")
        return self._files[host]


def _host(writer: str) -> str:
    name = layout.parse_writer(writer.partition("/")[2])
    return name.host if name is not None else ""


SOONEST, LATEST = 0.1, 30.0
"""Seconds between two looks at a writer: an eighth of its silence, within these bounds."""
RUN_SOONEST, RUN_LATEST = 1.0, 5.0
"""The same for new writers of a run."""
HOME_SECONDS = 1.0
"""Seconds between two looks for new runs."""

Wanted = Callable[[layout.WriterName], bool]
"""Returns whether a writer is to be followed."""


class _Folder:
    """A folder that is looked at repeatedly; `run` is empty for the folder of runs, `writer` for a run."""

    __slots__ = ("changed", "mtime", "path", "run", "tail", "turn", "writer")

    def __init__(self, path: Path, run: str = "", writer: str = "") -> None:
        self.path, self.run, self.writer = path, run, writer
        self.mtime = -1
        self.changed = 0.0
        """When it last changed, in seconds of the wall clock."""
        self.tail: Tail | None = None
        self.turn = 0
        """Its newest entry in the queue; older entries are ignored."""

    @property
    def key(self) -> str:
        return f"{self.run}/{self.writer}"


class Following:
    """The journals of a home, read in turn: active ones often, silent ones rarely. One thread reads.

    What was read counts as delivered only after `settle`. `sink` names the cursors, which `settle` saves unless
    `remember` is false; a caller that passes `Cursors` saves them itself. With `frames.unpack_raw_batch` records stay
    packed, for a sink that sends them as they are.
    """

    def __init__(
        self,
        home: Path,
        sink: str | Cursors,
        *,
        runs: Callable[[], Iterable[str]] | None = None,
        wanted: Wanted = lambda name: True,
        remember: bool = True,
        unpack: Unpack = frames.unpack_batch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home, self._unpack, self._clock = home, unpack, clock
        self._cursors = HostCursors(home, sink) if isinstance(sink, str) else sink
        self._save = self._cursors.save if remember and isinstance(sink, str) else lambda: None
        self._list_runs, self._wanted = runs, wanted
        self._root = _Folder(layout.runs_folder(home))
        self._runs: dict[str, _Folder] = {}
        self._writers: dict[str, _Folder] = {}
        self._read: dict[str, _Folder] = {}
        """Writers read since the last `settle`."""
        self._queue: list[tuple[float, int, _Folder]] = []
        self._turns = 0
        self._now = float("-inf")
        self.torn: dict[str, tuple[Position, int]] = {}
        """Where a journal ends in a torn frame, by writer: the position, and the size of that segment then."""
        self.damaged = self.unreadable = 0
        """Damaged frames and undecodable records in everything settled so far."""
        self._schedule(self._root, 0.0)

    @property
    def writers(self) -> int:
        """How many writers are followed."""
        return len(self._writers)

    def read(self, limit: int = READ_BYTES) -> list[Batch]:
        """Return the next batches of the writers that are due, about `limit` bytes at most; none when none has any."""
        now = self._clock()
        if now < self._now:  # the clock was set back
            self.check_all()
        self._now = now
        batches: list[Batch] = []
        room = limit
        while room > 0 and self._queue and self._queue[0][0] <= now:
            _, turn, folder = heapq.heappop(self._queue)
            if turn != folder.turn:
                continue
            try:
                found, size = self._visit(folder, now, room)
            except Exception:  # the folder must stay in the queue, and what was read must be returned
                self._schedule(folder, now + RUN_LATEST)
                if batches:
                    return batches
                raise
            batches += found
            room -= size
        return batches

    @property
    def is_settled(self) -> bool:
        """Whether nothing was read since the last `settle`."""
        return not self._read

    def settle(self) -> None:
        """Mark everything read as delivered; OSError when that could not be saved, which the next call retries."""
        for key, folder in self._read.items():
            if folder.tail is not None:
                self._cursors.set(key, folder.tail.position)
                damaged, unreadable = folder.tail.take_damage()
                self.damaged += damaged
                self.unreadable += unreadable
        self._read.clear()
        self._save()

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again, at once."""
        for folder in self._read.values():
            folder.tail = None
            self._schedule(folder, 0.0)
        self._read.clear()

    def next_due(self) -> float:
        """Seconds until something is due."""
        return max(self._queue[0][0] - self._clock(), 0.0) if self._queue else HOME_SECONDS

    def unread(self) -> int:
        """Return the bytes behind the cursors, including what was read and not settled."""
        now = self._clock()
        self._find_runs(now)
        for folder in list(self._runs.values()):
            self._find_writers(folder, now)
        return self.unread_now()

    def unread_now(self) -> int:
        """The same for the writers already known."""
        return sum(bytes_behind(folder.path, self._cursors.get(key)) for key, folder in list(self._writers.items()))

    def unread_of(self, writers: Iterable[str]) -> int:
        """The same for some of these, by their paths relative to the runs folder."""
        known = [folder for key in writers if (folder := self._writers.get(key)) is not None]
        return sum(bytes_behind(folder.path, self._cursors.get(folder.key)) for folder in known)

    def check_all(self) -> None:
        """Check every folder at the next `read`, however long it was silent."""
        for folder in (self._root, *self._runs.values(), *self._writers.values()):
            folder.mtime = -1
            self._schedule(folder, 0.0)

    def _schedule(self, folder: _Folder, due: float) -> None:
        self._turns += 1
        folder.turn = self._turns
        heapq.heappush(self._queue, (due, self._turns, folder))

    def _visit(self, folder: _Folder, now: float, limit: int) -> tuple[list[Batch], int]:
        if folder.writer:
            return self._read_writer(folder, now, limit)
        if folder.run:
            self._find_writers(folder, now)
        else:
            self._find_runs(now)
        return [], 0

    def _find_runs(self, now: float) -> None:
        if self._list_runs is not None:
            wanted = set(self._list_runs())
            for run in self._runs.keys() - wanted:
                self._drop_run(run)
            self._add_runs(wanted)
        elif _has_changed(self._root, now):
            self._add_runs(layout.list_runs(self._home))
        self._schedule(self._root, now + HOME_SECONDS)

    def _add_runs(self, runs: Iterable[str]) -> None:
        for run in runs:
            if run not in self._runs:
                self._runs[run] = _Folder(self._root.path / run, run)
                self._schedule_new(self._runs[run])

    def _find_writers(self, folder: _Folder, now: float) -> None:
        changed = _has_changed(folder, now)
        if changed is None and self._list_runs is None:
            self._drop_run(folder.run)
            return
        for writer in layout.list_writers(self._home, folder.run) if changed else ():
            name = layout.parse_writer(writer)
            found = _Folder(folder.path / writer, folder.run, writer)
            if found.key not in self._writers and name is not None and self._wanted(name):
                self._writers[found.key] = found
                self._schedule_new(found)
        self._schedule(folder, now + _wait(now - folder.changed, RUN_SOONEST, RUN_LATEST))

    def _schedule_new(self, folder: _Folder) -> None:
        """Look at a new folder at once, the one changed last first."""
        try:
            changed = os.stat(folder.path).st_mtime
        except OSError:
            changed = 0.0
        self._schedule(folder, -changed)

    def _drop_run(self, run: str) -> None:
        self._runs.pop(run).turn = 0
        for folder in [each for each in self._writers.values() if each.run == run]:
            self._drop_writer(folder)

    def _drop_writer(self, folder: _Folder) -> None:
        folder.turn = 0
        for known in (self._writers, self._read, self.torn):
            known.pop(folder.key, None)
        if not folder.path.is_dir():
            self._cursors.forget(folder.key)

    def _read_writer(self, folder: _Folder, now: float, limit: int) -> tuple[list[Batch], int]:
        before = folder.tail.position if folder.tail is not None else self._cursors.get(folder.key)
        unread = _unread(folder, before, now)
        if unread is None:
            self._drop_writer(folder)
            return [], 0
        later = now + _wait(now - folder.changed, SOONEST, LATEST)
        if not unread:
            self._schedule(folder, later)
            return [], 0
        if folder.tail is None:
            folder.tail = Tail(folder.path, before, self._unpack)
        batches = folder.tail.read(limit)
        after = folder.tail.position
        if after != before:
            self._read[folder.key] = folder
        if not batches:
            self._note_end(folder.key, folder.tail)
        self._schedule(folder, now if batches else later)
        if not batches:
            return [], 0
        return batches, max(after.offset - before.offset if after.segment == before.segment else limit, 0)

    def _note_end(self, key: str, tail: Tail) -> None:
        with contextlib.suppress(OSError):
            size = os.stat(layout.segment_path(tail.folder, tail.position.segment)).st_size
            self.torn[key] = tail.position, size


def _has_changed(folder: _Folder, now: float) -> bool | None:
    """Return whether entries came or went since the last look; None when the folder is gone."""
    try:
        found = os.stat(folder.path)
    except FileNotFoundError:
        return None
    except OSError:
        return False
    changed = found.st_mtime_ns != folder.mtime
    # a folder changed just now may change again within the precision of its time stamp
    folder.mtime = found.st_mtime_ns if now - found.st_mtime > 2.0 else -1
    folder.changed = found.st_mtime
    return changed


def _unread(folder: _Folder, position: Position, now: float) -> int | None:
    """Estimate the bytes of a writer after a position, with two calls of stat; None when it is gone."""
    changed = _has_changed(folder, now)
    if changed is None:
        return None
    try:
        segment = os.stat(layout.segment_path(folder.path, position.segment))
    except OSError:  # not there yet, or removed under the quota: the tail finds the next
        return int(changed)
    folder.changed = max(folder.changed, segment.st_mtime)
    return segment.st_size - position.offset or int(changed)


def _wait(silence: float, soonest: float, latest: float) -> float:
    return min(max(silence / 8, soonest), latest)


def bytes_behind(folder: Path, position: Position) -> int:
    """Count the bytes of a writer after a position."""
    count = 0
    for path in layout.list_segments(folder):
        index = int(path.stem)
        try:
            size = os.stat(path).st_size
        except OSError:
            continue
        if index > position.segment:
            count += size
        elif index == position.segment:
            count += max(size - position.offset, 0)
    return count
