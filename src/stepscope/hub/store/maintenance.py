"""Maintenance of the store: sizes, checks, backups, and retention by age and by bytes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from stepscope.hub.store import literal, rollups, schema
from stepscope.hub.store.engine import Engine, EngineError, Tables
from stepscope.hub.store.fingerprint import of_runs
from stepscope.hub.store.schema import BY_RUN, BY_SERIES, ERA, PUBLIC, TABLES
from stepscope.hub.store.store import Store

_HARMLESS = ("ignored", "clone", "attaching", "deleting")
"""Reasons for which the engine keeps a part aside without loss of data."""
_NO_PASSWORD = 194
_CHECKED = 1000
"""Folded series that are checked at a time."""
MERGED = tuple(name for name, words in TABLES.items() if "ENGINE = Null" not in words)


class TableInfo(Struct, frozen=True):
    """The size of a table."""

    name: str
    rows: int
    bytes: int
    parts: int


class Info(Struct, frozen=True):
    """The size of a store."""

    engine: str
    schema: int
    tables: tuple[TableInfo, ...]
    bytes: int
    points: int
    bytes_per_point: float


def info(engine: Engine) -> Info:
    """Measure the sizes of the tables."""
    found = engine.query(
        """SELECT table, sum(rows) AS total_rows, sum(bytes_on_disk) AS total_bytes, count() AS parts
        FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table ORDER BY table"""
    )
    sizes = {row[0]: TableInfo(*row) for row in found.rows("table", "total_rows", "total_bytes", "parts")}
    tables = tuple(sizes.get(name, TableInfo(name, 0, 0, 0)) for name in PUBLIC)
    points = next(table for table in tables if table.name == "metrics")
    version = engine.query("SELECT max(version) AS newest FROM versions").one("newest")
    each = points.bytes / points.rows if points.rows else 0.0
    return Info(engine.version, version, tables, sum(table.bytes for table in tables), points.rows, each)


def reach(engine: Engine) -> tuple[int | None, int | None]:
    """Find the times of the oldest and newest record, in ns; None when there are none. Reads whole columns."""
    questions = ["SELECT count() AS found, minMerge(first_time) AS oldest, maxMerge(last_time) AS newest FROM totals"]
    questions += [
        f"SELECT count() AS found, min(time) AS oldest, max(time) AS newest FROM {table}"
        for table in ("histograms", "spans", "logs", "samples", "alerts")
    ]
    rows = [next(answer.rows("found", "oldest", "newest")) for answer in engine.query_many(questions)]
    present = [row for row in rows if row[0]]
    return min((row[1] for row in present), default=None), max((row[2] for row in present), default=None)


class TableColumns(Struct, frozen=True):
    """A table with its columns, by name and type."""

    name: str
    rows: int
    bytes: int
    columns: tuple[tuple[str, str], ...]


def describe(engine: Engine) -> list[TableColumns]:
    """The tables that a user-supplied query may read; a server of 2018 has no `position` to order columns by."""
    found = engine.query("SELECT table, name, type FROM system.columns WHERE database = currentDatabase()")
    columns: dict[str, list[tuple[str, str]]] = {}
    for table, name, type in found.rows("table", "name", "type"):
        columns.setdefault(table, []).append((name, type))
    return [TableColumns(each.name, each.rows, each.bytes, tuple(columns[each.name])) for each in info(engine).tables]


def compact(engine: Engine) -> None:
    """Merge the parts of every table into one per partition; takes as long as rewriting them.

    A single part is left as it is: rewritten it is not smaller, and a small one grows.
    """
    found = engine.query(
        """SELECT table, partition_id FROM system.parts WHERE active AND database = currentDatabase()
        GROUP BY table, partition_id HAVING count() > 1 ORDER BY table, partition_id"""
    )
    for table, partition in found.rows("table", "partition_id"):
        if table in MERGED:
            engine.execute(f"OPTIMIZE TABLE {table} PARTITION ID {literal.text(partition)} FINAL")


def check(engine: Engine) -> list[str]:
    """Describe what is wrong; empty when the store is intact."""
    problems: list[str] = lost(engine)
    for table in MERGED:
        try:
            problems += engine.check(table)
        except EngineError as error:
            problems.append(f"{table}: {error.cause}")
    if not problems:
        problems = _unfinished(engine) + _unnamed(engine) + _unlisted(engine) + _misfolded(engine)
    return problems or _missing(engine)


def lost(engine: Engine) -> list[str]:
    """Name the parts that the engine could not load when it started and detached, where it reports them."""
    if not engine.modern:
        return []
    found = engine.query(
        """SELECT assumeNotNull(table) AS place, name, assumeNotNull(reason) AS why FROM system.detached_parts
        WHERE database = currentDatabase()"""
    )
    return [
        f"{table}: part {part}: could not be loaded ({why})"
        for table, part, why in found.rows("place", "name", "why")
        if why not in _HARMLESS
    ]


_HELD = {
    "points": ("metrics", "histograms"),
    "spans": ("spans", "open_spans"),
    "logs and events": ("logs", "samples"),
    "alerts": ("alerts",),
}
"""The tables that hold what the ledger counts."""


def _missing(engine: Engine) -> list[str]:
    """Compare the ledger's record counts with the tables, as after a part was deleted."""
    tables = [table for each in _HELD.values() for table in each]
    *counts, ledger = engine.query_many(
        [
            *(f"SELECT count() AS held FROM {table}" for table in tables),
            """SELECT sum(p) AS points, sum(s) AS spans, sum(l) AS lines, sum(a) AS alerts FROM (
                SELECT argMax(points, commit) AS p, argMax(spans, commit) AS s, argMax(logs + events, commit) AS l,
                    argMax(alerts, commit) AS a
                FROM ledger WHERE run IN (SELECT run FROM runs) GROUP BY run, writer)""",
        ]
    )
    held = {table: count.one("held") for table, count in zip(tables, counts, strict=True)}
    (expected,) = ledger.rows()
    found = [sum(held[table] for table in each) for each in _HELD.values()]
    return [
        f"{' and '.join(_HELD[noun])}: {present} {noun} instead of the {wanted} that were stored"
        for noun, present, wanted in zip(_HELD, found, expected, strict=True)
        if present != wanted
    ]


def _unfinished(engine: Engine) -> list[str]:
    """Rows of commits that are not in the ledger."""
    late = engine.query("SELECT count() AS late FROM metrics WHERE commit > (SELECT max(commit) FROM ledger)").one(
        "late"
    )
    return [f"metrics: {late} points of an unfinished commit"] if late else []


def _unnamed(engine: Engine) -> list[str]:
    """Series with points that have no row in `series`, and wrong totals."""
    unnamed = engine.query(
        """SELECT count() AS unnamed FROM (SELECT DISTINCT series FROM metrics)
        WHERE series NOT IN (SELECT series FROM series)"""
    ).one("unnamed")
    queries = ("SELECT count() AS points FROM metrics", "SELECT sumMerge(points) AS points FROM totals")
    counted, summed = (sum(answer["points"]) for answer in engine.query_many(queries))
    found = [f"metrics: {unnamed} series without a name"] if unnamed else []
    return found + ([f"totals: {summed} points instead of {counted}"] if counted != summed else [])


def _unlisted(engine: Engine) -> list[str]:
    """Samples that are not counted at their steps."""
    questions = (
        "SELECT count() AS held FROM samples",
        """SELECT sum(counted) AS held FROM (
            SELECT run, name, step, commit, any(row_count) AS counted FROM sample_steps
            GROUP BY run, name, step, commit)""",
    )
    stored, listed = (answer.one("held") for answer in engine.query_many(questions))
    return [f"{_STEPS_OF_SAMPLES} {listed} samples instead of {stored}"] if stored != listed else []


_STEPS_OF_SAMPLES = "sample_steps:"


def mended_by_compact(problems: Sequence[str]) -> bool:
    """Return whether all that is wrong are lists that `compact` makes again."""
    return all(each.startswith(_STEPS_OF_SAMPLES) for each in problems)


def list_samples(engine: Engine) -> None:
    """List the steps of samples that are in no list: an older hub stored them while another upgraded the store."""
    if not _unlisted(engine):
        return
    for index in range(engine.shards):
        engine.shard(index).execute(
            f"{schema.LIST_SAMPLES} WHERE (run, commit) NOT IN (SELECT run, commit FROM sample_steps) {schema.BY_STEP}"
        )


def _misfolded(engine: Engine) -> list[str]:
    """Series whose narrowest cells hold other points than those of the commits that they should hold."""
    marks = list(engine.query(rollups.ALL_MARKS).rows("series", "newest", "base", "kinds"))
    held = wanted = wrong = 0
    for at in range(0, len(marks), _CHECKED):
        chunk = {series: (upto, base) for series, upto, base, kinds in marks[at : at + _CHECKED] if kinds == 1}
        if not chunk:
            continue
        among, numbers = f"series IN {literal.integers(chunk)}", ", ".join(map(str, chunk))
        uptos, bases = ([each[place] for each in chunk.values()] for place in (0, 1))
        points, cells = engine.query_many(
            (
                f"""SELECT series, countIf(commit <= transform(series, [{numbers}], {uptos}, 0)) AS points
                FROM metrics WHERE {among} AND {rollups.HAS_STEP} GROUP BY series ORDER BY series""",
                f"""SELECT series, sum(points) AS points FROM (SELECT series, level, points FROM rollups FINAL
                WHERE {among} AND level < {rollups.MARK})
                WHERE level = transform(series, [{numbers}], {bases}, 0) GROUP BY series ORDER BY series""",
            )
        )
        folded = dict(cells.rows("series", "points"))
        differing = [
            (count, folded.get(series, 0))
            for series, count in points.rows("series", "points")
            if count != folded.get(series, 0)
        ]
        wrong += len(differing)
        wanted, held = wanted + sum(each[0] for each in differing), held + sum(each[1] for each in differing)
    return [f"rollups: {held} points instead of {wanted} in {wrong} series"] if wrong else []


ALIVE_NS = 3600 * 10**9
"""A run that wrote within this time may still be running."""


class Candidate(Struct, frozen=True):
    """A run that may be deleted: when it last wrote, by the hub's clock, and about how many bytes it has."""

    run: int
    received: int
    rows: int


class Dropped(Struct, frozen=True):
    """What retention did."""

    runs: int
    bytes: int
    """Bytes on disk before minus after; the engine frees the space of replaced parts a little later."""


class FilesOfRuns(Protocol):
    """The files of runs beside the store: what was uploaded, imported or logged."""

    def file_bytes(self) -> int:
        """Add up their bytes; reads the disk."""

    def delete_files(self, runs: Sequence[int]) -> None:
        """Delete those of some runs, given by their numbers, whose rows are still there."""


class NoFiles:
    """A store without files beside it."""

    def file_bytes(self) -> int:
        """Nothing."""
        return 0

    def delete_files(self, runs: Sequence[int]) -> None:
        """Do nothing."""


def retain(
    store: Store,
    *,
    keep: float | None = None,
    max_bytes: int | None = None,
    files: FilesOfRuns | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Dropped:
    """Delete runs silent for longer than `keep` seconds, then the longest silent ones until `max_bytes` holds.

    Their files count, and go with them. Only runs of shards that this process writes to, and that answer.
    """
    beside = files or NoFiles()
    engine, now = store.engine, clock()
    candidates = sorted(
        (each for each in _answered(store) if now - each.received > ALIVE_NS),
        key=lambda each: (each.received, each.run),
    )
    chosen = [each.run for each in candidates if keep is not None and now - each.received > keep * 1e9]
    before = _held(engine, beside) if chosen or max_bytes is not None else 0
    if chosen:
        beside.delete_files(chosen)  # before the rows, which say whose they are
        drop_runs(store, chosen)
    rest = [each for each in candidates if each.run not in set(chosen)]
    while max_bytes is not None and rest and (held := _held(engine, beside)) > max_bytes:
        portion = [each.run for each in _portion(rest, (held - max_bytes) / held)]
        beside.delete_files(portion)
        drop_runs(store, portion)
        chosen += portion
        rest = rest[len(portion) :]
    return Dropped(len(chosen), before - _held(engine, beside) if chosen else 0)


def _held(engine: Engine, files: FilesOfRuns) -> int:
    return info(engine).bytes + files.file_bytes()


def _answered(store: Store) -> Iterator[Candidate]:
    """The runs of the shards that this process writes to, without a shard that is down while others are there."""
    for shard in store.held():
        try:
            yield from _candidates(store.engine.shard(shard))
        except EngineError as error:
            if not error.passing or store.engine.shards == 1:
                raise


def _candidates(tables: Tables) -> list[Candidate]:
    """All runs of a shard."""
    found = tables.query(
        """SELECT run, max(last_received) AS silent, sum(last_points) + 4 * sum(last_others) AS held
        FROM (SELECT run, writer, max(received) AS last_received, argMax(points, commit) AS last_points,
            argMax(spans + logs + events + alerts, commit) AS last_others FROM ledger GROUP BY run, writer)
        WHERE run IN (SELECT run FROM runs) GROUP BY run"""
    )
    return [Candidate(*row) for row in found.rows("run", "silent", "held")]


def _portion(candidates: Sequence[Candidate], share: float) -> Sequence[Candidate]:
    """The shortest prefix that holds about this share of everything that may be deleted; at least one run."""
    goal = sum(each.rows for each in candidates) * share
    held = 0
    for index, each in enumerate(candidates):
        held += each.rows
        if held >= goal:
            return candidates[: index + 1]
    return candidates


def drop_runs(store: Store, runs: Sequence[int]) -> None:
    """Delete everything of these runs but the ledger, which prevents old batches from being stored again."""
    shards: dict[int, set[int]] = {}
    for run in runs:
        shards.setdefault(run % store.engine.shards, set()).add(run)
    for shard, chosen in shards.items():  # partitions are dropped on their shard alone: another hub writes to others
        store.change(partial(_drop, store.engine.shard(shard), chosen), chosen)


def _drop(engine: Tables, runs: set[int]) -> None:
    known = engine.query("SELECT DISTINCT run FROM runs")["run"]
    staying = {run // ERA for run in known if run not in runs}
    eras = {run // ERA for run in runs} - staying
    partial = {run for run in runs if run // ERA not in eras}
    for table in BY_SERIES:
        _clear(engine, table, eras, of_runs(table, partial) if partial else "")
    for table in BY_RUN:
        by_era = table not in ("series", "writers", "runs")
        chosen = partial if by_era else runs
        _clear(engine, table, eras if by_era else (), of_runs(table, chosen) if chosen else "")


def _clear(engine: Tables, table: str, eras: Iterable[int], rows: str) -> None:
    """Drop whole partitions, which is cheap, and single rows, which rewrites their parts."""
    for era in eras:
        try:
            engine.execute(f"ALTER TABLE {table} DROP PARTITION {era}")
        except EngineError as error:
            # An old server that is not the leader of a replicated table asks the leader, and has no password for it.
            if error.code != _NO_PASSWORD:
                raise
            of_era = f"{'bitShiftRight(series, 48)' if table in BY_SERIES else f'intDiv(run, {ERA})'} = {era}"
            rows = f"{rows} OR {of_era}" if rows else of_era
    if rows and engine.query(f"SELECT count() AS found FROM {table} WHERE {rows}").one("found"):
        engine.execute(f"ALTER TABLE {table} DELETE WHERE {rows}")
