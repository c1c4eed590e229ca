"""Copies a store to another engine, run by run and table by table; what is there already is not copied again."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stepscope.hub.store import columns as made
from stepscope.hub.store import schema
from stepscope.hub.store.columns import Answer, Block, Column
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.fingerprint import (
    COPIED,
    TOTALS,
    Fingerprints,
    columns_of,
    current_rows,
    fingerprints,
    of_runs,
)
from stepscope.hub.store.schema import COPIED_TABLE
from stepscope.hub.store.store import Store
from stepscope.hub.store.write.recovery import forget_aborted, rebuild_totals
from stepscope.model.errors import ConfigError

PIECE = 50_000
"""Rows that are read and inserted at a time; a run with more of them is divided."""
_PLACES = {
    **dict.fromkeys(("metrics", "histograms", "exemplars", "series"), "series"),
    **dict.fromkeys(("spans", "open_spans", "traces", "samples", "sample_steps"), "step"),
    **dict.fromkeys(("logs", "alerts", "lifecycle"), "intDiv(time, 1000000000)"),
    **dict.fromkeys(("ledger", "writers"), "writer"),
    "findings": "place",
    **dict.fromkeys(("diagnoses", "runs"), "run"),
}
"""By what a large run is divided: the order of its table, as far as possible."""
_JOURNAL = "(time Int64, source String, finished UInt8) ENGINE = MergeTree ORDER BY time{settings}"
_EMPTY_TABLES = ("runs", "ledger")

Report = Callable[[str, int, int], None]
"""Called with a table, the rows of it that are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class TableResult:
    """What was done for one table."""

    name: str
    rows: int
    copied: int


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did; the rows that it did not copy were there from an earlier attempt."""

    runs: int
    tables: tuple[TableResult, ...]

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def copied(self) -> int:
        """The rows that this attempt copied."""
        return sum(table.copied for table in self.tables)


def refuse_unfinished(engine: Engine) -> None:
    """ConfigError when the store is a copy that is not complete."""
    source = _unfinished(engine)
    if source:
        raise ConfigError(
            f"the store is an incomplete copy of {source}: run `stepscope store migrate` again to complete it, "
            "or remove it"
        )


def migrate(source: Store, target: Store, name: str, report: Report = lambda table, done, total: None) -> Migrated:
    """Copy everything, compare rows and checksums of every run, and return what was done.

    It may be interrupted at any moment and called again. Until it has returned, `refuse_unfinished` refuses the target.
    ConfigError when the target holds something else than an earlier attempt of the same, or differs in the end.
    """
    _begin(target, name)
    forget_aborted(target.engine)
    results = [_copy(source, target, table, report) for table in COPIED]
    target.engine.settle(COPIED)
    results.append(_total(source, target, report))
    target.engine.settle((*COPIED, TOTALS))
    differences = [found for result in results if (found := _difference(source, target, result.name))]
    if differences:
        raise ConfigError(f"the copy differs from {name}: {'; '.join(differences)}. Run the same command again")
    target.fold_all()
    _note(target, name, finished=True)
    return Migrated(len(source.engine.query("SELECT DISTINCT run FROM runs")), tuple(results))


def _begin(target: Store, name: str) -> None:
    """Mark the target as incomplete; ConfigError when it has rows that no earlier attempt can have left."""
    if _unfinished(target.engine) == name:
        return
    counted = [f"SELECT count() AS held FROM {table}" for table in _EMPTY_TABLES]
    if any(answer.one("held") for answer in target.engine.query_many(counted)):
        raise ConfigError("the target holds runs already: choose an empty folder or another database")
    schema.create(target.engine, "migrations", _JOURNAL)
    _note(target, name, finished=False)


def _note(target: Store, name: str, *, finished: bool) -> None:
    row: Block = {
        "time": made.numbers("Int64", [time.time_ns()]),
        "source": made.texts([name]),
        "finished": made.numbers("UInt8", [finished]),
    }
    for index in range(target.engine.shards):
        target.engine.shard(index).insert("migrations", row)


def _unfinished(engine: Engine) -> str:
    """The source of a migration that is not finished, as any shard knows; empty when there is none."""
    errors: list[EngineError] = []
    for index in range(engine.shards):
        try:
            tables = engine.shard(index)
            if not tables.query(COPIED_TABLE).one("held"):
                return ""
            last = tables.query("SELECT source, finished FROM migrations ORDER BY time DESC LIMIT 1")
            return next((source for source, finished in last.rows("source", "finished") if not finished), "")
        except EngineError as error:
            errors.append(error)
    raise errors[0]


def _copy(source: Store, target: Store, table: str, report: Report) -> TableResult:
    types = columns_of(target.engine, table)
    wanted = fingerprints(source.engine, table, types)
    present = fingerprints(target.engine, table, types)
    total = sum(each.rows for each in wanted.values())
    runs = _differing(wanted, present)
    left = [run for run in runs if run in present]
    if left:
        target.engine.execute(f"ALTER TABLE {table} DELETE WHERE {of_runs(table, left)}")
    done = total - sum(wanted[run].rows for run in runs if run in wanted)
    copied = 0
    for condition in _pieces(source.engine, table, {run: wanted[run].rows for run in runs if run in wanted}):
        report(table, done + copied, total)
        found = source.engine.query(f"SELECT {', '.join(types)} FROM {current_rows(table)} WHERE {condition}")
        source.renew()
        target.renew()
        if len(found):
            target.engine.insert(table, _block(found, types))
        copied += len(found)
    report(table, total, total)
    return TableResult(table, total, copied)


def _differing(wanted: Fingerprints, present: Fingerprints) -> list[int]:
    return sorted(run for run in {*wanted, *present} if wanted.get(run) != present.get(run))


def _total(source: Store, target: Store, report: Report) -> TableResult:
    """Compute the totals of the target, where they differ."""
    wanted, present = (fingerprints(store.engine, TOTALS, ()) for store in (source, target))
    runs = _differing(wanted, present)
    total = sum(each.rows for each in wanted.values())
    report(TOTALS, 0, total)
    for portion in _portions({run: wanted[run].rows if run in wanted else 1 for run in runs}):
        queries = [
            f"SELECT DISTINCT series FROM {table} WHERE {of_runs(table, portion)}" for table in ("metrics", TOTALS)
        ]
        series = {number for answer in target.engine.query_many(queries) for number in answer["series"]}
        target.change(partial(rebuild_totals, target.engine, sorted(series)), portion)
    report(TOTALS, total, total)
    return TableResult(TOTALS, total, sum(wanted[run].rows for run in runs if run in wanted))


def _difference(source: Store, target: Store, table: str) -> str:
    """Describe how a table differs in the two stores; empty when it does not."""
    types = columns_of(target.engine, table)
    wanted, present = (fingerprints(store.engine, table, types) for store in (source, target))
    runs = _differing(wanted, present)
    if not runs:
        return ""
    rows = [sum(found[run].rows for run in runs if run in found) for found in (present, wanted)]
    return f"{table} has {rows[0]} rows instead of {rows[1]} in {len(runs)} runs, or others"


def _portions(rows: Mapping[int, int]) -> Iterator[list[int]]:
    """Group runs until they have about the rows of a piece; one that is larger is alone."""
    group: list[int] = []
    held = 0
    for run, count in rows.items():
        if group and held + count > PIECE:
            yield group
            group, held = [], 0
        group.append(run)
        held += count
    if group:
        yield group


def _pieces(engine: Engine, table: str, rows: Mapping[int, int]) -> Iterator[str]:
    """Yield conditions, each for at most about the rows of a piece."""
    for group in _portions(rows):
        whole = of_runs(table, group)
        if sum(rows[run] for run in group) <= PIECE:
            yield whole
        else:
            yield from _divided(engine, table, whole)


def _divided(engine: Engine, table: str, whole: str) -> Iterator[str]:
    """Divide the rows of a large run by their place, and what is at one place by a hash."""
    place = _PLACES[table]
    found = engine.query(
        f"SELECT {place} AS at, count() AS held FROM {current_rows(table)} WHERE {whole} GROUP BY at ORDER BY at"
    )
    counts = dict(found.rows("at", "held"))
    for group in _portions(counts):
        condition = f"{whole} AND {place} BETWEEN {group[0]} AND {group[-1]}"
        parts = -(-sum(counts[at] for at in group) // PIECE)
        if parts == 1:
            yield condition
            continue
        every = ", ".join(columns_of(engine, table))
        yield from (f"{condition} AND cityHash64({every}) % {parts} = {part}" for part in range(parts))


def _block(found: Answer, types: Mapping[str, str]) -> Block:
    """The columns of an answer as rows to insert."""
    return {name: _column(type, found.columns[name]) for name, type in types.items()}


def _column(type: str, values: Any) -> Column:
    if type.startswith("Array("):
        flat = [value for row in values for value in row]
        inner = _column(type[len("Array(") : -1], flat)
        assert not isinstance(inner, made.Lists)
        return made.Lists(made.ends_of(map(len, values)), inner)
    if type == "String":
        return made.Texts(values)
    if type.startswith("FixedString("):
        return made.Fixed(int(type[len("FixedString(") : -1]), b"".join(values))
    if isinstance(values, np.ndarray):
        return made.Numbers(type, values)
    return made.numbers(type, values)
