"""Neptune: the Parquet files of `neptune-exporter`, several for each run."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepscope.extend.importer import Chunk, FoundRun, NextChunk, Part, Skip, Source, layout
from stepscope.model.errors import ConfigError
from stepscope.model.records import Histogram, Log, Metric
from stepscope.model.redaction import mask_text

_NEEDED = {"project_id", "run_id", "attribute_path", "attribute_type", "step", "timestamp", "float_value"}
_CONFIG = {
    "float": "float_value",
    "int": "int_value",
    "string": "string_value",
    "bool": "bool_value",
    "datetime": "datetime_value",
    "string_set": "string_set_value",
}
"""Attribute types with a single value, and the column of the value."""
BATCH_ROWS = 10_000
_MAGIC = b"PAR1"


class NeptuneExport:
    """Folders of Parquet files named RUN_part_N.parquet; the files of a run are read together."""

    name = "Neptune exporter"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs of all files; ConfigError if pyarrow is not installed."""
        if path.is_file():
            files = [path] if path.suffix == ".parquet" else []
        else:
            files = sorted(file for file in path.rglob("*.parquet") if file.is_file())
        if files and find_spec("pyarrow") is None:
            raise ConfigError(f"{files[0]} is a Parquet file: to read it, pip install pyarrow")
        runs: dict[tuple[str, str], list[Path]] = {}
        for file in files:
            owner = _owner(file, skip)
            if owner is not None:
                runs.setdefault(owner, []).append(file)
        return [_run(project, id, files, skip) for (project, id), files in runs.items()]


def _open(file: Path) -> Any:
    """Open a file; OSError or ValueError when it cannot be read."""
    from pyarrow import parquet

    with open(file, "rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a Parquet file")
    return parquet.ParquetFile(file)


def _owner(file: Path, skip: Skip) -> tuple[str, str] | None:
    """The project and the run of a file; None if the exporter did not write it."""
    try:
        opened = _open(file)
        if not set(opened.schema_arrow.names) >= _NEEDED:
            skip("Parquet files that neptune-exporter did not write", 1)
            return None
        for batch in opened.iter_batches(1, columns=["project_id", "run_id"]):
            row = batch.to_pylist()[0]
            return str(row["project_id"]), str(row["run_id"])
        skip("empty Parquet files", 1)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these types
        skip(f"{file.name}: {str(error)[:100]}", 1)
    return None


def _run(project: str, id: str, files: list[Path], skip: Skip) -> FoundRun:
    about: dict[str, Any] = {}
    for file in files:
        for row in _rows(file, 0, ["attribute_path", "attribute_type", *_CONFIG.values()], skip):
            value = row.get(_CONFIG.get(row["attribute_type"], ""))
            if value is not None:
                about[str(row["attribute_path"])] = value.isoformat() if isinstance(value, datetime) else value
    parts: list[Part] = [_ExportFile(file, _ns(about.get("sys/creation_time"))) for file in files]
    name = about.get("sys/name") or about.get("sys/custom_run_id") or id
    tags = [str(each) for key in ("sys/tags", "sys/group_tags") for each in about.get(key) or []]
    config = {key: value for key, value in about.items() if not key.startswith("sys/")}
    run = f"{layout.slug(id)}-{layout.slug(project)}" if project else layout.slug(id)
    status = "failed" if about.get("sys/failed") is True else "finished"
    notes = str(about.get("sys/description") or "")
    return FoundRun(run, project, str(name), parts, config, tags, notes, status)


def _ns(moment: Any) -> int:
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        exact = found if found.tzinfo else found.replace(tzinfo=UTC)
        return max(int(exact.timestamp() * 1e6) * 1000, 0)
    except (AttributeError, ValueError, OverflowError):
        return 0


def _rows(file: Path, first: int, columns: list[str] | None, skip: Skip) -> Iterator[dict[str, Any]]:
    """Yield the rows from `first` on; earlier row groups are not read."""
    try:
        opened = _open(file)
        known = None if columns is None else [name for name in columns if name in opened.schema_arrow.names]
        groups: list[int] = []
        before = 0
        for group in range(opened.metadata.num_row_groups):
            count = opened.metadata.row_group(group).num_rows
            if groups or before + count > first:
                groups.append(group)
            else:
                before += count
        for batch in opened.iter_batches(BATCH_ROWS, row_groups=groups, columns=known) if groups else ():
            if before + batch.num_rows > first:
                yield from batch.slice(max(first - before, 0)).to_pylist()
            before += batch.num_rows
    except (OSError, ValueError) as error:
        skip(f"{file.name}: {str(error)[:100]}", 1)


class _ExportFile:
    """One file: series of numbers, texts and histograms; single values are the configuration."""

    attempt = 1

    def __init__(self, path: Path, time: int) -> None:
        self._path, self.time = path, time
        self.name = path.name

    def size(self) -> int:
        """The number of rows in the file."""
        try:
            return int(_open(self._path).metadata.num_rows)
        except (OSError, ValueError):
            return 0

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the rows after a position."""
        done = int(position["row"]) if position else 0
        if done > self.size():
            skip(f"{self.name}: not read, because it is shorter than before (a different file)", 1)
            return
        chunk, before = NextChunk(skip), done
        for row in _rows(self._path, done, None, skip):
            self._add(chunk, row, skip)
            done += 1
            if chunk.is_full:
                before = done
                yield chunk.take({"row": done}, done)
        if done > before:
            yield chunk.take({"row": done}, done)

    def _add(self, chunk: NextChunk, row: dict[str, Any], skip: Skip) -> None:
        kind, key = str(row["attribute_type"]), str(row["attribute_path"])
        time, step = _ns(row["timestamp"]) or self.time, row["step"]
        if kind in _CONFIG:
            return
        if step is not None and step != int(step):
            skip("fractions of steps, rounded down", 1)
        at = None if step is None else int(step // 1)
        if kind == "float_series":
            value = row["float_value"]  # the exporter writes a null for NaN
            chunk.add(Metric(time, at, None, None, {key: math.nan if value is None else value}), 1)
        elif kind == "string_series" and row.get("string_value") is not None:
            text = mask_text(row["string_value"])
            chunk.add(Log(time, at, None, None, None, 9, text, {"tag": key}, "neptune"))
        elif kind == "histogram_series" and (histogram := _histogram(row.get("histogram_value"))) is not None:
            chunk.add(Metric(time, at, None, None, {key: histogram}), 1)
        else:
            skip({"file": "files", "file_series": "files"}.get(kind, f"values of type {kind[:40]}"), 1)


def _histogram(value: Any) -> Histogram | None:
    """Read bin edges and counts; None for densities, which are not counts."""
    if not isinstance(value, dict) or value.get("type") not in (None, "COUNTING"):
        return None
    edges, counts = value.get("edges") or [], value.get("values") or []
    if len(edges) != len(counts) + 1 or not all(isinstance(each, float) and each >= 0 for each in counts):
        return None
    whole = tuple(int(each) for each in counts)
    return Histogram(sum(whole), None, edges[0], edges[-1], tuple(edges[1:-1]), whole)


SOURCES: tuple[Source, ...] = (NeptuneExport(),)
