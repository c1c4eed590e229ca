"""Retention: the oldest runs go first, by age and by bytes; a run that is alive never goes."""

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.store import Store
from stepscope.hub.store.tables import BY_RUN, BY_SERIES, ERA
from stepscope.hub.store.upkeep import info

ALIVE_NS = 3600 * 10**9
"""A run that wrote within this is alive."""


class Candidate(Struct, frozen=True):
    """A run that could go: when it last wrote, by the hub's clock, and about how much it holds."""

    run: int
    received: int
    rows: int


class Dropped(Struct, frozen=True):
    """What retention did."""

    runs: int
    bytes: int
    """Bytes on disk before, less those after; the engine frees the space of replaced parts a little later."""


def retain(
    store: Store,
    *,
    keep: float | None = None,
    max_bytes: int | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Dropped:
    """Drop runs silent for longer than `keep` seconds, then the longest silent ones until `max_bytes` holds."""
    engine, now = store.engine, clock()
    before = info(engine).bytes
    candidates = [each for each in _candidates(engine) if now - each.received > ALIVE_NS]
    chosen = [each.run for each in candidates if keep is not None and now - each.received > keep * 1e9]
    if chosen:
        drop_runs(store, chosen)
    rest = [each for each in candidates if each.run not in set(chosen)]
    while max_bytes is not None and rest and (held := info(engine).bytes) > max_bytes:
        portion = _portion(rest, (held - max_bytes) / held)
        drop_runs(store, [each.run for each in portion])
        chosen += [each.run for each in portion]
        rest = rest[len(portion) :]
    return Dropped(len(chosen), before - info(engine).bytes if chosen else 0)


def _candidates(engine: Engine) -> list[Candidate]:
    """All runs, the longest silent first."""
    found = engine.query(
        """SELECT run, max(last_received) AS silent, sum(last_points) + 4 * sum(last_others) AS held
        FROM (SELECT run, writer, max(received) AS last_received, argMax(points, commit) AS last_points,
            argMax(spans + logs + events + alerts, commit) AS last_others FROM ledger GROUP BY run, writer)
        WHERE run IN (SELECT run FROM runs) GROUP BY run ORDER BY silent, run"""
    )
    return [Candidate(*row) for row in found.rows("run", "silent", "held")]


def _portion(candidates: Sequence[Candidate], share: float) -> Sequence[Candidate]:
    """The fewest of the first that hold about this share of everything that could go; one at least."""
    goal = sum(each.rows for each in candidates) * share
    held = 0
    for index, each in enumerate(candidates):
        held += each.rows
        if held >= goal:
            return candidates[: index + 1]
    return candidates


def drop_runs(store: Store, runs: Sequence[int]) -> None:
    """Delete everything of these runs but the ledger, which keeps old batches from coming back."""
    store.change(lambda _: _drop(store.engine, set(runs)))


def _drop(engine: Engine, runs: set[int]) -> None:
    known = engine.query("SELECT DISTINCT run FROM runs")["run"]
    staying = {run // ERA for run in known if run not in runs}
    eras = {run // ERA for run in runs} - staying
    partial = {run for run in runs if run // ERA not in eras}
    for table in BY_SERIES:
        _clear(engine, table, eras, _of_series(partial))
    for table in BY_RUN:
        whole = table not in ("series", "writers", "runs")
        chosen = partial if whole else runs
        _clear(engine, table, eras if whole else (), f"run IN {literal.integers(chosen)}" if chosen else "")


def _of_series(runs: Iterable[int]) -> str:
    return " OR ".join(f"series BETWEEN {run << 32} AND {(run << 32) + 0xFFFFFFFF}" for run in sorted(runs))


def _clear(engine: Engine, table: str, eras: Iterable[int], rows: str) -> None:
    """Drop whole partitions, which is cheap, and single rows, which rewrites the parts they are in."""
    for era in eras:
        engine.execute(f"ALTER TABLE {table} DROP PARTITION {era}")
    if rows and engine.query(f"SELECT count() AS found FROM {table} WHERE {rows}").one("found"):
        engine.execute(f"ALTER TABLE {table} DELETE WHERE {rows}")
