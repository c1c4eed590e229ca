"""Tables of values in text files: CSV with a heading, and JSON lines."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stepscope.imports.source import Chunk, FoundRun, Skip, add_row
from stepscope.journal import layout
from stepscope.wire.wandb_rows import number

STEPS = ("step", "_step", "global_step", "Step", "iteration", "iter", "trainer/global_step", "epoch")
"""Columns that hold the step; the first that a row has counts."""
TIMES = ("_timestamp", "timestamp", "time", "wall_time", "Wall time")
"""Columns that hold the time, in seconds since 1970."""
_IGNORED = ("_runtime",)

Parse = Callable[[list[bytes], list[str]], Iterator[Mapping[str, Any] | None]]
"""Reads lines, given the names of the columns; None for a line that cannot be read."""


class Csv:
    """A file of comma-separated values whose first line names the columns."""

    name = "CSV"

    def find(self, path: Path) -> list[FoundRun]:
        """Return a run for each file."""
        return [_run(path, file, _parse_csv, heading=True) for file in _files(path, ".csv")]


class JsonLines:
    """A file with a JSON object on each line."""

    name = "JSON lines"

    def find(self, path: Path) -> list[FoundRun]:
        """Return a run for each file."""
        files = [*_files(path, ".jsonl"), *_files(path, ".ndjson")]
        return [_run(path, file, _parse_json, heading=False) for file in files]


def _files(path: Path, suffix: str) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == suffix else []
    return sorted(file for file in path.rglob(f"*{suffix}") if file.is_file())


def _run(root: Path, file: Path, parse: Parse, *, heading: bool) -> FoundRun:
    file = file.resolve()
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    project = root.resolve().name if root.is_dir() else file.parent.name
    name = file.relative_to(root.resolve()).with_suffix("").as_posix() if root.is_dir() else file.stem
    return FoundRun(f"{layout.slug(name)}-{digest}", project, name, [_Table(file, parse, heading=heading)])


class _Table:
    """The rows of a file, also while it grows."""

    attempt = 1

    def __init__(self, path: Path, parse: Parse, *, heading: bool) -> None:
        self._path, self._parse, self._heading = path, parse, heading
        self.name = path.name
        self.time = int(path.stat().st_mtime * 1e9)

    def size(self) -> int:
        """Bytes of the file."""
        return self._path.stat().st_size

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the whole lines behind an offset."""
        with open(self._path, "rb") as file:
            names = next(csv.reader([_text(file.readline())]), []) if self._heading else []
            offset, row = (int(position["offset"]), int(position["row"])) if position else (file.tell(), 0)
            file.seek(offset)
            while lines := _complete_lines(file.readlines(1 << 20)):
                records: list[bytes] = []
                points = 0
                for values in self._parse(lines, names):
                    points += self._add(records, values, row, skip)
                    row += 1
                offset += sum(map(len, lines))
                file.seek(offset)
                yield Chunk(records, {"offset": offset, "row": row}, points, offset)

    def _add(self, records: list[bytes], values: Mapping[str, Any] | None, row: int, skip: Skip) -> int:
        if values is None:
            skip("lines that cannot be read", 1)
            return 0
        steps = [int(found) for name in STEPS if (found := _finite(values.get(name))) is not None]
        times = [int(found * 1e9) for name in TIMES if (found := _finite(values.get(name))) is not None]
        rest = {name: value for name, value in values.items() if name not in (*STEPS[:-1], *TIMES, *_IGNORED)}
        return add_row(records, times[0] if times else self.time, steps[0] if steps else row, None, rest, skip)


def _finite(value: Any) -> float | None:
    found = number(value)
    return float(found) if found is not None and abs(found) < 2**53 else None


def _complete_lines(lines: list[bytes]) -> list[bytes]:
    """Leave out a last line that is still being written."""
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def _text(line: bytes) -> str:
    return line.decode("utf-8-sig", "replace")


def _parse_json(lines: list[bytes], names: list[str]) -> Iterator[Mapping[str, Any] | None]:
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        yield found if isinstance(found, dict) else None


def _parse_csv(lines: list[bytes], names: list[str]) -> Iterator[Mapping[str, Any] | None]:
    for cells in csv.reader(map(_text, lines)):
        if len(cells) != len(names):
            yield None
            continue
        yield {name: _cell(cell) for name, cell in zip(names, cells, strict=True) if cell != ""}


def _cell(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
