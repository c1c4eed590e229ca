"""All journals of a home folder as one stream for one sink, and the cursors that remember how far it has read."""

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from stepscope.journal import layout
from stepscope.journal.files import replace_file
from stepscope.journal.segments import Position, Tail, Unpack
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


LOOK_SECONDS = 1.0
"""How often new runs and writers are looked for."""
SOONEST, LATEST = 0.1, 30.0
"""Seconds between two looks at a writer: an eighth of its silence, within these bounds."""

Wanted = Callable[[layout.WriterName], bool]
"""Returns whether a writer is to be followed."""


class _Followed:
    """One writer: its tail, and when to check it again."""

    __slots__ = ("due", "folder", "host", "key", "tail")

    def __init__(self, tail: Tail, key: str, host: str) -> None:
        self.folder, self.key, self.host = tail.folder, key, host
        self.tail = tail
        self.due = 0.0


class Following:
    """The journals of a home, read in turn. What was read counts as delivered only after `settle`.

    Cursors are kept by sink and by the host that wrote, so that shippers of several hosts can share a home. With
    `frames.unpack_raw_batch` records stay packed, for a sink that sends them as they are.
    """

    def __init__(
        self,
        home: Path,
        sink: str,
        *,
        runs: Callable[[], Iterable[str]] | None = None,
        wanted: Wanted = lambda name: True,
        remember: bool = True,
        unpack: Unpack = frames.unpack_batch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home, self._sink, self._unpack, self._clock = home, sink, unpack, clock
        self._runs = runs or (lambda: layout.list_runs(home))
        self._wanted = wanted
        self._remember = remember
        self._cursors: dict[str, Cursors] = {}
        self._pruned: set[str] = set()
        """The hosts whose cursors were pruned."""
        self._known: dict[str, _Followed] = {}
        self._turn: deque[_Followed] = deque()
        self._read: dict[str, tuple[_Followed, Position]] = {}
        """Writers read since the last `settle`, with their positions before."""
        self._looked = float("-inf")
        self.damaged = self.unreadable = 0
        """Damaged frames and undecodable records in everything settled so far."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next batches, round-robin over the writers, about `limit` bytes at most; empty at the end."""
        now = self._clock()
        if not 0 <= now - self._looked < LOOK_SECONDS:
            self.look()
        batches: list[Batch] = []
        room = limit
        for _ in range(len(self._turn)):
            followed = self._turn[0]
            self._turn.rotate(-1)
            if followed.due <= now or followed.due > now + LATEST:
                found, size = self._read_one(followed, room, now)
                batches += found
                room -= size
                if room <= 0:
                    break
        return batches

    def settle(self) -> None:
        """Mark everything read as delivered; OSError when that could not be saved, which the next call retries."""
        changed = set()
        for followed, _ in self._read.values():
            self._cursors_of(followed.host).set(followed.key, followed.tail.position)
            self.damaged += followed.tail.damaged
            self.unreadable += followed.tail.unreadable
            followed.tail.damaged = followed.tail.unreadable = 0
            changed.add(followed.host)
        self._read.clear()
        if self._remember:
            for host in changed:
                cursors = self._cursors_of(host)
                if host not in self._pruned:
                    self._pruned.add(host)
                    cursors.prune(lambda writer: not (layout.runs_folder(self._home) / writer).is_dir())
                cursors.save()

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""
        for followed, position in self._read.values():
            followed.tail = Tail(followed.folder, position, self._unpack)
            followed.due = 0.0
        self._read.clear()

    def unread(self) -> int:
        """Return the bytes behind the cursors, including what was read and not settled."""
        self.look()
        return self.unread_now()

    def unread_now(self) -> int:
        """The same for the writers already known."""
        known = list(self._known.values())
        return sum(_bytes_behind(followed.folder, self._settled(followed)) for followed in known)

    def look(self) -> None:
        """Look for new writers, and forget those whose folders are gone."""
        self._looked = self._clock()
        present = set()
        for run in self._runs():
            for writer in layout.list_writers(self._home, run):
                name = layout.parse_writer(writer)
                if name is not None and self._wanted(name):
                    present.add(f"{run}/{writer}")
                    self._meet(run, writer, name)
        for key in self._known.keys() - present:
            gone = self._known.pop(key)
            self._turn.remove(gone)
            self._read.pop(key, None)
            self._cursors_of(gone.host).forget(key)

    def hurry(self) -> None:
        """Check every writer at the next `read`, however long it was silent."""
        self._looked = float("-inf")
        for followed in self._known.values():
            followed.due = 0.0

    def _meet(self, run: str, writer: str, name: layout.WriterName) -> None:
        key = f"{run}/{writer}"
        if key not in self._known:
            folder = layout.writer_folder(self._home, run, writer)
            position = self._cursors_of(name.host).get(key)
            self._known[key] = _Followed(Tail(folder, position, self._unpack), key, name.host)
            self._turn.append(self._known[key])

    def _cursors_of(self, host: str) -> Cursors:
        if host not in self._cursors:
            self._cursors[host] = Cursors(self._home, f"{self._sink}@{host}")
        return self._cursors[host]

    def _settled(self, followed: _Followed) -> Position:
        read = self._read.get(followed.key)
        return read[1] if read is not None else followed.tail.position

    def _read_one(self, followed: _Followed, limit: int, now: float) -> tuple[list[Batch], int]:
        before = followed.tail.position
        batches = followed.tail.read(limit)
        after = followed.tail.position
        if not batches:
            followed.due = now + _pause(followed.folder, after, now)
        if after != before:
            self._read.setdefault(followed.key, (followed, before))
        moved = after.offset - before.offset if after.segment == before.segment else limit
        return batches, max(moved, 0)


def _pause(folder: Path, position: Position, now: float) -> float:
    try:
        silence = now - os.stat(layout.segment_path(folder, position.segment)).st_mtime
    except OSError:
        return SOONEST
    return min(max(silence / 8, SOONEST), LATEST)


def _bytes_behind(folder: Path, position: Position) -> int:
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
