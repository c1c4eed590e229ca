"""The schema's version: make the tables, upgrade older ones, refuse newer ones."""

import time
from collections.abc import Callable, Mapping

from stepscope.hub.store import columns, literal, tables
from stepscope.hub.store.engine import Engine
from stepscope.model.errors import ConfigError

Upgrade = Callable[[Engine], None]

_SAFE = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1, old_parts_lifetime = 60"
"""Survive a loss of power, too: what is inserted or merged is on the disk before what it replaces goes."""
_WORDS = {
    "delta": "CODEC(Delta, LZ4)",
    "fast": "CODEC(LZ4)",
    "zip": "CODEC(ZSTD(1))",
    "settings": f" SETTINGS {_SAFE}",
    "dense": f" SETTINGS {_SAFE}, index_granularity = 2048, min_compress_block_size = 16384",
}
"""`dense` lets one step of many series be read without unpacking what lies around it."""


def create(engine: Engine, name: str, definition: str) -> None:
    """Create a table unless it is there, with what this engine has of codecs and settings."""
    words = _WORDS if engine.modern else dict.fromkeys(_WORDS, "")
    engine.execute(f"CREATE TABLE IF NOT EXISTS {name} {definition.format(**words)}")


def first(engine: Engine) -> None:
    """Make the tables of version 1."""
    for name, definition in tables.FIRST.items():
        create(engine, name, definition)
    engine.execute(tables.FIRST_VIEW)


def second(engine: Engine) -> None:
    """Add what version 2 has more."""
    for name, definition in tables.SECOND.items():
        create(engine, name, definition)


def third(engine: Engine) -> None:
    """Add the columns that version 3 has more."""
    _add_columns(engine, tables.THIRD)


def fourth(engine: Engine) -> None:
    """Add the columns that version 4 has more."""
    _add_columns(engine, tables.FOURTH)


def fifth(engine: Engine) -> None:
    """Add the tables that version 5 has more."""
    for name, definition in tables.FIFTH.items():
        create(engine, name, definition)


def _add_columns(engine: Engine, columns: Mapping[str, Mapping[str, str]]) -> None:
    for table, added in columns.items():
        found = engine.query(
            f"SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {literal.text(table)}"
        )
        for name, type in added.items():
            if name not in found["name"]:
                engine.execute(f"ALTER TABLE {table} ADD COLUMN {name} {type}")


UPGRADES: Mapping[int, Upgrade] = {1: first, 2: second, 3: third, 4: fourth, 5: fifth}
"""What leads to each version from the one before; every step may be run again after a crash."""


def prepare(engine: Engine, upgrades: Mapping[int, Upgrade] = UPGRADES) -> int:
    """Bring the tables to the newest version and return it; ConfigError when they are newer than this program."""
    create(engine, "versions", "(version UInt32, time Int64) ENGINE = MergeTree ORDER BY version")
    present = int(engine.query("SELECT max(version) AS version FROM versions").one("version"))
    newest = max(upgrades)
    if present > newest:
        raise ConfigError(
            f"the store has schema {present} and this Stepscope knows {newest}: upgrade Stepscope, "
            "or choose another folder with --home"
        )
    for version in range(present + 1, newest + 1):
        upgrades[version](engine)
        now = columns.numbers("Int64", [time.time_ns()])
        engine.insert("versions", {"version": columns.numbers("UInt32", [version]), "time": now})
    return newest
