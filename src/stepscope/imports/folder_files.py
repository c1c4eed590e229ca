"""Files of a run that lie in folders, such as artifacts: copied as they are, in limits."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.imports.source import Chunk, Skip, SourceFile

MAX_FILES, MAX_FILE, MAX_BYTES = 10_000, 1 << 30, 10 << 30
"""Limits for one run: files, bytes of one, bytes of all. What is beyond is left out and counted."""
_CHUNK_FILES = 1000
_DEEPEST = 32


class _File(NamedTuple):
    name: str
    path: Path
    size: int
    changed: int

    @property
    def state(self) -> str:
        """A digest that differs once the file was changed."""
        return _short(f"{self.size} {self.changed}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


class FolderFiles:
    """The files below some folders as one part of a run; those that are changed are copied again."""

    attempt = 1
    name = "files"

    def __init__(self, folders: Sequence[tuple[str, Path]], time: int) -> None:
        """Take folders, each with the prefix of its files' names, which is empty or ends with a slash."""
        self._folders, self.time = folders, time

    def size(self) -> int:
        """The number of files."""
        return len(self._list(lambda reason, count: None))

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the files that are new or changed since a position."""
        known: dict[str, str] = dict((position or {}).get("files", {}))
        fresh = [each for each in self._list(skip) if known.get(_short(each.name)) != each.state]
        for at in range(0, len(fresh), _CHUNK_FILES):
            part = fresh[at : at + _CHUNK_FILES]
            known |= {_short(each.name): each.state for each in part}
            files = tuple(SourceFile(each.name, each.path) for each in part)
            yield Chunk([], {"files": dict(known)}, 0, len(known), files)

    def _list(self, skip: Skip) -> list[_File]:
        found: list[_File] = []
        total = left = 0
        for each in (each for prefix, folder in self._folders for each in _walk(folder, prefix, 0)):
            total += each.size
            if len(found) >= MAX_FILES or each.size > MAX_FILE or total > MAX_BYTES or not _is_storable(each.name):
                total -= each.size
                left += 1
            else:
                found.append(each)
        if left:
            skip("files beyond the limits of a run", left)
        return found


def _is_storable(name: str) -> bool:
    """Whether a name is UTF-8, and no part of it too long for a file system."""
    try:
        return all(0 < len(part.encode()) <= 240 for part in name.split("/"))
    except UnicodeEncodeError:
        return False


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[_File]:
    """Yield the files below a folder by name; symbolic links are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False) and depth < _DEEPEST:
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", depth + 1)
            elif entry.is_file(follow_symlinks=False):
                about = entry.stat(follow_symlinks=False)
                yield _File(f"{prefix}{entry.name}", Path(entry.path), about.st_size, about.st_mtime_ns)
        except OSError:
            continue
