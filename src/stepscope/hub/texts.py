"""Texts that people edit on the page, as files of a home."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stepscope.hub.refusals import changed_meanwhile
from stepscope.journal.atomic_files import replace_file

_SUFFIX = ".yaml"


class Texts(Protocol):
    """Texts by name; names are checked by the caller.

    A change that names the version it replaces is Refused when that is not the present one. Where hubs share the
    texts, so is any change at the same time as that of another hub, and Retry is raised when nothing can be saved.
    """

    def names(self) -> list[str]:
        """List the names, sorted."""

    def read(self, name: str) -> str | None:
        """Read a text; None when there is none."""

    def save(self, name: str, text: str, version: str | None = None) -> None:
        """Save a text; OSError when a file cannot be written."""

    def delete(self, name: str, version: str | None = None) -> bool:
        """Delete a text; False when there is none."""

    def stamp(self, name: str) -> object:
        """Return what changes when a text does."""

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function when another hub changed a text; it must be quick."""


def version_of(text: str | None) -> str:
    """The version of a text; empty when there is none."""
    return "" if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class TextFiles:
    """Texts in the files NAME.yaml of a folder; a text that is too long is cut, and so will not parse."""

    def __init__(self, folder: Path, longest: int, mode: int = 0o666) -> None:
        self._folder, self._longest, self._mode = folder, longest, mode
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """List the names, sorted."""
        try:
            return sorted(path.stem for path in self._folder.iterdir() if path.suffix == _SUFFIX and path.is_file())
        except OSError:
            return []

    def read(self, name: str) -> str | None:
        """Read a text; None when there is none."""
        try:
            with open(self._path(name), encoding="utf-8", errors="replace") as file:
                return file.read(self._longest + 1)
        except OSError:
            return None

    def save(self, name: str, text: str, version: str | None = None) -> None:
        """Save a text atomically; OSError when it cannot be saved."""
        with self._lock:
            check_version(name, self.read(name), version)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._path(name), text.encode(), fsync=True, mode=self._mode)

    def delete(self, name: str, version: str | None = None) -> bool:
        """Delete a text; False when there is none."""
        with self._lock:
            check_version(name, self.read(name), version)
            try:
                self._path(name).unlink()
            except FileNotFoundError:
                return False
        return True

    def stamp(self, name: str) -> object:
        """Return size, time and number of the file."""
        with contextlib.suppress(OSError):
            found = os.stat(self._path(name))
            return found.st_size, found.st_mtime_ns, found.st_ino
        return None

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Do nothing: the files of a home are not shared."""

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


def check_version(name: str, present: str | None, version: str | None) -> None:
    """Raise Refused when a change names a version that is not the present one."""
    if version not in (None, version_of(present)):
        raise changed_meanwhile(name)
