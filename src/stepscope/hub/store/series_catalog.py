"""What a run measures: its series with their totals, and its keys."""

from collections.abc import Collection, Iterable, Sequence
from math import inf, isfinite, isnan

from msgspec import Struct, structs

from stepscope.hub.store import attrs, exact, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.tables import LAST
from stepscope.model.records import Attrs


class Line(Struct, frozen=True):
    """One series: a metric of a run on one rank."""

    series: int
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
    """What the points of a series in one attempt add up to."""

    line: Line
    attempt: int
    points: int
    flags: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    low: float
    high: float
    """The extremes of the finite values; +Inf and -Inf when there are none."""
    last: float


class KeyRow(Struct, frozen=True):
    """A metric of a run, over all its ranks, attempts and attributes."""

    key: str
    type: str
    unit: str
    description: str
    axes: tuple[str, ...]
    ranks: tuple[int, ...]
    attempts: tuple[int, ...]
    attrs: tuple[Attrs, ...]
    scopes: tuple[str, ...]
    points: int
    flags: int
    first_step: int | None
    last_step: int | None
    first_time: int
    last_time: int
    low: float | None
    high: float | None
    """The extremes of the finite values; None when there are none."""
    last: float | None
    """None for distributions whose sum was not told."""


def span_of(run: int) -> str:
    """The condition that picks the series of a run by their numbers."""
    return f"series BETWEEN {run << 32} AND {(run << 32) + 0xFFFFFFFF}"


def read_lines(
    engine: Engine, run: int, *, key: str | None = None, prefix: str | None = None, rank: int | None = None
) -> dict[int, Line]:
    """Find series of a run by number."""
    conditions = [f"run = {run}"]
    if key is not None:
        conditions.append(f"key = {literal.text(key)}")
    if prefix is not None:
        conditions.append(f"substring(key, 1, {len(prefix.encode())}) = {literal.text(prefix)}")
    if rank is not None:
        conditions.append(f"rank = {int(rank)}")
    found = engine.query(
        f"""SELECT series, key, axis, rank, type, unit, description, attr_names, attr_values, attr_types, scope
        FROM series WHERE {" AND ".join(conditions)} ORDER BY series LIMIT 1 BY series"""
    )
    return {
        series: Line(series, key, axis, rank, type, unit, description, attrs.restore(names, values, types), scope)
        for series, key, axis, rank, type, unit, description, names, values, types, scope in found.rows()
    }


def read_totals(engine: Engine, run: int, lines: dict[int, Line]) -> list[Total]:
    """The totals of series, by series and attempt."""
    if not lines:
        return []
    among = span_of(run)
    if len(lines) <= 1000:
        among = f"series IN {literal.integers(lines)}"
    found = engine.query(
        f"""SELECT series, attempt, sumMerge(points) AS n, groupBitOrMerge(flags) AS f,
            minMerge(first_step) AS s0, maxMerge(last_step) AS s1,
            minMerge(first_time) AS t0, maxMerge(last_time) AS t1,
            minMerge(low) AS v0, maxMerge(high) AS v1, {LAST} AS v
        FROM totals WHERE {among} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    return [Total(lines[series], *rest) for series, *rest in found.rows() if series in lines]


def _histogram_totals(engine: Engine, run: int, lines: dict[int, Line]) -> list[Total]:
    """Distributions seen as series of their means, of those that have one: a count and a sum."""
    mean = "if(count > 0 AND bitAnd(given, 1) > 0, total / count, nan)"
    found = engine.query(
        f"""SELECT series, attempt, count() AS points, toUInt8(0) AS flags,
            min(step) AS first_step, max(step) AS last_step, min(time) AS first_time, max(time) AS last_time,
            minIf({mean}, isFinite({mean})) AS low, maxIf({mean}, isFinite({mean})) AS high,
            argMax({mean}, (step, time)) AS last, countIf(isFinite({mean})) AS means
        FROM histograms WHERE {span_of(run)} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    rows = (
        [series, *rest, *((low, high) if means else (inf, -inf)), last]
        for series, *rest, low, high, last, means in found.rows()
    )
    return [Total(lines[series], *rest) for series, *rest in rows if series in lines]


def _exact(engine: Engine, totals: Sequence[Total]) -> list[Total]:
    """Give integers beyond 2**53 all their digits."""
    series = {total.line.series for total in totals if exact.is_large(total.low, total.high, total.last)}
    if not series:
        return list(totals)
    found = engine.query(
        f"""SELECT series, attempt, argMinIf(rest, (value, rest), isFinite(value)) AS low,
            argMaxIf(rest, (value, rest), isFinite(value)) AS high, argMax(rest, (step, time)) AS last
        FROM metrics WHERE series IN {literal.integers(series)} GROUP BY series, attempt"""
    )
    rests = {(number, attempt): each for number, attempt, *each in found.rows()}
    made = []
    for total in totals:
        low, high, last = rests.get((total.line.series, total.attempt), (0, 0, 0))
        numbers = {"low": exact.whole(total.low, low), "high": exact.whole(total.high, high)}
        made.append(structs.replace(total, **numbers, last=exact.whole(total.last, last)))
    return made


def list_keys(engine: Engine, run: int) -> list[KeyRow]:
    """List the metrics of a run by name."""
    lines = read_lines(engine, run)
    by_key: dict[str, list[Total]] = {}
    numbers, means = _exact(engine, read_totals(engine, run, lines)), _histogram_totals(engine, run, lines)
    for total in (*numbers, *means):
        by_key.setdefault(total.line.key, []).append(total)
    unknown = {total.line.series for total in means if isnan(total.last)}
    return [_key_row(key, by_key[key], unknown) for key in sorted(by_key)]


def _key_row(key: str, totals: Sequence[Total], unknown: Collection[int]) -> KeyRow:
    """Sum up a metric; the last values of the `unknown` series are not known."""
    newest = max(totals, key=lambda total: (total.attempt, total.last_step, total.last_time))
    line = newest.line
    return KeyRow(
        key=key,
        type=line.type,
        unit=line.unit,
        description=line.description,
        axes=tuple(sorted({total.line.axis for total in totals})),
        ranks=tuple(sorted({total.line.rank for total in totals})),
        attempts=tuple(sorted({total.attempt for total in totals})),
        attrs=_distinct(total.line.attrs for total in totals),
        scopes=tuple(sorted({total.line.scope for total in totals})),
        points=sum(total.points for total in totals),
        flags=_either(total.flags for total in totals),
        first_step=step_of(min(total.first_step for total in totals)),
        last_step=step_of(max(total.last_step for total in totals)),
        first_time=min(total.first_time for total in totals),
        last_time=max(total.last_time for total in totals),
        low=_finite(min(total.low for total in totals)),
        high=_finite(max(total.high for total in totals)),
        last=None if line.series in unknown else newest.last,
    )


def _distinct(sets: Iterable[Attrs]) -> tuple[Attrs, ...]:
    return tuple({attrs.as_json(each): each for each in sets}.values())


def _either(flags: Iterable[int]) -> int:
    found = 0
    for flag in flags:
        found |= flag
    return found


def _finite(extreme: float) -> float | None:
    return extreme if isfinite(extreme) else None
