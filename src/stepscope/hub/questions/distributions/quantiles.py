"""Quantiles along a run: of a metric, of recorded histograms, and of the durations of spans."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from stepscope.hub.questions.distributions import DistributionRow, cumulative_series, read_distributions
from stepscope.hub.questions.series.metric_keys import find_metrics
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader
from stepscope.hub.refusals import bad_request
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import SeriesRow
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.histogram_rows import Distribution
from stepscope.model.records import ExponentialHistogram, Histogram

Axis = Literal["step", "time"]


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of x, cut into buckets of equal width."""

    x: Axis
    low: int
    high: int
    buckets: int

    @property
    def width(self) -> int:
        """The width of a bucket."""
        return -(-(self.high - self.low + 1) // self.buckets)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets that are not empty: their first and last x, number of values, and quantiles."""

    first: list[int]
    last: list[int]
    count: list[int]
    values: list[list[float]]
    """A list for each quantile."""


def span_extent(engine: Engine, run: int, name: str, x: Axis) -> tuple[int, int] | None:
    """The first and last x of the spans with a name."""
    return _extent(engine, f"SELECT min({x}) AS a, max({x}) AS b, count() AS n FROM spans WHERE {_named(run, name, x)}")


def span_quantiles(engine: Engine, run: int, name: str, extent: Extent, levels: Sequence[float]) -> Buckets:
    """Quantiles of the durations of spans, in ns."""
    return _ask(engine, "spans", "duration", _named(run, name, extent.x), extent, levels)


def _named(run: int, name: str, x: str) -> str:
    known = f" AND step > {NO_STEP}" if x == "step" else ""
    return f"run = {int(run)} AND name = {literal.text(name)}{known}"


def point_extent(engine: Engine, catalog: dict[int, SeriesRow], x: Axis) -> tuple[int, int] | None:
    """The first and last x of the finite points of series."""
    return _extent(
        engine, f"SELECT min({x}) AS a, max({x}) AS b, count() AS n FROM metrics WHERE {_finite(catalog, x)}"
    )


def point_quantiles(engine: Engine, catalog: dict[int, SeriesRow], extent: Extent, levels: Sequence[float]) -> Buckets:
    """Quantiles of the finite points of series, those of all attempts."""
    return _ask(engine, "metrics", "value", _finite(catalog, extent.x), extent, levels)


def _finite(catalog: dict[int, SeriesRow], x: str) -> str:
    known = f" AND step > {NO_STEP}" if x == "step" else ""
    return f"series IN {literal.integers(catalog)} AND isFinite(value){known}"


def _extent(engine: Engine, sql: str) -> tuple[int, int] | None:
    low, high, count = next(engine.query(sql).rows("a", "b", "n"))
    return (low, high) if count else None


def _ask(engine: Engine, table: str, value: str, where: str, extent: Extent, levels: Sequence[float]) -> Buckets:
    wanted = ", ".join(f"{float(level):.6f}" for level in levels)
    x = extent.x
    found = engine.query(
        f"""SELECT intDiv({x} - ({extent.low}), {extent.width}) AS bucket, min({x}) AS first_x, max({x}) AS last_x,
            count() AS n, quantilesExact({wanted})({value}) AS found
        FROM {table} WHERE {where} AND {x} BETWEEN {extent.low} AND {extent.high} GROUP BY bucket ORDER BY bucket"""
    )
    rows: list[list[Any]] = found["found"]
    return Buckets(
        first=found["first_x"],
        last=found["last_x"],
        count=found["n"],
        values=[[float(row[at]) for row in rows] for at in range(len(levels))],
    )


Counts = dict[tuple[float, float], float]
"""How many values lie between two bounds."""


def histogram_quantiles(
    placed: Sequence[tuple[int, DistributionRow]],
    cumulative: Mapping[int, bool],
    extent: Extent,
    levels: Sequence[float],
) -> Buckets:
    """Quantiles of distributions, each with its x, oldest first: by linear interpolation inside their buckets."""
    joined: dict[int, tuple[int, int, Counts]] = {}
    before: dict[tuple[int, int, int], Counts] = {}
    for at, row in placed:
        counted = bucket_counts(row.value)
        if counted is None or not extent.low <= at <= extent.high:
            continue
        if cumulative.get(row.series.number, False):
            place = (row.series.number, row.attempt, row.start)
            counted, before[place] = _since(counted, before.get(place, {})), counted
        if sum(counted.values()) <= 0:
            continue
        bucket = (at - extent.low) // extent.width
        first, last, known = joined.get(bucket, (at, at, {}))
        for bounds, count in counted.items():
            known[bounds] = known.get(bounds, 0.0) + count
        joined[bucket] = (min(first, at), max(last, at), known)
    found = [joined[bucket] for bucket in sorted(joined)]
    return Buckets(
        first=[first for first, _, _ in found],
        last=[last for _, last, _ in found],
        count=[round(sum(counted.values())) for _, _, counted in found],
        values=[[quantile(counted, level) for _, _, counted in found] for level in levels],
    )


def bucket_counts(value: Distribution) -> Counts | None:
    """The non-empty buckets of a histogram; None for a summary, whose quantiles cannot be merged."""
    if isinstance(value, Histogram):
        if not value.bounds:
            return {}
        low = value.low if value.low is not None else min(0.0, value.bounds[0])
        high = value.high if value.high is not None else value.bounds[-1]
        edges = [min(low, value.bounds[0]), *value.bounds, max(high, value.bounds[-1])]
        return {(edges[at], edges[at + 1]): float(count) for at, count in enumerate(value.counts) if count}
    if isinstance(value, ExponentialHistogram):
        return _exponential(value)
    return None


def _exponential(value: ExponentialHistogram) -> Counts:
    grows = math.log(2) * 2.0**-value.scale

    def bound(index: int) -> float:
        return math.exp(min(index * grows, 700.0))

    found: Counts = {(0.0, 0.0): float(value.zeros)} if value.zeros else {}
    for at, count in enumerate(value.positive):
        if count:
            index = value.positive_offset + at
            found[bound(index), bound(index + 1)] = float(count)
    for at, count in enumerate(value.negative):
        if count:
            index = value.negative_offset + at
            found[-bound(index + 1), -bound(index)] = float(count)
    return found


def _since(now: Counts, before: Counts) -> Counts:
    """What was counted since; a count that fell means that the series was reset, and all of it is new."""
    made = {bounds: count - before.get(bounds, 0.0) for bounds, count in now.items()}
    return now if any(count < 0 for count in made.values()) else made


def quantile(counted: Counts, level: float) -> float:
    """The value below which this share of the counts lies."""
    ordered = sorted(counted.items())
    wanted = level * sum(counted.values())
    seen = 0.0
    for (low, high), count in ordered:
        if count > 0 and seen + count >= wanted:
            return low + (high - low) * max(wanted - seen, 0.0) / count
        seen += count
    return ordered[-1][0][1]


MAX_HISTOGRAMS = 20_000
MAX_LINES = 32
_NOTHING = Buckets([], [], [], [])
QuantileKind = Literal["key", "span"]


class QuantileLine(TypedDict):
    """Quantiles of a metric or of the durations of spans."""

    kind: QuantileKind
    name: str
    columns: Annotated[
        Mapping[str, Sequence[float]], Meta(description="`x`, `x_last`, `count`, and one for each quantile.")
    ]


class QuantileAnswer(TypedDict):
    """Quantiles along a run."""

    run: str
    x: str
    q: list[float]
    series: list[QuantileLine]


@Endpoint(
    "/api/runs/{run}/quantiles",
    "readQuantiles",
    (
        RUN,
        Param("key", "text", "a metric, in any spelling of its category", many=MAX_LINES),
        Param("span", "text", "the name of spans", many=MAX_LINES),
        Param("q", "text", "a quantile from 0 to 1; by default 0.5 and 0.99", many=8),
        Param("x", "choice", "the x axis", "step", choices=("step", "time")),
        Param("points", "integer", "at most this many buckets", default=200, low=1, high=2000),
    ),
)
def quantiles(reader: Reader, given: dict[str, Any]) -> QuantileAnswer:
    """Quantiles along a run: of metrics, of recorded histograms, and of the durations of spans in ms."""
    if len(given["key"]) + len(given["span"]) > MAX_LINES:
        raise bad_request(f"ask for at most {MAX_LINES} keys and spans")
    levels = [_level(text) for text in given["q"]] or [0.5, 0.99]
    run, x = reader.number(given["run"]), given["x"]
    keys, catalog = find_metrics(reader.engine, run, given["key"]) if given["key"] else ([], {})
    by_key: dict[str, dict[int, SeriesRow]] = {key: {} for key in keys}
    for number, row in catalog.items():
        by_key[row.key][number] = row
    points = given["points"]
    series = [
        _line("key", key, _of_key(reader, run, mine, x, points, levels), x, levels) for key, mine in by_key.items()
    ]
    series += [_line("span", name, _of_span(reader, run, name, x, points, levels), x, levels) for name in given["span"]]
    return {"run": given["run"], "x": x, "q": levels, "series": series}


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0 <= level <= 1:
        raise bad_request(f"q is {text[:20]!r} and must be a number from 0 to 1")
    return level


def _of_span(reader: Reader, run: int, name: str, x: Axis, points: int, levels: list[float]) -> Buckets:
    bounds = span_extent(reader.engine, run, name, x)
    if bounds is None:
        return _NOTHING
    found = span_quantiles(reader.engine, run, name, Extent(x, *bounds, points), levels)
    in_ms = [[value / 1e6 for value in info] for info in found.values]
    return Buckets(found.first, found.last, found.count, in_ms)


def _of_key(
    reader: Reader, run: int, catalog: dict[int, SeriesRow], x: Axis, points: int, levels: list[float]
) -> Buckets:
    bounds = point_extent(reader.engine, catalog, x)
    if bounds is not None:
        return point_quantiles(reader.engine, catalog, Extent(x, *bounds, points), levels)
    records = read_distributions(reader.engine, catalog, MAX_HISTOGRAMS)[::-1]
    placed = [(at, row) for row in records if (at := row.step if x == "step" else row.time) is not None]
    places = [at for at, _ in placed if x == "time" or at >= 0]
    if not places:
        return _NOTHING
    cumulative = cumulative_series(reader.engine, run, catalog)
    return histogram_quantiles(placed, cumulative, Extent(x, min(places), max(places), points), levels)


def _line(kind: QuantileKind, name: str, found: Buckets, x: str, levels: list[float]) -> QuantileLine:
    columns = {f"q{level:g}": info for level, info in zip(levels, found.values or [[]] * len(levels), strict=True)}
    along: dict[str, list[float]] = {"x": list(found.first), "x_last": list(found.last)}
    if x == "time":
        along = {edge: [round(at / 1e9, 6) for at in values] for edge, values in along.items()}
    return {"kind": kind, "name": name, "columns": {**along, "count": found.count, **columns}}
