"""Rows and checksums of each run in each table, by which two stores are compared."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import BY_RUN, BY_SERIES, SEVENTH, TABLES

TOTALS = "totals"
"""Computed again from the points."""
COPIED = tuple(table for table in ("ledger", *BY_RUN[::-1], *BY_SERIES) if table not in (TOTALS, *SEVENTH))
"""Tables whose rows are copied, in this order: rows of commits that the ledger does not have would be taken back."""
_TOTALS = (
    *("series", "attempt", "points", "flags", "low", "high"),
    *("first_step", "last_step", "first_time", "last_time"),
)
_MERGED_TOTALS = """SELECT series, attempt, sumMerge(points) AS points, groupBitOrMerge(flags) AS flags,
    minMerge(first_step) AS first_step, maxMerge(last_step) AS last_step, minMerge(first_time) AS first_time,
    maxMerge(last_time) AS last_time, minMerge(low) AS low, maxMerge(high) AS high
    FROM totals GROUP BY series, attempt"""
"""Without the last values: of points with the same step and time, either may be the last."""


class Fingerprint(NamedTuple):
    """How many rows there are, and the sum of their hashes."""

    rows: int
    checksum: int


Fingerprints = Mapping[int, Fingerprint]
"""By the number of a run."""


def columns_of(engine: Engine, table: str) -> dict[str, str]:
    """The columns of a table with their types."""
    found = engine.query(
        f"SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {literal.text(table)}"
    )
    return dict(sorted(found.rows("name", "type")))


def current_rows(table: str) -> str:
    """The table as a FROM has it: rows that were replaced and wait to be removed do not count."""
    return f"{table} FINAL" if "ReplacingMergeTree" in TABLES[table] else table


def run_expression(table: str) -> str:
    """The number of the run that a row belongs to."""
    return "toUInt32(bitShiftRight(series, 32))" if table in BY_SERIES else "run"


def of_runs(table: str, runs: Iterable[int]) -> str:
    """The condition for the rows of some runs, which finds them by the order of the table."""
    if table not in BY_SERIES:
        return f"run IN {literal.integers(sorted(runs))}"
    return "(" + " OR ".join(f"series BETWEEN {run << 32} AND {(run << 32) + 0xFFFFFFFF}" for run in sorted(runs)) + ")"


def fingerprints(engine: Engine, table: str, columns: Iterable[str]) -> Fingerprints:
    """Count and hash the rows of each run in a table, whatever its number, the same on any version of the engine."""
    source = current_rows(table)
    if table == TOTALS:
        source, columns = f"({_MERGED_TOTALS})", _TOTALS
    named = ", ".join("bitAnd(series, 4294967295)" if name == "series" else name for name in columns if name != "run")
    found = engine.query(
        f"""SELECT {run_expression(table)} AS of_run, count() AS held, sum(cityHash64({named})) AS checksum
        FROM {source} GROUP BY of_run"""
    )
    return {run: Fingerprint(rows, checksum) for run, rows, checksum in found.rows("of_run", "held", "checksum")}
