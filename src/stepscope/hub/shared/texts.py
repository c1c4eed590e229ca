"""Texts that people edit on the page, as files of one home or as documents that several hubs share."""

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import Protocol

from stepscope.hub.refusals import Refused, changed_meanwhile
from stepscope.hub.shared.shared_state import SharedState
from stepscope.hub.store.cluster.documents import DocumentWrite
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

    def delete(self, name: str) -> bool:
        """Delete a text; False when there is none."""

    def stamp(self, name: str) -> object:
        """Return what changes when a text does."""


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
            _check(name, self.read(name), version)
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._path(name), text.encode(), fsync=True, mode=self._mode)

    def delete(self, name: str) -> bool:
        """Delete a text; False when there is none."""
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

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


class SharedTexts:
    """Texts that are documents of one kind."""

    def __init__(self, state: SharedState, kind: str) -> None:
        self._state, self._kind = state, kind

    def names(self) -> list[str]:
        """List the names, sorted."""
        return sorted(self._state.all(self._kind))

    def read(self, name: str) -> str | None:
        """Read a text; None when there is none."""
        found = self._state.all(self._kind).get(name)
        return None if found is None else found.value

    def save(self, name: str, text: str, version: str | None = None) -> None:
        """Save a text for all hubs."""
        found = self._state.all(self._kind).get(name)
        _check(name, None if found is None else found.value, version)
        self._state.write(DocumentWrite(self._kind, name, text, 0 if found is None else found.version))

    def delete(self, name: str) -> bool:
        """Delete a text for all hubs; False when there is none."""
        found = self._state.all(self._kind).get(name)
        if found is not None:
            self._state.write(DocumentWrite(self._kind, name, None, found.version))
        return found is not None

    def stamp(self, name: str) -> object:
        """Return the version of the document."""
        found = self._state.known(self._kind).get(name)
        return None if found is None else found.version

    def adopt(self, files: TextFiles, *only: str) -> None:
        """Share the texts of a home that no hub has shared before; else the shared ones count."""
        for name in only or files.names():
            text = files.read(name) if name not in self._state.known(self._kind) else None
            if text is not None:
                with contextlib.suppress(Refused):  # another hub shared one of this name just now
                    self._state.write(DocumentWrite(self._kind, name, text, 0))


def _check(name: str, present: str | None, version: str | None) -> None:
    if version not in (None, version_of(present)):
        raise changed_meanwhile(name)
