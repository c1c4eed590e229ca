"""What a run measures: its series with their totals, and its keys."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.runs import step_of
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
    points: int
    flags: int
    first_step: int | None
    last_step: int | None
    first_time: int
    last_time: int
    low: float
    high: float
    last: float


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
        f"""SELECT series, key, axis, rank, type, unit, description, attr_names, attr_values, attr_types
        FROM series WHERE {" AND ".join(conditions)} ORDER BY series LIMIT 1 BY series"""
    )
    return {
        series: Line(series, key, axis, rank, type, unit, description, attrs.restore(names, values, types))
        for series, key, axis, rank, type, unit, description, names, values, types in found.rows()
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
    """Distributions seen as series of their means."""
    found = engine.query(
        f"""SELECT series, attempt, count() AS points, toUInt8(0) AS flags,
            min(step) AS first_step, max(step) AS last_step, min(time) AS first_time, max(time) AS last_time,
            min(total / count) AS low, max(total / count) AS high, argMax(total / count, (step, time)) AS last
        FROM histograms WHERE {span_of(run)} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    return [Total(lines[series], *rest) for series, *rest in found.rows() if series in lines]


def list_keys(engine: Engine, run: int) -> list[KeyRow]:
    """List the metrics of a run by name."""
    lines = read_lines(engine, run)
    by_key: dict[str, list[Total]] = {}
    for total in (*read_totals(engine, run, lines), *_histogram_totals(engine, run, lines)):
        by_key.setdefault(total.line.key, []).append(total)
    return [_key_row(key, by_key[key]) for key in sorted(by_key)]


def _key_row(key: str, totals: Sequence[Total]) -> KeyRow:
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
        points=sum(total.points for total in totals),
        flags=_either(total.flags for total in totals),
        first_step=step_of(min(total.first_step for total in totals)),
        last_step=step_of(max(total.last_step for total in totals)),
        first_time=min(total.first_time for total in totals),
        last_time=max(total.last_time for total in totals),
        low=min(total.low for total in totals),
        high=max(total.high for total in totals),
        last=newest.last,
    )


def _distinct(sets: Iterable[Attrs]) -> tuple[Attrs, ...]:
    return tuple({attrs.as_json(each): each for each in sets}.values())


def _either(flags: Iterable[int]) -> int:
    found = 0
    for flag in flags:
        found |= flag
    return found
