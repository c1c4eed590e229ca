"""Manifests of artifacts: JSON files that list the files of an artifact, read in pieces however large they are."""

import json
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, overload

import msgspec

MAX_BYTES = 256 * 1024 * 1024
MAX_ENTRY_BYTES = 1024 * 1024
"""Of one entry, or of one of the other fields of a manifest."""
_PIECE = 256 * 1024
_INTERVAL = 1000
"""The position of every thousandth entry is remembered, and a query is checked as often."""
_MAX_KNOWN = 100
_SPACE = re.compile(r"[ \t\r\n]*")
_scan = json.JSONDecoder().raw_decode


class Damaged(ValueError):
    """The file is not a manifest."""


class Entry(msgspec.Struct, frozen=True):
    """The manifest entry of one file."""

    digest: str
    size: int = 0
    ref: str | None = None


class Listed(NamedTuple):
    """A file of an artifact, and the position of its entry in the manifest."""

    name: str
    entry: Entry
    position: int


class _Pieces:
    """JSON values of a file, one after the other. The text is Latin-1, so that its positions are those of bytes."""

    def __init__(self, file: BinaryIO, position: int = 0) -> None:
        file.seek(position)
        self._file, self._text, self._at, self._before = file, "", 0, position

    @property
    def position(self) -> int:
        """Return the position of the next byte."""
        return self._before + self._at

    def _read_more(self) -> bool:
        data = self._file.read(_PIECE)
        self._before += self._at
        self._text, self._at = self._text[self._at :] + data.decode("latin-1"), 0
        return bool(data)

    def peek(self) -> str:
        """Return the next character that is not a space."""
        while True:
            char = self._text[self._at : self._at + 1]
            if char > " ":
                return char
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_more():
                raise Damaged("it is cut off")

    def take(self, mark: str) -> None:
        """Read one character."""
        if self.peek() != mark:
            raise Damaged(f"{mark!r} is missing at byte {self.position}")
        self._at += 1

    def value(self) -> bytes:
        """Return the bytes of the next value."""
        self.peek()
        while True:
            try:
                end = _scan(self._text, self._at)[1]
            except (ValueError, RecursionError):
                end = 0
            if end and end < len(self._text):  # a number at the end may go on
                raw = self._text[self._at : end].encode("latin-1")
                self._at = end
                return raw
            if len(self._text) - self._at > MAX_ENTRY_BYTES or not self._read_more():
                raise Damaged(
                    f"the value at byte {self.position} is not JSON, or has more than {MAX_ENTRY_BYTES} bytes"
                )


def _entries(pieces: _Pieces) -> Iterator[Listed]:
    """Read the rest of the object `contents`, from the start of an entry."""
    while pieces.peek() != "}":
        position = pieces.position
        try:
            name = msgspec.json.decode(pieces.value(), type=str)
            pieces.take(":")
            yield Listed(name, msgspec.json.decode(pieces.value(), type=Entry), position)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Damaged(f"the entry at byte {position}: {error}") from None
        if pieces.peek() == ",":
            pieces.take(",")
    pieces.take("}")


def read_entries(file: BinaryIO) -> Iterator[Listed]:
    """Read all entries of a manifest; Damaged when it is none."""
    pieces = _Pieces(file)
    pieces.take("{")
    while pieces.peek() != "}":
        key = pieces.value()
        pieces.take(":")
        if key == b'"contents"':
            pieces.take("{")
            yield from _entries(pieces)
        else:
            pieces.value()
        if pieces.peek() == ",":
            pieces.take(",")


def count_files(path: Path) -> tuple[int, int]:
    """Return the number of files in a manifest, and the sum of their sizes; Damaged when it is none."""
    files = size = 0
    with open(path, "rb") as file:
        for each in read_entries(file):
            files, size = files + 1, size + each.entry.size
    return files, size


class Manifests:
    """Pages and single entries of manifests. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Path, list[int]] = {}
        """The positions of every thousandth entry, as far as a manifest was read."""

    def page(self, path: Path, start: int, size: int, check: Callable[[], None]) -> list[Listed]:
        """Return some consecutive entries; none where the manifest cannot be read."""
        found: list[Listed] = []
        for at, each in self._read(path, start, check):
            if at >= start + size:
                break
            found.append(each)
        return found

    def named(self, path: Path, names: Collection[str], check: Callable[[], None] = lambda: None) -> dict[str, Listed]:
        """Return the entries of some names."""
        wanted, found = set(names), {}
        for _, each in self._read(path, 0, check):
            if each.name in wanted:
                found[each.name] = each
                if len(found) == len(wanted):
                    break
        return found

    def _read(self, path: Path, start: int, check: Callable[[], None]) -> Iterator[tuple[int, Listed]]:
        """Read the entries from one on, each with its number."""
        with self._lock:
            known = self._known.pop(path, [])
            self._known[path] = known
            while len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]
        nearest = min(start // _INTERVAL, len(known) - 1)
        at = max(nearest, 0) * _INTERVAL
        try:
            with open(path, "rb") as file:
                entries = _entries(_Pieces(file, known[nearest])) if nearest > 0 else read_entries(file)
                for number, each in enumerate(entries, at):
                    if number % _INTERVAL == 0:
                        check()
                        with self._lock:
                            known += [each.position] if len(known) * _INTERVAL == number else []
                    if number >= start:
                        yield number, each
        except (OSError, Damaged):
            return


class ManifestFiles(Sequence[Listed]):
    """The files of a manifest as a list of which only the pages that are asked for are read."""

    def __init__(self, manifests: Manifests, path: Path, count: int, check: Callable[[], None]) -> None:
        self._manifests, self._path, self._count, self._check = manifests, path, count, check

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Listed: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Listed]: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, _ = at.indices(self._count)
            return self._manifests.page(self._path, start, max(stop - start, 0), self._check)
        (found,) = self._manifests.page(self._path, at, 1, self._check)
        return found
