"""Segments of a writer: append frames, and read them back, also while they are written."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from msgspec import Meta, Struct

from stepscope.journal import layout
from stepscope.journal.atomic_files import sync_folder
from stepscope.journal.quota import EndReserve
from stepscope.model.ports import Batch, Writer
from stepscope.wire import frames

READ_BYTES = 4 * 1024 * 1024
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Unpack = Callable[[memoryview], tuple[int, list[Any], int]]
"""Decodes a batch: sequence number, records, and how many could not be decoded; ValueError for anything else."""


class Position(Struct, frozen=True):
    """The next frame to read: segment index and byte offset, and the batches already read before it.

    The offset is valid as long as the last frame read is still at `last` with the checksum `crc`. Otherwise the segment
    was rewritten or truncated: it is read again from its start, and batches with a sequence number below `seq` are
    skipped. Inodes are not used, because they are reused and not stable everywhere.
    """

    segment: Count = 0
    offset: Count = 0
    seq: Count = 0
    last: Count = 0
    crc: Count = 0


class Tail:
    """A reader of one writer's folder. `read` returns what is there now; call it again for more.

    No batch is returned twice. Nothing is locked while the writer appends and the quota rewrites segments. `unpack` is
    for a journal that holds something else than records.
    """

    def __init__(self, folder: Path, position: Position | None = None, unpack: Unpack = frames.unpack_batch) -> None:
        self.folder = folder
        self._unpack = unpack
        self.position = position or Position()
        self.writer: Writer | None = None
        self.damaged = 0
        """Damaged frames."""
        self.unreadable = 0
        """Records inside whole frames that could not be decoded."""

    def take_damage(self) -> tuple[int, int]:
        """Return the damaged frames and the unreadable records since the last call."""
        found = self.damaged, self.unreadable
        self.damaged = self.unreadable = 0
        return found

    def read(self, limit: int = READ_BYTES) -> list[Batch]:
        """Return the next complete batches, about `limit` bytes at most; none at the end.

        A segment that exists and cannot be opened or read just now is not skipped.
        """
        while True:
            segments = layout.list_segments(self.folder)
            ahead = [path for path in segments if int(path.stem) >= self.position.segment]
            if not ahead:
                return []
            if int(ahead[0].stem) != self.position.segment:
                self._move(ahead[0])
            before = self.position
            batches, ended = self._read_segment(ahead[0], limit, closed=len(ahead) > 1)
            if ended and len(ahead) > 1:
                self._move(ahead[1])
            if batches or self.position == before:
                return batches

    def read_all(self) -> Iterator[Batch]:
        """Yield every batch there is now."""
        while batches := self.read():
            yield from batches

    def _read_segment(self, path: Path, limit: int, *, closed: bool) -> tuple[list[Batch], bool]:
        """Read on in one segment; the flag is true at its end."""
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self.position.offset and not self._holds(file, size):
                    self._move(path)
                file.seek(self.position.offset)
                data = _read_frames(file, limit)
        except FileNotFoundError:
            return [], True
        except OSError:
            return [], False
        ended = self.position.offset + len(data) >= size
        return self._take(data, final=closed and ended), ended

    def _holds(self, file: BinaryIO, size: int) -> bool:
        """Return whether the last frame read is still at its place in the segment."""
        file.seek(self.position.last)
        prefix = frames.prefix_at(file.read(frames.PREFIX_BYTES))
        return prefix is not None and prefix.crc == self.position.crc and self.position.offset <= size

    def _take(self, data: bytes, *, final: bool) -> list[Batch]:
        batches: list[Batch] = []
        here = self.position
        end, seq, last, crc = here.offset, here.seq, here.last, here.crc
        for found in frames.scan(data, final=final):
            end = here.offset + found.end
            if isinstance(found, frames.Damage):
                self.damaged += 1
                continue
            last, crc = here.offset + found.start, found.crc
            batch = self._batch(found.payload, seq)
            if batch is not None:
                batches.append(batch)
                seq = batch.seq + 1
        self.position = Position(here.segment, end, seq, last, crc)
        return batches

    def _batch(self, payload: memoryview, least: int) -> Batch | None:
        """Decode a batch; None for a head, a sequence number below `least`, and damage."""
        try:
            if frames.is_head(payload):
                self.writer = frames.unpack_head(payload)
                return None
            if frames.batch_seq(payload) < least:
                return None
            seq, records, bad = self._unpack(payload)
        except ValueError:
            self.damaged += 1
            return None
        self.unreadable += bad
        if self.writer is None:
            self.writer = find_writer(self.folder)
        return Batch(self.writer, seq, records)

    def _move(self, path: Path) -> None:
        self.position = Position(segment=int(path.stem), seq=self.position.seq)


def _read_frames(file: BinaryIO, limit: int) -> bytes:
    """Read `limit` bytes, and more while they show neither a whole frame nor damage before one."""
    data = file.read(max(limit, frames.PREFIX_BYTES))
    while next(frames.scan(data), None) is None and (more := file.read(len(data))):
        data += more
    return data


def read_writer(folder: Path) -> Iterator[Batch]:
    """Yield every batch a writer has written so far."""
    return Tail(folder).read_all()


class RunReader:
    """Reads the journals of one run side by side, including writers that start later, and nothing twice."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self._run = home, run
        self.tails: dict[str, Tail] = {}
        """One for each writer, by attempt and rank; add one to read only part of a writer."""

    def look(self) -> dict[str, Tail]:
        """Look for new writers; return the tails of all."""
        for name in sorted(layout.list_writers(self._home, self._run), key=_attempt_and_rank):
            if name not in self.tails:
                self.tails[name] = Tail(layout.writer_folder(self._home, self._run, name))
        return self.tails

    def read(self) -> Iterator[Batch]:
        """Yield the batches that came since the last call, writer by writer."""
        for tail in self.look().values():
            yield from tail.read_all()


def _attempt_and_rank(name: str) -> tuple[int, int, str]:
    parsed = layout.parse_writer(name)
    return (parsed.attempt, parsed.rank, name) if parsed else (0, 0, name)


def next_seq(folder: Path) -> int:
    """Return the sequence number after the last batch in a folder."""
    for path in reversed(layout.list_segments(folder)):
        tail = Tail(folder, Position(segment=int(path.stem)))
        for _ in tail.read_all():
            pass
        if tail.position.seq:
            return tail.position.seq
    return 0


def find_writer(folder: Path) -> Writer:
    """Return the writer of a folder, from the first readable head, else from the folder's name."""
    for path in layout.list_segments(folder):
        try:
            with open(path, "rb") as file:
                found = next(frames.scan(_read_frames(file, frames.PREFIX_BYTES)), None)
            if isinstance(found, frames.Frame) and frames.is_head(found.payload):
                return frames.unpack_head(found.payload)
        except (OSError, ValueError):
            continue
    name = layout.parse_writer(folder.name) or layout.WriterName(0, 1, "", 0, "")
    return Writer(
        id=folder.name,
        run=folder.parent.name,
        project="",
        rank=name.rank,
        attempt=name.attempt,
        host=name.host,
        pid=name.pid,
    )


SEGMENT_BYTES = 16 * 1024 * 1024


class Journal:
    """The open journal of one writer. Not thread-safe: one thread appends.

    No sequence number is used for two batches and no index for two segments, even after a failure or when the folder
    vanished; a folder that already holds segments is continued.
    """

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: bool = False,
        on_segment: Callable[[], None] = lambda: None,
    ) -> None:
        """Touch nothing yet. `on_segment` is called for each new segment, before its first batch; must not raise."""
        self.folder = folder
        self.writer = writer
        self._on_segment = on_segment
        self.seq = 0
        self.segment_bytes = segment_bytes
        self._fsync = fsync
        self._fd = -1
        self._file = (0, 0)
        """Device and inode of the open segment."""
        self._path: Path | None = None
        self._size = 0
        self._full = 0
        self._next_index = 0
        self.damages = 0
        """How often the open segment was found removed or changed."""

    def append(self, records: Sequence[bytes]) -> int:
        """Write packed records as one batch and return its bytes; OSError when nothing was written.

        On return the batch survives the death of the process, with `fsync` also that of the machine. ValueError when
        the records together are larger than a frame may be.
        """
        self.check()
        if self._size >= self._full:
            self.close()
        if self._fd < 0:
            self._open()
        data = frames.pack_batch(self.seq, records)
        self.seq += 1  # also if the write fails: after a failed fsync a reader may have seen the batch
        self._write(data)
        return len(data)

    def append_reserved(self, reserve: EndReserve, records: Sequence[bytes]) -> None:
        """Write the last batch as a segment in reserved space, for a full disk; OSError when nothing was written."""
        self.close()
        index = self._free_index(layout.list_segments(self.folder))
        data = frames.pack_head(self.writer) + frames.pack_batch(self.seq, records)
        reserve.write(layout.segment_path(self.folder, index), data)
        self.seq += 1
        self._next_index = index + 1

    def check(self) -> None:
        """Leave the open segment if it was removed or changed, or if its descriptor was closed or taken over."""
        if self._fd < 0:
            return
        intact = self._is_intact()
        self.damages += not intact
        if not intact or not self._is_open():
            self.close()

    def close(self) -> None:
        """Close the open segment; a later append opens the next. A descriptor of another file stays open."""
        is_open, fd, self._fd = self._is_open(), self._fd, -1
        if is_open:
            with contextlib.suppress(OSError):
                os.close(fd)

    @property
    def end(self) -> tuple[int, int]:
        """The index of the segment written last, and its size; of none, 0 and 0."""
        return max(self._next_index - 1, 0), self._size

    def current(self) -> Path | None:
        """The segment being written, if one is open."""
        return self._path if self._fd >= 0 else None

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        present = layout.list_segments(self.folder)
        if present and not self._next_index:
            self.seq = max(self.seq, next_seq(self.folder))
        index = self._free_index(present)
        path = layout.segment_path(self.folder, index)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._size = 0
        found = os.fstat(self._fd)
        self._file = found.st_dev, found.st_ino
        try:
            self._write(frames.pack_head(self.writer))
            if self._fsync:
                for folder in (self.folder, *self.folder.parents[:2]):  # names of the segment, its writer and its run
                    sync_folder(folder)
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self._path, self._next_index = path, index + 1
        self._full = max(self.segment_bytes, self._size + 1)  # at least one batch, or retries would accumulate heads
        self._on_segment()

    def _free_index(self, present: Sequence[Path]) -> int:
        return max(self._next_index, int(present[-1].stem) + 1 if present else 0)

    def _write(self, data: bytes) -> None:
        """Write all data, or truncate what was written."""
        if not self._is_open():
            self._fd = -1
            raise OSError(errno.EBADF, "the descriptor of the journal was closed by another part of the program")
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            if self._fsync:
                os.fsync(self._fd)
        except OSError:
            self._take_back()
            raise
        self._size += len(data)

    def _take_back(self) -> None:
        """Truncate what a failed write left; if that fails too, start a new segment."""
        try:
            found = os.fstat(self._fd)
            if (found.st_dev, found.st_ino) != self._file:
                self._fd = -1
                return
            os.ftruncate(self._fd, self._size)
        except OSError:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _is_open(self) -> bool:
        """Return whether the descriptor is still that of the segment.

        Programs that close all descriptors, as daemons do, give the same numbers to their own files. The size is
        compared because a new file may have the inode of a removed segment.
        """
        try:
            found = os.fstat(self._fd)
            if (found.st_dev, found.st_ino) != self._file:
                return False
            return found.st_size == self._size or os.path.samestat(found, os.stat(self._path or ""))
        except OSError:
            return False

    def _is_intact(self) -> bool:
        """Return whether the open segment still exists with the expected size."""
        try:
            return self._path is not None and os.stat(self._path).st_size == self._size
        except OSError:
            return False
