"""Atomic replacement of files, syncing of folders, and locks between processes."""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PROBE_SECONDS = 1.0
"""Seconds for which a lock is tried while other processes check it."""


@contextlib.contextmanager
def replacing(path: Path, *, fsync: bool = False, mode: int = 0o600, fresh: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends; if the block raises, the old file stays.

    Readers see the old or the new content, never a part; with `fsync` also after a power failure. `fresh` is the name
    until then; without it there is one for each thread.
    """
    fresh = fresh or path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode), "w+b") as file:
            yield file
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def replace_file(path: Path, data: bytes, *, fsync: bool = False, mode: int = 0o600) -> None:
    """Replace the content of a file atomically; OSError leaves it as it was."""
    with replacing(path, fsync=fsync, mode=mode) as file:
        file.write(data)


def put_file(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, and make its folder; nothing is written where it has this content."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, data)


def append_synced(fd: int, data: bytes, size: int) -> None:
    """Append to a file of this size and fsync; OSError leaves the file as it was, where it can be truncated."""
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure, where the file system supports it."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class Locked(Exception):
    """Another process holds the lock; the text is what it wrote into the lock file."""


class FileLock:
    """An exclusive lock on a file, which is created if missing; the kernel releases it when the process dies.

    Raises Locked when another process holds it, unless it may wait. The file stays when the lock is released.
    """

    def __init__(self, path: Path, *, wait: bool = False, mode: int = 0o600) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, mode)
        try:
            _lock(self.fd, wait=wait)
        except BlockingIOError:
            owner = _signature(self.fd)
            os.close(self.fd)
            raise Locked(owner) from None
        except OSError:
            os.close(self.fd)
            raise

    def sign(self, text: str) -> None:
        """Replace the content of the file, for instance by the pid and address of the holder."""
        os.ftruncate(self.fd, 0)
        os.write(self.fd, text.encode())  # unbuffered: closing must not repeat what a full disk did not take

    def is_at(self, path: Path) -> bool:
        """Return whether a path still leads to the locked file."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock, even if a forked process has the same open file. Repeating it does nothing."""
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> "FileLock":
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


def signed_lock(path: Path, text: str) -> FileLock:
    """Lock a file that others may read, and write into it who has it; Locked when another process has."""
    lock = FileLock(path, mode=0o666)
    try:
        lock.sign(text)
    except OSError:
        lock.release()
        raise
    return lock


def holder(path: Path) -> str | None:
    """Return what the holder of a lock wrote into it; None when the lock is free."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _signature(fd)
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile has the same open file
    finally:
        os.close(fd)
    return None


def _lock(fd: int, *, wait: bool) -> None:
    """Lock an open file exclusively; BlockingIOError when another holds it. A look by `holder` is waited for."""
    if wait:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # succeeds beside other looks only
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.001)


def lock_folder(path: Path) -> int:
    """Lock a folder itself, independent of the files in it; Locked when another process has.

    Closing the returned descriptor releases it. Where folders cannot be locked, nothing is.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Locked("") from None
    except OSError:
        pass
    return fd


def _signature(fd: int) -> str:
    return os.pread(fd, 4096, 0).decode("utf-8", "replace").strip()
