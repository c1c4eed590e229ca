"""The series of a run in the store, and their totals."""

from collections.abc import Collection

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.columns import EXACT_LIMIT, INT64_LIMIT, Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import LAST
from stepscope.model.records import Attrs


class SeriesRow(Struct, frozen=True):
    """One series: a metric of a run on one rank, with one set of attributes."""

    number: int
    key: str
    axis: str
    rank: int
    type: str
    unit: str
    description: str
    attrs: Attrs
    scope: str = ""
    """The instrumentation scope that measured it."""


class Total(Struct, frozen=True):
    """The totals of a series in one attempt."""

    series: SeriesRow
    attempt: int
    points: int
    flags: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    low: float
    high: float
    """Minimum and maximum of the finite values; +Inf and -Inf when there are none."""
    last: float


def span_of(run: int) -> str:
    """The SQL condition for the series of a run, by their numbers."""
    return f"series BETWEEN {run << 32} AND {(run << 32) + 0xFFFFFFFF}"


def find_series(
    engine: Engine, run: int, *, key: str | None = None, keys: Collection[str] = (), rank: int | None = None
) -> dict[int, SeriesRow]:
    """The series of a run by number: of one key, of some keys, or all."""
    conditions = [f"run = {run}"]
    if key is not None:
        conditions.append(f"key = {literal.text(key)}")
    if keys:
        conditions.append(f"key IN {literal.texts(keys)}")
    if rank is not None:
        conditions.append(f"rank = {int(rank)}")
    found = engine.query(
        f"""SELECT series, key, axis, rank, type, unit, description, attr_names, attr_values, attr_types, scope
        FROM series WHERE {" AND ".join(conditions)} ORDER BY series LIMIT 1 BY series"""
    )
    return {
        series: SeriesRow(series, key, axis, rank, type, unit, description, attrs.restore(names, values, types), scope)
        for series, key, axis, rank, type, unit, description, names, values, types, scope in found.rows()
    }


def read_totals(engine: Engine, run: int, catalog: dict[int, SeriesRow]) -> list[Total]:
    """The totals of series, by series and attempt."""
    if not catalog:
        return []
    among = span_of(run)
    if len(catalog) <= 1000:
        among = f"series IN {literal.integers(catalog)}"
    found = engine.query(
        f"""SELECT series, attempt, sumMerge(points) AS n, groupBitOrMerge(flags) AS f,
            minMerge(first_step) AS s0, maxMerge(last_step) AS s1,
            minMerge(first_time) AS t0, maxMerge(last_time) AS t1,
            minMerge(low) AS v0, maxMerge(high) AS v1, {LAST} AS v
        FROM totals WHERE {among} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    return [Total(catalog[series], *rest) for series, *rest in found.rows() if series in catalog]


def last_remainders(engine: Engine, lasts: Answer) -> dict[tuple[int, int], int]:
    """Return by how much last values beyond 2**53 are off the integers that were logged, by series and attempt."""
    values = abs(lasts.array("value"))
    large = set(lasts.array("series")[(values >= EXACT_LIMIT) & (values <= INT64_LIMIT)].tolist())
    if not large:
        return {}
    found = engine.query(
        f"""SELECT series, attempt, argMax(rest, (step, time)) AS last FROM metrics
        WHERE series IN {literal.integers(large)} GROUP BY series, attempt"""
    )
    return {(number, attempt): rest for number, attempt, rest in found.rows("series", "attempt", "last")}
