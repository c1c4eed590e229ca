"""MLflow's own stores: an SQLite database, and folders of text files."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from stepscope.imports.source import Chunk, FoundRun, Skip
from stepscope.journal import layout
from stepscope.model.records import METRIC

CHUNK_ROWS = 10_000
_LARGEST = 1.7976931348623157e308
"""What the database holds for infinity."""
_STATUSES = {"FAILED": "failed", "KILLED": "interrupted", "4": "failed", "5": "interrupted"}
_pack = msgspec.msgpack.Encoder().encode


class MlflowDatabase:
    """An SQLite database, such as `mlflow.db`."""

    name = "MLflow (SQLite)"

    def find(self, path: Path) -> list[FoundRun]:
        """Return the runs that are not deleted."""
        files = [path] if path.is_file() else sorted(path.glob("*.db")) if path.is_dir() else []
        return [run for file in files for run in self._runs(file)]

    def _runs(self, file: Path) -> Iterator[FoundRun]:
        with closing(connect(file)) as database:
            if not {"experiments", "runs", "metrics", "params", "tags"} <= tables(database):
                return
            query = (
                "SELECT run_uuid, r.name, status, start_time, e.name"
                " FROM runs r JOIN experiments e USING (experiment_id)"
                " WHERE r.lifecycle_stage = 'active' ORDER BY start_time"
            )
            for id, name, status, start, project in database.execute(query).fetchall():
                config = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (id,)))
                tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (id,)))
                part = _DatabaseRun(file, id, int(start or 0) * 10**6)
                yield _found(id, project, name, [part], config, tags, str(status))


class _DatabaseRun:
    """The metrics of one run, in the order in which they were inserted."""

    attempt = 1

    def __init__(self, file: Path, id: str, time: int) -> None:
        self._file, self._id, self.time = file, id, time
        self.name = f"metrics of {id}"

    def size(self) -> int:
        """How many values the run has."""
        with closing(connect(self._file)) as database:
            found = database.execute("SELECT count(*) FROM metrics WHERE run_uuid = ?", (self._id,)).fetchone()
            return int(found[0])

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the values behind a row."""
        last, done = (int(position["row"]), int(position["done"])) if position else (0, 0)
        query = (
            "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics"
            " WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT ?"
        )
        while True:
            with closing(connect(self._file)) as database:
                rows = database.execute(query, (self._id, last, CHUNK_ROWS)).fetchall()
            if not rows:
                return
            last, done = rows[-1][0], done + len(rows)
            numbers = [(key, _number(value, nan), time, step) for _, key, value, time, step, nan in rows]
            yield Chunk(_packed(numbers), {"row": last, "done": done}, len(rows), done)


def _number(value: float, is_nan: int) -> float:
    if is_nan:
        return float("nan")
    return value if abs(value) < _LARGEST else float("inf") if value > 0 else float("-inf")


def _packed(numbers: list[tuple[str, float, int, int]]) -> list[bytes]:
    """Pack values; those of one moment and step that follow each other are one record."""
    records: list[bytes] = []
    at: tuple[int, int] | None = None
    values: dict[str, float] = {}
    for key, value, time, step in numbers:
        if at != (time, step) or key in values:
            if at is not None:
                records.append(_pack((METRIC, at[0] * 10**6, at[1], None, None, values)))
            at, values = (time, step), {}
        values[key] = value
    if at is not None:
        records.append(_pack((METRIC, at[0] * 10**6, at[1], None, None, values)))
    return records


class MlflowFolder:
    """A folder such as `mlruns`, with a folder for each experiment and run."""

    name = "MLflow (files)"

    def find(self, path: Path) -> list[FoundRun]:
        """Return the runs that are not deleted."""
        return [run for file in sorted(path.glob("*/*/meta.yaml")) if (run := self._run(file.parent)) is not None]

    def _run(self, folder: Path) -> FoundRun | None:
        try:
            about, experiment = (_meta(place / "meta.yaml") for place in (folder, folder.parent))
        except OSError:
            return None
        if "run_id" not in about or about.get("lifecycle_stage") == "deleted":
            return None
        start = about.get("start_time", "")
        part = _FolderRun(folder, int(start) * 10**6 if start.isdecimal() else 0)
        config, tags = _texts(folder / "params"), _texts(folder / "tags")
        name = about.get("run_name") or tags.get("mlflow.runName")
        return _found(about["run_id"], experiment.get("name", ""), name, [part], config, tags, about.get("status", ""))


def _meta(file: Path) -> dict[str, str]:
    """Read the flat YAML that MLflow writes about a run or an experiment."""
    pairs = [line.partition(": ") for line in file.read_text(errors="replace").splitlines() if not line.startswith(" ")]
    return {key: value.strip().strip("'\"") for key, _, value in pairs}


def _texts(folder: Path) -> dict[str, Any]:
    """The files of a folder with their contents; keys may have slashes, which are folders."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): file.read_text(errors="replace").strip("\n") for file in files}


class _FolderRun:
    """The metrics of one run: a file for each key, a line for each value."""

    attempt = 1

    def __init__(self, folder: Path, time: int) -> None:
        self._folder, self.time = folder / "metrics", time
        self.name = "metrics"

    def _files(self) -> list[Path]:
        return [file for file in sorted(self._folder.rglob("*")) if file.is_file()]

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self._files())

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the whole lines behind the offsets of the files."""
        offsets: dict[str, int] = dict(position["offsets"]) if position else {}
        for file in self._files():
            key = file.relative_to(self._folder).as_posix()
            data = file.read_bytes()
            start = offsets.get(key, 0)
            end = data.rfind(b"\n") + 1
            lines = data[start:end].splitlines()
            if not lines:
                continue
            offsets = {**offsets, key: end}
            numbers = list(_parsed(key, lines, skip))
            yield Chunk(_packed(numbers), {"offsets": offsets}, len(numbers), sum(offsets.values()))


def _parsed(key: str, lines: list[bytes], skip: Skip) -> Iterator[tuple[str, float, int, int]]:
    for line in lines:
        words = line.split()
        try:
            yield key, float(words[1]), int(words[0]), int(words[2]) if len(words) > 2 else 0
        except (ValueError, IndexError):
            skip("lines that cannot be read", 1)


def _found(
    id: str, project: str, name: Any, parts: list[Any], config: dict[str, Any], tags: dict[str, Any], status: str
) -> FoundRun:
    notes = tags.get("mlflow.note.content") or ""
    shown = [f"{key}={value}" for key, value in tags.items() if not key.startswith("mlflow.")]
    run = id if layout.is_safe(id) else layout.slug(id)
    return FoundRun(run, project, str(name or id), parts, config, shown, str(notes), _STATUSES.get(status, "finished"))


def connect(file: Path) -> sqlite3.Connection:
    """Open a database to read; another process may write to it."""
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)


def tables(database: sqlite3.Connection) -> set[str]:
    """The names of the tables of a database; none when the file is no database."""
    try:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return set()
