"""Append frames to a writer's segments; a failure leaves the journal readable, and the caller may retry."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.read import next_seq
from stepscope.model.writer import Writer
from stepscope.wire import frames

SEGMENT_BYTES = 16 * 1024 * 1024


class Journal:
    """The open journal of one writer. Not thread-safe: one thread appends.

    No number is given to two batches and no index to two segments, even after a failure or when the folder
    vanished; a folder that holds segments already is continued.
    """

    def __init__(
        self,
        folder: Path,
        writer: Writer,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        fsync: bool = False,
    ) -> None:
        self.folder = folder
        self.writer = writer
        self.seq = 0
        self.segment_bytes = segment_bytes
        self._fsync = fsync
        self._fd = -1
        self._path: Path | None = None
        self._size = 0
        self._full = 0
        self._next_index = 0
        self.damages = 0
        """How often the open segment was found removed or changed by somebody."""

    def append(self, records: Sequence[bytes]) -> int:
        """Write packed records as one batch and return its bytes; OSError when nothing was written.

        On return the batch is safe from the death of the process, with `fsync` also from that of the machine.
        ValueError when the records together are larger than a frame may be.
        """
        intact = self._fd < 0 or self._is_intact()
        self.damages += not intact
        if self._size >= self._full or not intact:
            self.close()
        if self._fd < 0:
            self._open()
        data = frames.pack_batch(self.seq, records)
        self.seq += 1  # also when the write fails: if that was in the fsync, a reader may have seen the batch
        self._write(data)
        return len(data)

    def close(self) -> None:
        """Close the open segment; a later append opens the next."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def current(self) -> Path | None:
        """The segment being written, if one is open."""
        return self._path if self._fd >= 0 else None

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        present = layout.list_segments(self.folder)
        if present and not self._next_index:
            self.seq = max(self.seq, next_seq(self.folder))
        index = max(self._next_index, int(present[-1].stem) + 1 if present else 0)
        path = layout.segment_path(self.folder, index)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._size = 0
        try:
            self._write(frames.pack_head(self.writer))
            if self._fsync:
                self._sync_folders()
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self._path, self._next_index = path, index + 1
        self._full = max(self.segment_bytes, self._size + 1)  # one batch at least, or tries would pile up heads

    def _sync_folders(self) -> None:
        """Make the names of the segment, of its writer and of its run last."""
        for folder in (self.folder, *self.folder.parents[:2]):
            with contextlib.suppress(OSError):  # not every file system can sync a folder
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)

    def _write(self, data: bytes) -> None:
        """Write all of it or take back what was written."""
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
        """Cut off what a failed write left; where that fails too, a new segment follows the torn one."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self.close()

    def _is_intact(self) -> bool:
        """Tell whether the open segment is still found by its name, and as long as it was left."""
        try:
            return self._path is not None and os.stat(self._path).st_size == self._size
        except OSError:
            return False
