"""The folder of an embedded store: its marker, and the lock that lets only one process open it."""

import errno
import os
from pathlib import Path

from stepscope.journal.atomic_files import FileLock, Locked, lock_folder, signed_lock
from stepscope.model.errors import ConfigError

MARKER = "STEPSCOPE_STORE"
DATA = "data"
_TEXT = "This folder is a Stepscope store (chDB). Only the hub writes here.\n"


class Folder:
    """A store's folder, made when missing and locked until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path / DATA
        self._lock: FileLock | None = None
        self._folder = -1
        try:
            _claim(path)
            self._folder = lock_folder(path)
            self._lock = signed_lock(path / "lock", str(os.getpid()))
        except ConfigError:
            self.close()
            raise
        except Locked as error:
            self.close()
            raise ConfigError(_taken(path, str(error))) from None
        except OSError as error:
            self.close()
            if is_full(error):
                raise ConfigError(full_disk(path)) from error
            raise ConfigError(f"the store's folder {path} cannot be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Let another process open the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def is_full(error: OSError) -> bool:
    """Return whether an error means a full disk or an exhausted disk quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full_disk(path: Path) -> str:
    """Return the message for a full disk, with what to do."""
    return f"the disk of {path} is full: free some of it"


def _claim(path: Path) -> None:
    """Mark an empty folder as ours; ConfigError for one that holds something else."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (path / MARKER).is_file():
        return
    if any(path.iterdir()):
        raise ConfigError(f"{path} holds something that is not a Stepscope store: choose an empty folder")
    (path / MARKER).write_text(_TEXT, encoding="utf-8")


def _taken(path: Path, holder: str) -> str:
    who = holder or _signed(path / "lock") or "unknown"
    return f"the store in {path} is open in another process (pid {who}): stop it or use its address"


def _signed(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
