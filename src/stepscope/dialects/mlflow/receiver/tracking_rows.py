"""Rows of the tracking database as structs, and the tables of tags and params that belong to them."""

import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, structs

Row = TypeVar("Row", bound=Struct)


@cache
def columns_of(kind: type[Struct], alias: str = "") -> str:
    """Return the fields of a struct as columns of a query; `alias` is the name of their table in it."""
    return ", ".join(f"{alias}.{name}" if alias else name for name in kind.__struct_fields__)


def find_row(db: sqlite3.Connection, kind: type[Row], table: str, **where: Any) -> Row | None:
    """Return the row that has these values; None when there is none."""
    tests = " AND ".join(f"{name} = ?" for name in where)
    row = db.execute(f"SELECT {columns_of(kind)} FROM {table} WHERE {tests}", tuple(where.values())).fetchone()
    return None if row is None else kind(*row)


def add_row(db: sqlite3.Connection, table: str, row: Struct, *numbers: str) -> int:
    """Insert a row, to which the database assigns the columns `numbers`; return its number."""
    values = {name: value for name, value in structs.asdict(row).items() if name not in numbers}
    places = ", ".join("?" for _ in values)
    query = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})"
    return int(db.execute(query, tuple(values.values())).lastrowid or 0)


class Pairs(NamedTuple):
    """A table of tags or params: the columns of their owner, and a key and a value for each."""

    table: str
    owner: tuple[str, ...]

    def put(self, db: sqlite3.Connection, pairs: Mapping[str, str], *owner: Any) -> None:
        """Set some of an owner's pairs."""
        places = ", ".join("?" for _ in (*owner, "key", "value"))
        query = f"INSERT OR REPLACE INTO {self.table} VALUES ({places})"
        db.executemany(query, [(*owner, *pair) for pair in pairs.items()])

    def read(self, db: sqlite3.Connection, *owner: Any) -> dict[str, str]:
        """Return an owner's pairs, by key."""
        return dict(db.execute(f"SELECT key, value FROM {self.table} WHERE {self._whose} ORDER BY key", owner))

    def listed(self, db: sqlite3.Connection, *owner: Any) -> list[dict[str, str]]:
        """Return an owner's pairs in MLflow's JSON."""
        return [{"key": key, "value": value} for key, value in self.read(db, *owner).items()]

    def delete(self, db: sqlite3.Connection, key: str, *owner: Any) -> bool:
        """Remove a pair; return whether there was one."""
        query = f"DELETE FROM {self.table} WHERE {self._whose} AND key = ?"
        return bool(db.execute(query, (*owner, key)).rowcount)

    @property
    def _whose(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.owner)


EXPERIMENT_TAGS = Pairs("experiment_tags", ("experiment",))
PARAMS, TAGS = Pairs("params", ("run",)), Pairs("tags", ("run",))
MODEL_PARAMS, MODEL_TAGS = Pairs("model_params", ("model",)), Pairs("model_tags", ("model",))
REGISTERED_TAGS, VERSION_TAGS = Pairs("registered_tags", ("model",)), Pairs("version_tags", ("model", "version"))
TRACE_TAGS, TRACE_METADATA = Pairs("trace_tags", ("trace",)), Pairs("trace_metadata", ("trace",))
