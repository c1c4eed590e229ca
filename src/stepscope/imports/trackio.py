"""Trackio: an SQLite database for each project."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from stepscope.imports.mlflow_stores import connect, tables
from stepscope.imports.source import Chunk, FoundRun, Skip, add_row
from stepscope.journal import layout
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Alert

CHUNK_ROWS = 5_000
_pack = msgspec.msgpack.Encoder().encode


class Trackio:
    """Databases named after their projects."""

    name = "Trackio"

    def find(self, path: Path) -> list[FoundRun]:
        """Return the runs of each database."""
        files = [path] if path.is_file() else sorted(path.glob("*.db")) if path.is_dir() else []
        return [run for file in files for run in self._runs(file)]

    def _runs(self, file: Path) -> Iterator[FoundRun]:
        with closing(connect(file)) as database:
            if not {"metrics", "configs"} <= tables(database) or "experiments" in tables(database):
                return
            columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
            id = "run_id" if "run_id" in columns else "run_name"
            query = f"SELECT {id}, run_name, min(timestamp) FROM metrics GROUP BY {id}, run_name ORDER BY 3"
            for key, name, began in database.execute(query).fetchall():
                found = database.execute(f"SELECT config FROM configs WHERE {id} = ?", (key,)).fetchone()
                config = _object(found[0]) if found else {}
                tidy = {each: value for each, value in config.items() if not each.startswith("_")}
                parts = [_Table(file, table, id, key, _ns(began)) for table in _TABLES if table in tables(database)]
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
        """How many rows the run has."""
        with closing(connect(self._file)) as database:
            query = f"SELECT count(*) FROM {self._table} WHERE {self._id} = ?"
            return int(database.execute(query, (self._key,)).fetchone()[0])

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the rows behind one."""
        last, done = (int(position["row"]), int(position["done"])) if position else (0, 0)
        what = {"metrics": "step, metrics", "system_metrics": "NULL, metrics", "alerts": "step, title, text, level"}
        query = (
            f"SELECT id, timestamp, {what[self._table]} FROM {self._table}"
            f" WHERE {self._id} = ? AND id > ? ORDER BY id LIMIT {CHUNK_ROWS}"
        )
        while True:
            with closing(connect(self._file)) as database:
                rows = database.execute(query, (self._key, last)).fetchall()
            if not rows:
                return
            records: list[bytes] = []
            points = sum(self._add(records, row, skip) for row in rows)
            last, done = rows[-1][0], done + len(rows)
            yield Chunk(records, {"row": last, "done": done}, points, done)

    def _add(self, records: list[bytes], row: tuple[Any, ...], skip: Skip) -> int:
        _, stamp, step, *rest = row
        if self._table != "alerts":
            return add_row(records, _ns(stamp), step, _TABLES[self._table], _object(rest[0]), skip)
        title, text, level = rest
        severity = SEVERITIES.get(str(level).upper(), SEVERITIES["WARN"])
        records.append(_pack(Alert(_ns(stamp), step, None, None, None, severity, str(title), str(text or ""))))
        return 0


def _object(data: Any) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ns(stamp: Any) -> int:
    try:
        moment = datetime.fromisoformat(str(stamp))
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6) * 1000
