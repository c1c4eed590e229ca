"""Tables of values in text files: CSV with a header line, and JSON lines."""

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from stepscope.imports.source import Chunk, FoundRun, NextChunk, Skip
from stepscope.journal import layout
from stepscope.wire.nested_rows import number

STEPS = ("step", "_step", "global_step", "Step", "iteration", "iter", "trainer/global_step", "epoch")
"""Columns of the step; the first one present in a row is used."""
TIMES = ("_timestamp", "timestamp", "time", "wall_time", "Wall time")
"""Columns of the time: seconds or milliseconds since 1970, or a string such as 2026-01-31T12:00:00Z."""
_IGNORED = ("_runtime",)
LONGEST_LINE = 16 * 1024 * 1024
_LATEST = 9e9
"""The latest time in seconds; a larger number is in milliseconds, as in Java and JavaScript."""
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*", re.ASCII)
"""A number with a decimal comma, as in spreadsheets of many countries."""
_INTEGER = re.compile(r"\s*[+-]?\d{1,30}\s*", re.ASCII)

Row = Mapping[str, Any] | None
"""The cells of a line; None when it cannot be read."""


class Csv:
    """A file of values separated by commas, semicolons or tabs, with the column names in the first line."""

    name = "CSV"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return a run for each file."""
        files = [*_files(path, ".csv", skip), *_files(path, ".tsv", skip)]
        return [_run(path, file, _CsvFormat) for file in files]


class JsonLines:
    """A file with a JSON object on each line."""

    name = "JSON lines"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return a run for each file."""
        files = [*_files(path, ".jsonl", skip), *_files(path, ".ndjson", skip)]
        return [_run(path, file, _JsonFormat) for file in files]


def _files(path: Path, suffix: str, skip: Skip) -> list[Path]:
    if path.is_file():
        files = [path] if path.suffix == suffix else []
    else:
        files = sorted(file for file in path.rglob(f"*{suffix}") if file.is_file())
    return [file for file in files if _is_text(file, skip)]


def _is_text(file: Path, skip: Skip) -> bool:
    """Return whether the first bytes of a file are UTF-8."""
    with open(file, "rb") as opened:
        start = opened.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        skip("files in UTF-16 (save them as UTF-8)", 1)
        return False
    return True


def _run(root: Path, file: Path, format: type["_CsvFormat"] | type["_JsonFormat"]) -> FoundRun:
    file = file.resolve()
    digest = hashlib.sha256(str(file).encode(errors="surrogateescape")).hexdigest()[:8]
    project = root.resolve().name if root.is_dir() else file.parent.name
    name = file.relative_to(root.resolve()).with_suffix("").as_posix() if root.is_dir() else file.stem
    return FoundRun(f"{layout.slug(name)}-{digest}", project, name, [_Table(file, format())])


class _Table:
    """The rows of a file, also while it grows."""

    attempt = 1

    def __init__(self, path: Path, format: "_CsvFormat | _JsonFormat") -> None:
        self._path, self._format = path, format
        self.name = path.name
        self.time = int(path.stat().st_mtime * 1e9)

    def size(self) -> int:
        """The size of the file in bytes."""
        return self._path.stat().st_size

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the complete lines after an offset."""
        chunk = NextChunk(skip)
        with open(self._path, "rb") as file:
            heading = self._format.begin(file)
            offset, row = (int(position["offset"]), int(position["row"])) if position else (file.tell(), 0)
            if position and heading != position.get("heading", heading):
                offset = _offset_of(file, row, self.size())
            if offset > self.size():
                skip(f"{self.name}: not read, because it is shorter than before (a different file)", 1)
                return
            file.seek(offset)
            before = offset
            found = {"heading": heading} if heading else {}
            for size, line in _lines(file, skip):
                if not line.endswith(b"\n") and not self._format.is_whole(line):
                    skip("unfinished last lines", 1)
                    break
                offset += size
                if line.strip():
                    self._add(chunk, self._format.row(line.rstrip(b"\r\n")), row, skip)
                    row += 1
                if chunk.is_full:
                    before = offset
                    yield chunk.take({"offset": offset, "row": row, **found}, offset)
            if offset > before:
                yield chunk.take({"offset": offset, "row": row, **found}, offset)

    def _add(self, chunk: NextChunk, values: Row, row: int, skip: Skip) -> None:
        if values is None:
            skip("lines that cannot be read", 1)
            return
        steps = [int(found) for name in STEPS if (found := _finite(values.get(name))) is not None]
        times = [found for name in TIMES if (found := _time(values.get(name))) is not None]
        rest = {name: value for name, value in values.items() if name not in (*STEPS[:-1], *TIMES, *_IGNORED)}
        chunk.add_row(times[0] if times else self.time, steps[0] if steps else row, None, rest)


def _offset_of(file: BinaryIO, row: int, size: int) -> int:
    """Return where a row begins in a file that was written anew with other columns; behind its end without that row."""
    rows = 0
    while rows < row:
        line = file.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            return size + 1
        rows += bool(line.strip())
    return file.tell()


def _lines(file: BinaryIO, skip: Skip) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their sizes; an empty line replaces one that is too long."""
    while line := file.readline(LONGEST_LINE):
        size = len(line)
        if size < LONGEST_LINE or line.endswith(b"\n"):
            yield size, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE)
            size += len(line)
        skip("lines that are too long", 1)
        if line:
            yield size, b"\n"


def _finite(value: Any) -> float | None:
    found = number(value)
    return float(found) if found is not None and abs(found) < 2**53 else None


def _time(value: Any) -> int | None:
    """Convert a time to nanoseconds; None when it is invalid."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    found = _finite(value)
    if found is None or not 0 <= found < _LATEST * 1000:
        return None
    return int(found * 1e9) if found < _LATEST else int(found * 1e6)


class _JsonFormat:
    """A JSON object on each line."""

    def begin(self, file: BinaryIO) -> str:
        """Skip the byte order mark, if any; there are no lines before the first row, of which to return a digest."""
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        return ""

    def row(self, line: bytes) -> Row:
        """Parse an object."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def is_whole(self, line: bytes) -> bool:
        """A closed object is complete."""
        return self.row(line) is not None


class _CsvFormat:
    """Cells separated by commas, semicolons or tabs, with the column names in the first line."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._delimiter = ","

    def begin(self, file: BinaryIO) -> str:
        """Read the column names, and return a digest of them."""
        heading = file.readline(LONGEST_LINE).decode("utf-8-sig", "replace").rstrip("\r\n")
        self._delimiter = max(",;\t", key=heading.count)
        self._names = _distinct(self._cells(heading) or [])
        return hashlib.sha256(heading.encode()).hexdigest()[:16]

    def row(self, line: bytes) -> Row:
        """Read a line, without the newline, of as many cells as there are columns; empty cells are left out."""
        cells = self._cells(line.decode("utf-8", "replace"))
        if cells is None or len(cells) != len(self._names):
            return None
        if self._delimiter == ";":
            cells = [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]
        return {name: _cell(cell) for name, cell in zip(self._names, cells, strict=True) if cell != ""}

    def is_whole(self, line: bytes) -> bool:
        """Return whether a last line without a newline is complete: never, a number may be cut off anywhere."""
        return False

    def _cells(self, line: str) -> list[str] | None:
        try:
            return next(csv.reader([line], delimiter=self._delimiter), [])
        except csv.Error:  # a cell that is too long
            return None


def _distinct(names: list[str]) -> list[str]:
    """Name repeated columns `loss.1`, `loss.2`, as pandas does, with the next number where a column has that name."""
    taken, counts = set(names), dict.fromkeys(names, 0)
    found = []
    for name in names:
        made = name
        if counts[name]:
            while (made := f"{name}.{counts[name]}") in taken:
                counts[name] += 1
            taken.add(made)
        counts[name] += 1
        found.append(made)
    return found


def _cell(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        return float(text) if "_" not in text else text
    except ValueError:
        return text
