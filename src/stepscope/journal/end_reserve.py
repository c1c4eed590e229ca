"""Disk space kept for the last batch of a writer, which tells how its run ended also if the disk is full by then."""

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 32 * 1024
NAME = "reserve"


class EndReserve:
    """A file of zeros in a writer's folder that becomes its last segment.

    It is overwritten in place, which needs no free space but on file systems that copy on write.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.room = 0
        """The bytes that are reserved; 0 if there was no space for them."""

    def take(self) -> None:
        """Reserve the space if the disk has it; never raises."""
        try:
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(bytes(RESERVE_BYTES))
        except OSError:
            self.release()
        else:
            self.room = RESERVE_BYTES

    def write(self, segment: Path, data: bytes) -> None:
        """Make the space a segment that holds `data`, of at most `room` bytes; OSError when that fails."""
        with open(self._path, "r+b", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            file.truncate(len(data))
        os.rename(self._path, segment)
        self.room = 0

    def release(self) -> None:
        """Give the space back."""
        self.room = 0
        with contextlib.suppress(OSError):
            os.unlink(self._path)
