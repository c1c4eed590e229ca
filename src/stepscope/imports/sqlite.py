"""SQLite databases of other tools, read while those write."""

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from stepscope.imports.source import FoundRun, Skip

LARGEST_CELL = 64 * 1024 * 1024
"""The size limit of a cell in bytes; a query that has a larger one is an error."""


def databases(path: Path) -> list[Path]:
    """The SQLite files at a path: the file itself, or those in the folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.db")) if path.is_dir() else []
    return [file for file in files if file.is_file() and _is_sqlite(file)]  # opening a named pipe would wait for ever


def _is_sqlite(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(16) == b"SQLite format 3\0"


def connect(file: Path) -> sqlite3.Connection:
    """Open a database for reading; another process may write to it.

    What the file itself defines is not run: a query of a view is an error, since a view may have rows without end.
    """
    database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)
    database.text_factory = lambda data: data.decode(errors="replace")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_CELL)
    database.execute("PRAGMA trusted_schema = OFF")
    database.set_authorizer(_authorize)
    return database


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inside: str | None) -> int:
    """Allow what a query itself asks for, and nothing inside a view."""
    return sqlite3.SQLITE_OK if inside is None else sqlite3.SQLITE_DENY


def tables(database: sqlite3.Connection) -> set[str]:
    """The names of the tables of a database."""
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def select(file: Path, query: str, values: tuple[Any, ...], skip: Skip) -> list[tuple[Any, ...]]:
    """Return the rows of a query; empty, with the reason counted, when the database cannot be read."""
    try:
        with closing(connect(file)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        skip(f"{file.name}: {error}", 1)
        return []


def find_runs(
    path: Path, skip: Skip, read: Callable[[sqlite3.Connection, Path, set[str]], Iterable[FoundRun]]
) -> list[FoundRun]:
    """Return the runs that `read` yields of each database at a path, given its tables; broken ones are counted."""
    found: list[FoundRun] = []
    for file in databases(path):
        try:
            with closing(connect(file)) as database:
                found += read(database, file, tables(database))
        except sqlite3.Error as error:
            skip(f"{file.name}: {error}", 1)
    return found


def count_rows(file: Path, query: str, key: str) -> int:
    """The result of a count query; 0 when the database cannot be read."""
    return sum(int(count) for (count,) in select(file, query, (key,), lambda reason, count: None))
