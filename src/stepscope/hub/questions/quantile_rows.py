"""Quantiles over stretches of x: of a metric's points, of the durations of spans, of recorded histograms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.series_catalog import Line, read_lines
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.histogram_rows import FIELDS, Distribution, restore


@dataclass(frozen=True, slots=True)
class Extent:
    """What is along x, from where to where, cut into so many stretches."""

    x: Literal["step", "time"]
    low: int
    high: int
    stretches: int

    @property
    def width(self) -> int:
        """How long a stretch is."""
        return -(-(self.high - self.low + 1) // self.stretches)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches that hold something: their first and last x, how many values, and their quantiles."""

    first: list[int]
    last: list[int]
    count: list[int]
    values: list[list[float]]
    """A list for each quantile."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A histogram as it was recorded: a cumulative one holds what the one before it had."""

    series: int
    attempt: int
    at: int
    start: int
    cumulative: bool
    value: Distribution


def span_extent(engine: Engine, run: int, name: str, x: Literal["step", "time"]) -> tuple[int, int] | None:
    """The first and last x of the spans with a name."""
    return _extent(engine, f"SELECT min({x}) AS a, max({x}) AS b, count() AS n FROM spans WHERE {_named(run, name, x)}")


def span_quantiles(engine: Engine, run: int, name: str, extent: Extent, levels: Sequence[float]) -> Stretches:
    """Quantiles of the durations of spans, in ns."""
    return _ask(engine, "spans", "duration", _named(run, name, extent.x), extent, levels)


def _named(run: int, name: str, x: str) -> str:
    known = f" AND step > {NO_STEP}" if x == "step" else ""
    return f"run = {int(run)} AND name = {literal.text(name)}{known}"


def point_extent(engine: Engine, lines: dict[int, Line], x: Literal["step", "time"]) -> tuple[int, int] | None:
    """The first and last x of the finite points of series."""
    return _extent(engine, f"SELECT min({x}) AS a, max({x}) AS b, count() AS n FROM metrics WHERE {_finite(lines, x)}")


def point_quantiles(engine: Engine, lines: dict[int, Line], extent: Extent, levels: Sequence[float]) -> Stretches:
    """Quantiles of the finite points of series, those of all attempts."""
    return _ask(engine, "metrics", "value", _finite(lines, extent.x), extent, levels)


def _finite(lines: dict[int, Line], x: str) -> str:
    known = f" AND step > {NO_STEP}" if x == "step" else ""
    return f"series IN {literal.integers(lines)} AND isFinite(value){known}"


def read_histograms(engine: Engine, run: int, key: str, x: Literal["step", "time"], limit: int) -> list[Recorded]:
    """The histograms of a metric in the order they were recorded, the latest `limit` of them."""
    lines = read_lines(engine, run, key=key)
    if not lines:
        return []
    among = literal.integers(lines)
    kinds = engine.query(f"SELECT series, cumulative FROM series WHERE run = {int(run)} AND series IN {among}")
    cumulative = {series: bool(is_so) for series, is_so in kinds.rows("series", "cumulative")}
    columns = ("series", "attempt", x, "start", *FIELDS)
    names = ", ".join(dict.fromkeys((*columns, "time")))
    found = engine.query(
        f"SELECT {names} FROM histograms WHERE series IN {among} ORDER BY time DESC, series LIMIT {int(limit)}"
    )
    made = [
        Recorded(
            series, attempt, at, start, cumulative.get(series, False), restore(dict(zip(FIELDS, rest, strict=True)))
        )
        for series, attempt, at, start, *rest in found.rows(*columns)
    ]
    return made[::-1]


def _extent(engine: Engine, sql: str) -> tuple[int, int] | None:
    low, high, count = next(engine.query(sql).rows("a", "b", "n"))
    return (low, high) if count else None


def _ask(engine: Engine, table: str, value: str, where: str, extent: Extent, levels: Sequence[float]) -> Stretches:
    wanted = ", ".join(f"{float(level):.6f}" for level in levels)
    x = extent.x
    found = engine.query(
        f"""SELECT intDiv({x} - ({extent.low}), {extent.width}) AS stretch, min({x}) AS first_x, max({x}) AS last_x,
            count() AS n, quantilesExact({wanted})({value}) AS found
        FROM {table} WHERE {where} AND {x} BETWEEN {extent.low} AND {extent.high} GROUP BY stretch ORDER BY stretch"""
    )
    rows: list[list[Any]] = found["found"]
    return Stretches(
        first=found["first_x"],
        last=found["last_x"],
        count=found["n"],
        values=[[float(row[at]) for row in rows] for at in range(len(levels))],
    )
