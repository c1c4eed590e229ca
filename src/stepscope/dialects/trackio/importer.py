"""Trackio: an SQLite database for each project, and the media beside them."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from stepscope.extend.importer import (
    Chunk,
    FoundRun,
    NextChunk,
    Skip,
    Source,
    SourceFile,
    count_rows,
    find_runs,
    layout,
    select,
)
from stepscope.model.names import SCOPE_SAMPLES, SEVERITIES
from stepscope.model.records import Alert, Log
from stepscope.model.redaction import mask_text, redact
from stepscope.model.sample_columns import MAX_COLUMNS, MAX_NAME
from stepscope.wire.nested_rows import as_step

CHUNK_ROWS = 1_000
MAX_ROWS = 10_000
"""Rows of one table."""
EVENT_VALUES = "trackio.values"
"""The event for values of a row that are not numbers: texts, and media as objects that name their files."""
_TABLE = "trackio.table"


class Trackio:
    """Databases named after their projects."""

    name = "Trackio"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs of each database."""
        return find_runs(path, skip, self._runs)

    def _runs(self, database: sqlite3.Connection, file: Path, present: set[str]) -> Iterator[FoundRun]:
        if not {"metrics", "configs"} <= present or "experiments" in present:
            return
        columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
        id = "run_id" if "run_id" in columns else "run_name"
        query = f"SELECT {id}, run_name, min(timestamp) FROM metrics GROUP BY {id}, run_name ORDER BY 3"
        for key, name, began in database.execute(query).fetchall():
            found = database.execute(f"SELECT config FROM configs WHERE {id} = ?", (key,)).fetchone()
            config = (_object(found[0]) if found else None) or {}
            tidy = {each: value for each, value in config.items() if not each.startswith("_")}
            parts = [_Table(file, table, id, key, _ns(began)) for table in _TABLES if table in present]
            run = key if layout.is_safe(str(key)) else layout.slug(f"{file.stem}-{key}")
            yield FoundRun(str(run), file.stem, str(name), list(parts), tidy)


_TABLES = {"metrics": None, "system_metrics": "system", "alerts": None}


class _Table:
    """The rows of one run in one table."""

    attempt = 1

    def __init__(self, file: Path, table: str, id: str, key: str, time: int) -> None:
        self._file, self._table, self._id, self._key, self.time = file, table, id, key, time
        self.name = table

    def size(self) -> int:
        """The number of rows of the run."""
        return count_rows(self._file, f"SELECT count(*) FROM {self._table} WHERE {self._id} = ?", self._key)

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the rows after a position, with the files that they name."""
        last, done = (int(position["row"]), int(position["done"])) if position else (0, 0)
        what = {"metrics": "step, metrics", "system_metrics": "NULL, metrics", "alerts": "step, title, text, level"}
        query = (
            f"SELECT id, timestamp, {what[self._table]} FROM {self._table}"
            f" WHERE {self._id} = ? AND id > ? AND typeof(id) = 'integer' ORDER BY id LIMIT {CHUNK_ROWS}"
        )
        chunk = NextChunk(skip)
        while True:
            rows = select(self._file, query, (self._key, last), skip)
            if not rows:
                return
            for row in rows:
                self._add(chunk, row, skip)
                last, done = row[0], done + 1
                if chunk.is_full or row is rows[-1]:
                    yield chunk.take({"row": last, "done": done}, done)

    def _add(self, chunk: NextChunk, row: tuple[Any, ...], skip: Skip) -> None:
        _, stamp, step, *rest = row
        step = as_step(step)
        if self._table == "alerts":
            title, body, level = (mask_text(str(each or "")) for each in rest)
            severity = SEVERITIES.get(level.upper(), SEVERITIES["WARN"])
            chunk.add(Alert(_ns(stamp), step, None, None, None, severity, title, body))
            return
        values = _object(rest[0])
        if values is None:
            skip("rows that cannot be read", 1)
        else:
            plain = {key: value for key, value in values.items() if not self._is_table(chunk, key, value, step, stamp)}
            self._add_files(chunk, plain, skip)
            chunk.add_row(_ns(stamp), step, _TABLES[self._table], plain, others=EVENT_VALUES)

    def _is_table(self, chunk: NextChunk, key: str, value: Any, step: int | None, stamp: Any) -> bool:
        """Add the rows of a table as samples, if a value is one."""
        if not isinstance(value, dict) or value.get("_type") != _TABLE or not isinstance(value.get("_value"), list):
            return False
        for at, row in enumerate(each for each in value["_value"][:MAX_ROWS] if isinstance(each, dict)):
            cells = redact({str(name)[:MAX_NAME]: cell for name, cell in islice(row.items(), MAX_COLUMNS)})
            chunk.add(Log(_ns(stamp) + at, step, None, None, None, SEVERITIES["INFO"], key, cells, SCOPE_SAMPLES))
        return True

    def _add_files(self, chunk: NextChunk, values: dict[str, Any], skip: Skip) -> None:
        folder = self._file.parent / "media"
        for value in values.values():
            name = value.get("file_path") if isinstance(value, dict) and "_type" in value else None
            if not isinstance(name, str):
                continue
            try:
                path = (folder / name).resolve(strict=True)
                inside = path.is_file() and path.is_relative_to(folder.resolve()) and ".." not in name.split("/")
            except (OSError, ValueError):
                inside = False
            if inside and not name.startswith("/"):
                chunk.add_file(SourceFile(name, path))
            else:
                skip("files of media that are not there", 1)


def _object(data: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _ns(stamp: Any) -> int:
    try:
        moment = datetime.fromisoformat(str(stamp))
    except ValueError:
        return 0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(int(moment.timestamp() * 1e6) * 1000, 0) if moment.year < 2250 else 0


SOURCES: tuple[Source, ...] = (Trackio(),)
