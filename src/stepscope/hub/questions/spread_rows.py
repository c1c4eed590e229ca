"""Distributions along a run, thinned: of each stretch of steps or time the last one, or the sum where they add up."""

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.series_catalog import Line, read_lines
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.histogram_rows import FIELDS, Distribution, restore


@dataclass(frozen=True, slots=True)
class Spread:
    """Which distributions: of a metric, between two places of x (steps or ns, both included), about so many."""

    run: int
    key: str
    x: Literal["step", "time"] = "step"
    points: int = 100
    start: int | None = None
    end: int | None = None
    rank: int | None = None


class SpreadRow(Struct, frozen=True):
    """One distribution: that of `step` and `time`, or the sum of `merged` that end there."""

    step: int | None
    time: int
    attempt: int
    merged: int
    value: Distribution


class SpreadLine(Struct, frozen=True):
    """The distributions of one series in the order of x; `total` are in range."""

    line: Line
    cumulative: bool
    total: int
    rows: list[SpreadRow]


_SUMS = {
    "given": "groupBitAnd(given)", "count": "sum(count)", "total": "sum(total)", "low": "min(low)",
    "high": "max(high)", "zeros": "sum(zeros)", "counts": "sumForEach(counts)", "negative": "sumForEach(negative)",
}  # fmt: skip
_SAME = ("kind", "scale", "zero_threshold", "positive_offset", "negative_offset", "bounds")
"""Distributions that agree in these can be added."""


def read_spreads(engine: Engine, spread: Spread) -> list[SpreadLine]:
    """Read the distributions of a metric, each of its series by itself."""
    lines = read_lines(engine, spread.run, key=spread.key, rank=spread.rank)
    if not lines:
        return []
    where = _condition(spread, lines)
    found = engine.query(
        f"""SELECT series, count() AS total, min({spread.x}) AS low, max({spread.x}) AS high
        FROM histograms WHERE {where} GROUP BY series ORDER BY series"""
    )
    extents = {series: (total, low, high) for series, total, low, high in found.rows("series", "total", "low", "high")}
    if not extents:
        return []
    low, high = min(extent[1] for extent in extents.values()), max(extent[2] for extent in extents.values())
    stretch = f"intDiv({spread.x} - ({low}), {-(-(high - low + 1) // spread.points)})"
    cumulative = _cumulative(engine, spread.run, lines)
    rows: dict[int, list[SpreadRow]] = {series: [] for series in extents}
    adding = {series for series in extents if lines[series].type and not cumulative[series]}
    for series in (extents.keys() - adding, adding):
        if series:
            among = f"{where} AND series IN {literal.integers(series)}"
            for number, row in _read(engine, spread.x, among, stretch, adds=series == adding):
                rows[number].append(row)
    return [SpreadLine(lines[series], cumulative[series], extents[series][0], rows[series]) for series in extents]


def _condition(spread: Spread, lines: dict[int, Line]) -> str:
    found = [f"series IN {literal.integers(lines)}"]
    if spread.x == "step":
        found.append(f"step > {NO_STEP}")
    found += [f"{spread.x} >= {int(spread.start)}"] if spread.start is not None else []
    found += [f"{spread.x} <= {int(spread.end)}"] if spread.end is not None else []
    return " AND ".join(found)


def _cumulative(engine: Engine, run: int, lines: dict[int, Line]) -> dict[int, bool]:
    found = engine.query(
        f"SELECT series, max(cumulative) AS counts_on FROM series WHERE run = {run} "
        f"AND series IN {literal.integers(lines)} GROUP BY series"
    )
    return {series: bool(counts_on) for series, counts_on in found.rows("series", "counts_on")}


def _read(engine: Engine, x: str, where: str, stretch: str, *, adds: bool) -> list[tuple[int, SpreadRow]]:
    """The last distribution of each stretch, the newest attempt's; or, where each counts anew, their sums."""
    if adds:
        same = ", ".join(_SAME)
        sums = ", ".join(f"{sum} AS sum_{name}" for name, sum in _SUMS.items())
        sql = f"""SELECT series, max(step) AS at_step, max(time) AS at_time, max(attempt) AS of_attempt,
            count() AS merged, {same}, {sums} FROM histograms WHERE {where}
            GROUP BY series, {stretch}, {same} ORDER BY at_{x}"""
        names = [name if name in _SAME else f"sum_{name}" for name in FIELDS]
    else:
        fields = ", ".join(FIELDS)
        sql = f"""SELECT series, step AS at_step, time AS at_time, attempt AS of_attempt, toUInt64(1) AS merged,
            {fields} FROM histograms WHERE {where} ORDER BY series, attempt DESC, {x} DESC, time DESC
            LIMIT 1 BY series, {stretch}"""
        names = list(FIELDS)
    found = engine.query(sql)
    rows = found.rows("series", "at_step", "at_time", "of_attempt", "merged", *names)
    made = [(series, _row(step, time, attempt, merged, rest)) for series, step, time, attempt, merged, *rest in rows]
    return sorted(made, key=lambda each: (each[1].step or 0, each[1].time) if x == "step" else (each[1].time, 0))


def _row(step: int, time: int, attempt: int, merged: int, fields: list[Any]) -> SpreadRow:
    return SpreadRow(step_of(step), time, attempt, int(merged), restore(dict(zip(FIELDS, fields, strict=True))))
