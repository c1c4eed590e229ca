"""MLflow's local stores: an SQLite database, and folders of text files."""

import json
import math
import re
import sqlite3
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stepscope.extend.importer import (
    Chunk,
    FolderFiles,
    FoundRun,
    NextChunk,
    Skip,
    Source,
    count_rows,
    find_runs,
    layout,
    select,
)
from stepscope.model.records import Metric, Value

_LOCAL = ("", "file")
"""URI schemes of local paths."""
_MAX_MODELS = 10_000
_TRASH = ".trash"
"""The folder of deleted experiments."""
CHUNK_ROWS = 10_000
LONGEST_LINE = 64 * 1024
"""Bytes of a line with one value; a longer one is damage."""
LONGEST_TEXT = 1024 * 1024
LATEST_MS = 9 * 10**12
"""The latest time in milliseconds that fits into 64 bits as nanoseconds."""
_LARGEST = 1.7976931348623157e308
"""The database's value for infinity."""
_STATUSES = {"FAILED": "failed", "KILLED": "preempted", "4": "failed", "5": "preempted"}
_DELETED, _ARTIFACTS = "deleted runs", "artifacts"
_LEFT_OUT = {"datasets": "datasets", "trace_info": "traces", "model_versions": "registered model versions"}
"""Tables that are not imported, and what they contain."""


class MlflowDatabase:
    """An SQLite database, such as `mlflow.db`."""

    name = "MLflow (SQLite)"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs that are not deleted."""
        return find_runs(path, skip, partial(self._runs, skip))

    def _runs(self, skip: Skip, database: sqlite3.Connection, file: Path, present: set[str]) -> Iterator[FoundRun]:
        if not {"experiments", "runs", "metrics", "params", "tags"} <= present:
            return
        query = (
            "SELECT run_uuid, r.name, status, start_time, e.name, r.artifact_uri"
            " FROM runs r JOIN experiments e USING (experiment_id)"
            " WHERE r.lifecycle_stage = 'active' ORDER BY start_time"
        )
        has_models = "logged_models" in present
        for id, name, status, start, project, uri in database.execute(query).fetchall():
            config = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (id,)))
            tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (id,)))
            began = start * 10**6 if isinstance(start, int) and 0 <= start < LATEST_MS else 0
            folders = artifact_folders(str(uri), str(id), skip)
            query = "SELECT model_id, name, artifact_location FROM logged_models WHERE source_run_id = ?"
            for model, title, place in database.execute(query, (id,)).fetchall() if has_models else ():
                folders += artifact_folders(
                    str(place), str(model), skip, f"models/{layout.slug(str(title))}-{model[-8:]}/"
                )
            parts = [_DatabaseRun(file, id, began), FolderFiles(folders, began)]
            yield _found(str(id), str(project), name, parts, config, tags, str(status))
        _count_left_out(database, present, skip)


def _count_left_out(database: sqlite3.Connection, present: set[str], skip: Skip) -> None:
    """Count deleted runs, and the rows of other tables."""
    stages = database.execute("SELECT lifecycle_stage FROM runs").fetchall()
    _skip_some(skip, _DELETED, sum(stage != "active" for (stage,) in stages))
    for table in _LEFT_OUT.keys() & present:
        _skip_some(skip, _LEFT_OUT[table], database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _skip_some(skip: Skip, reason: str, count: int) -> None:
    if count:
        skip(reason, count)


def artifact_folders(uri: str, id: str, skip: Skip, prefix: str = "") -> list[tuple[str, Path]]:
    """Return the folder of the artifacts of a run or model with the prefix of their names, if it is on this machine.

    A store of somebody else may name any folder: only one that MLflow named after the run or model is read.
    """
    try:
        place = urlsplit(uri)
        folder = Path(unquote(place.path))
        if place.scheme not in _LOCAL or not place.path:
            _skip_some(skip, f"{_ARTIFACTS} of {place.scheme[:20]}: URIs", int(bool(uri)))
            return []
        return [(prefix, folder)] if folder.parts[-2:] == (id, "artifacts") and folder.is_dir() else []
    except (OSError, ValueError):  # a database may contain any text
        return []


class _DatabaseRun:
    """The metrics of one run, in the order in which they were inserted."""

    attempt = 1

    def __init__(self, file: Path, id: str, time: int) -> None:
        self._file, self._id, self.time = file, id, time
        self.name = f"metrics of {id}"

    def size(self) -> int:
        """The number of values of the run."""
        return count_rows(self._file, "SELECT count(*) FROM metrics WHERE run_uuid = ?", self._id)

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the values after a row."""
        last, done = (int(position["row"]), int(position["done"])) if position else (0, 0)
        query = (
            "SELECT rowid, key, value, timestamp, step, is_nan FROM metrics"
            " WHERE run_uuid = ? AND rowid > ? ORDER BY rowid LIMIT ?"
        )
        values = _Values(skip)
        while True:
            rows = select(self._file, query, (self._id, last, CHUNK_ROWS), skip)
            if not rows:
                return
            for _, key, value, time, step, is_nan in rows:
                values.add(key, _number(value, is_nan), time, step)
            last, done = rows[-1][0], done + len(rows)
            yield values.take({"row": last, "done": done}, done)


def _number(value: Any, is_nan: Any) -> Any:
    if is_nan:
        return math.nan
    infinite = isinstance(value, float) and abs(value) >= _LARGEST
    return math.copysign(math.inf, value) if infinite else value


class _Values:
    """Collects values; consecutive ones with the same time and step become one record."""

    def __init__(self, skip: Skip) -> None:
        self._skip, self.chunk = skip, NextChunk(skip)
        self._at: tuple[int, int] | None = None
        self._values: dict[str, Value] = {}

    def add(self, key: Any, value: Any, time: Any, step: Any) -> None:
        """Add a value with its time in milliseconds; an invalid one is left out and counted."""
        whole = isinstance(time, int) and isinstance(step, int)
        if not (whole and isinstance(value, (int, float)) and isinstance(key, str) and 0 <= time < LATEST_MS):
            self._skip("values that cannot be read", 1)
            return
        if self._at != (time, step) or key in self._values:
            self._flush()
            self._at = time, step
        self._values[key] = value

    def _flush(self) -> None:
        if self._at is not None and self._values:
            time, step = self._at
            self.chunk.add(Metric(time * 10**6, step, None, None, self._values), len(self._values))
        self._at, self._values = None, {}

    def take(self, position: dict[str, Any], done: int) -> Chunk:
        """Return the chunk of the added values."""
        self._flush()
        return self.chunk.take(position, done)


class MlflowFolder:
    """A folder such as `mlruns`, with a folder for each experiment and run."""

    name = "MLflow (files)"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs that are not deleted, in the given folder or its subfolder `mlruns`."""
        files = [*sorted(path.glob("*/*/meta.yaml")), *sorted(path.glob("mlruns/*/*/meta.yaml"))]
        trash = [*path.glob(f"{_TRASH}/*/*/meta.yaml"), *path.glob(f"mlruns/{_TRASH}/*/*/meta.yaml")]
        _skip_some(skip, _DELETED, len(trash))
        return [run for file in files if (run := self._run(file.parent, skip)) is not None]

    def _run(self, folder: Path, skip: Skip) -> FoundRun | None:
        try:
            about, experiment = (_meta(place / "meta.yaml") for place in (folder, folder.parent))
        except OSError:
            return None
        if "run_id" not in about:
            return None
        if about.get("lifecycle_stage") == "deleted":
            skip(_DELETED, 1)
            return None
        start = about.get("start_time", "")
        began = int(start) if start.isdecimal() and len(start) < 20 else 0
        time = began * 10**6 if began < LATEST_MS else 0
        folders = artifact_folders(about.get("artifact_uri", ""), about["run_id"], skip)
        parts = [_FolderRun(folder, time), FolderFiles([*folders, *_models(folder, about["run_id"], skip)], time)]
        config, tags = _texts(folder / "params"), _texts(folder / "tags")
        name = about.get("run_name") or tags.get("mlflow.runName")
        return _found(about["run_id"], experiment.get("name", ""), name, parts, config, tags, about.get("status", ""))


def _models(folder: Path, run: str, skip: Skip) -> list[tuple[str, Path]]:
    """Return the folders of the models that a run logged, beside those of the runs."""
    found: list[tuple[str, Path]] = []
    for file in islice(sorted(folder.parent.glob("models/*/meta.yaml")), _MAX_MODELS):
        try:
            about = _meta(file)
        except OSError:
            continue
        if about.get("source_run_id") == run:
            id = about.get("model_id", "")
            prefix = f"models/{layout.slug(about.get('name', ''))}-{id[-8:]}/"
            found += artifact_folders(about.get("artifact_location", ""), id, skip, prefix)
    return found


def _meta(file: Path) -> dict[str, str]:
    """Read the flat YAML that MLflow writes about a run or an experiment."""
    pairs = [line.partition(": ") for line in _text_of(file).splitlines() if not line.startswith(" ")]
    return {key: _scalar(value.strip()) for key, _, value in pairs}


def _scalar(text: str) -> str:
    """Read a plain or quoted YAML scalar; MLflow uses only those escapes in double quotes that JSON has too."""
    if text[:1] == "'" == text[-1:]:
        return text[1:-1].replace("''", "'")
    if text[:1] == '"' == text[-1:]:
        try:
            return str(json.loads(re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\u00\1", text)))
        except ValueError:
            return text[1:-1]
    return text


def _texts(folder: Path) -> dict[str, Any]:
    """The contents of the files of a folder by key; slashes in keys are subfolders."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): _text_of(file) for file in files}


def _text_of(file: Path) -> str:
    """The beginning of a file; OSError also for a named pipe, which would be waited for."""
    if not file.is_file():
        raise FileNotFoundError(file)
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read(LONGEST_TEXT).strip("\n")


class _FolderRun:
    """The metrics of one run: a file for each key, a line for each value."""

    attempt = 1

    def __init__(self, folder: Path, time: int) -> None:
        self._folder, self.time = folder / "metrics", time
        self.name = "metrics"

    @staticmethod
    def _size(path: Path) -> int:
        return path.stat().st_size

    def _files(self) -> list[Path]:
        return [file for file in sorted(self._folder.rglob("*")) if file.is_file()]

    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(map(self._size, self._files()))

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the complete lines after the files' offsets."""
        offsets: dict[str, int] = dict(position["offsets"]) if position else {}
        values = _Values(skip)
        for path in self._files():
            key = path.relative_to(self._folder).as_posix()
            with open(path, "rb") as file:
                if offsets.get(key, 0) > self._size(path):
                    skip(f"{key}: not read, because it is shorter than before (a different file)", 1)
                    continue
                file.seek(offsets.get(key, 0))
                while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
                    _add_line(values, key, line, skip)
                    offsets[key] = offsets.get(key, 0) + len(line)
                    if values.chunk.is_full:
                        yield values.take({"offsets": dict(offsets)}, sum(offsets.values()))
                if len(line) == LONGEST_LINE:
                    skip(f"{key}: a line is too long, the rest was left out", 1)
        made = values.take({"offsets": offsets}, sum(offsets.values()))
        if made.records:
            yield made


def _add_line(values: "_Values", key: str, line: bytes, skip: Skip) -> None:
    words = line.split()
    try:
        values.add(key, float(words[1]), int(words[0]), int(words[2]) if len(words) > 2 else 0)
    except (ValueError, IndexError):
        skip("lines that cannot be read", 1)


def _found(
    id: str, project: str, name: Any, parts: list[Any], config: dict[str, Any], tags: dict[str, Any], status: str
) -> FoundRun:
    notes = tags.get("mlflow.note.content") or ""
    shown = [f"{key}={value}" for key, value in tags.items() if not key.startswith("mlflow.")]
    run = id if layout.is_safe(id) else layout.slug(id)
    started = {"parent": str(tags["mlflow.parentRunId"])} if tags.get("mlflow.parentRunId") else {}
    ended = _STATUSES.get(status, "finished")
    return FoundRun(run, project, str(name or id), parts, config, shown, str(notes), ended, started)


SOURCES: tuple[Source, ...] = (MlflowDatabase(), MlflowFolder())
