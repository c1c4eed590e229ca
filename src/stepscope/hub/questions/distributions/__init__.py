"""Distributions: histograms and summaries of a metric along a run, as recorded or thinned, and its exemplars."""

import math
from collections.abc import Collection, Iterator
from functools import partial
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct

from stepscope.hub.questions.series.metric_keys import find_metrics
from stepscope.hub.questions.toolbox.conditions import newest, pages
from stepscope.hub.questions.toolbox.endpoint import (
    LIMIT,
    METRIC,
    RANK_ONLY,
    RUN,
    SINCE,
    UNTIL,
    Endpoint,
    Param,
    Reader,
    nanoseconds,
    seconds,
    to_int64,
)
from stepscope.hub.store import attrs, literal
from stepscope.hub.store.columns import exact_number
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import SeriesRow, find_series, step_of
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.histogram_rows import FIELDS, Distribution, restore
from stepscope.model.records import Attrs, Histogram, Number, Seconds, Summary
from stepscope.wire.plain import plain

MAX_SERIES = 64


class DistributionRow(Struct, frozen=True):
    """One distribution as it was recorded."""

    series: SeriesRow
    attempt: int
    step: int | None
    time: int
    start: int
    value: Distribution


def read_distributions(engine: Engine, catalog: dict[int, SeriesRow], limit: int = 1000) -> list[DistributionRow]:
    """The latest distributions of some series, the newest first."""
    return newest(partial(_read, engine, catalog), catalog, None, None, limit)


def every_distribution(
    engine: Engine, run: int, *, keys: Collection[str] = (), rank: int | None = None
) -> Iterator[list[DistributionRow]]:
    """Yield the distributions of a run page by page, superseded ones too, by series and step."""
    catalog = find_series(engine, run, keys=keys, rank=rank)
    return pages(partial(_read, engine, catalog), catalog, "series, step, time")


def _read(engine: Engine, catalog: dict[int, SeriesRow], rest: str) -> list[DistributionRow]:
    columns = ("series", "attempt", "step", "time", "start", *FIELDS)
    found = engine.query(f"SELECT {', '.join(columns)} FROM histograms {rest}")
    return [
        DistributionRow(catalog[series], attempt, step_of(step), time, start, _restore(fields))
        for series, attempt, step, time, start, *fields in found.rows(*columns)
    ]


def _restore(fields: list[Any]) -> Distribution:
    return restore(dict(zip(FIELDS, fields, strict=True)))


def cumulative_series(engine: Engine, run: int, series: Collection[int]) -> dict[int, bool]:
    """Which series of a run hold cumulative distributions: each includes those before it."""
    found = engine.query(
        f"SELECT series, max(cumulative) AS adds_up FROM series WHERE run = {run} "
        f"AND series IN {literal.integers(series)} GROUP BY series"
    )
    return {number: bool(adds_up) for number, adds_up in found.rows("series", "adds_up")}


class DistributionJson(TypedDict):
    """The values of a distribution: counts between bounds, or the quantiles of a summary."""

    count: int
    sum: Number | None
    min: Number | None
    max: Number | None
    bounds: list[Number]
    counts: Annotated[list[int], Meta(description="One more than bounds.")]
    quantiles: list[list[Number]]


class HistogramJson(DistributionJson):
    """A distribution along a run."""

    x: Number | None
    step: int | None
    time: Seconds
    attempt: int
    merged: Annotated[int, Meta(description="How many were added up.")]


class HistogramSeries(TypedDict):
    """The distributions of a metric on a rank with one set of attributes."""

    rank: int
    axis: str
    attrs: Attrs
    scope: str
    type: str
    unit: str
    cumulative: bool
    total: Annotated[int, Meta(description="Distributions in range.")]
    shown: int
    rows: list[HistogramJson]


class HistogramAnswer(TypedDict):
    """The distributions of a metric along a run."""

    run: str
    key: str
    x: str
    more: bool
    series: list[HistogramSeries]


class ExemplarJson(TypedDict):
    """A single measurement with its span."""

    rank: int
    series: Attrs
    scope: str
    attempt: int
    step: int | None
    time: Seconds
    value: Number
    trace_id: str | None
    span_id: str | None
    attrs: Attrs


class ExemplarList(TypedDict):
    """Exemplars of a metric, the newest first."""

    run: str
    key: str
    exemplars: list[ExemplarJson]


@Endpoint(
    "/api/runs/{run}/histograms",
    "readHistograms",
    (
        RUN,
        METRIC,
        Param("x", "choice", "the x axis", "step", choices=("step", "time")),
        Param("points", "integer", "at most about this many rows of each series", default=100, low=1, high=1000),
        Param("from", "number", "the least x"),
        Param("to", "number", "the greatest x"),
        RANK_ONLY,
    ),
)
def histograms(reader: Reader, given: dict[str, Any]) -> HistogramAnswer:
    """The distributions of a metric along a run, thinned; one series for each rank and set of attributes."""
    run, x = reader.number(given["run"]), given["x"]
    (key,), catalog = find_metrics(reader.engine, run, [given["key"]], given["rank"])
    extents = _extents(reader.engine, given, catalog) if catalog else {}
    made: HistogramAnswer = {"run": given["run"], "key": key, "x": x, "more": len(extents) > MAX_SERIES, "series": []}
    if not extents:
        return made
    low, high = min(extent[1] for extent in extents.values()), max(extent[2] for extent in extents.values())
    bucket = f"intDiv({x} - ({low}), {-(-(high - low + 1) // given['points'])})"
    shown = list(extents)[:MAX_SERIES]
    cumulative = cumulative_series(reader.engine, run, shown)
    adding = {series for series in shown if catalog[series].type and not cumulative[series]}
    rows: dict[int, list[HistogramJson]] = {series: [] for series in shown}
    for some in (rows.keys() - adding, adding):
        if some:
            where = _condition(some, given)
            for series, row in _thinned(reader.engine, x, where, bucket, adds=some == adding):
                rows[series].append(row)
    found = [_series_json(catalog[each], cumulative[each], extents[each][0], rows[each]) for each in shown]
    return {**made, "series": found}


def _extents(engine: Engine, given: dict[str, Any], catalog: dict[int, SeriesRow]) -> dict[int, tuple[int, int, int]]:
    """How many distributions of each series are in range, and their least and greatest x."""
    x = given["x"]
    found = engine.query(
        f"""SELECT series, count() AS total, min({x}) AS low, max({x}) AS high
        FROM histograms WHERE {_condition(catalog, given)} GROUP BY series ORDER BY series"""
    )
    return {series: (total, low, high) for series, total, low, high in found.rows("series", "total", "low", "high")}


def _condition(series: Collection[int], given: dict[str, Any]) -> str:
    x = given["x"]
    scale = 1.0 if x == "step" else 1e9
    found = [f"series IN {literal.integers(series)}"]
    if x == "step":
        found.append(f"step > {NO_STEP}")
    if given["from"] is not None:
        found.append(f"{x} >= {to_int64(given['from'], scale)}")
    if given["to"] is not None:
        found.append(f"{x} <= {to_int64(given['to'], scale)}")
    return " AND ".join(found)


_SUMS = {
    "given": "groupBitAnd(given)", "count": "sum(count)", "total": "sum(total)", "low": "min(low)",
    "high": "max(high)", "zeros": "sum(zeros)", "counts": "sumForEach(counts)", "negative": "sumForEach(negative)",
}  # fmt: skip
_SAME = ("kind", "scale", "zero_threshold", "positive_offset", "negative_offset", "bounds")
"""Distributions with these equal can be added."""


def _thinned(engine: Engine, x: str, where: str, bucket: str, *, adds: bool) -> Iterator[tuple[int, HistogramJson]]:
    """Yield the last distribution of each bucket, of the newest attempt; or, where they can be added, their sum."""
    if adds:
        same = ", ".join(_SAME)
        sums = ", ".join(f"{sum} AS sum_{name}" for name, sum in _SUMS.items())
        sql = f"""SELECT series, max(step) AS at_step, max(time) AS at_time, max(attempt) AS of_attempt,
            count() AS merged, {same}, {sums} FROM histograms WHERE {where}
            GROUP BY series, {bucket}, {same} ORDER BY at_{x}"""
        names = [name if name in _SAME else f"sum_{name}" for name in FIELDS]
    else:
        fields = ", ".join(FIELDS)
        sql = f"""SELECT series, step AS at_step, time AS at_time, attempt AS of_attempt, toUInt64(1) AS merged,
            {fields} FROM histograms WHERE {where} ORDER BY series, attempt DESC, {x} DESC, time DESC
            LIMIT 1 BY series, {bucket}"""
        names = list(FIELDS)
    found = engine.query(sql)
    rows = list(found.rows("series", "at_step", "at_time", "of_attempt", "merged", *names))
    rows.sort(key=lambda row: (step_of(row[1]) or 0, row[2]) if x == "step" else (row[2], 0))
    for series, at_step, time, attempt, merged, *rest in rows:
        step = step_of(at_step)
        yield (
            series,
            {
                "x": step if x == "step" else seconds(time),
                "step": step,
                "time": seconds(time),
                "attempt": attempt,
                "merged": int(merged),
                **_distribution_json(_restore(rest)),
            },
        )


def _distribution_json(value: Distribution) -> DistributionJson:
    bounds, counts = buckets(value)
    return {
        "count": value.count,
        "sum": plain(value.total),
        "min": None if isinstance(value, Summary) else plain(value.low),
        "max": None if isinstance(value, Summary) else plain(value.high),
        "bounds": plain(bounds),
        "counts": counts,
        "quantiles": plain([list(pair) for pair in value.quantiles]) if isinstance(value, Summary) else [],
    }


def _series_json(info: SeriesRow, cumulative: bool, total: int, rows: list[HistogramJson]) -> HistogramSeries:
    """One series: of `total` distributions in range `shown` rows are given."""
    return {
        "rank": info.rank,
        "axis": info.axis,
        "attrs": plain(info.attrs),
        "scope": info.scope,
        "type": info.type,
        "unit": info.unit,
        "cumulative": cumulative,
        "total": total,
        "shown": len(rows),
        "rows": rows,
    }


def buckets(value: Distribution) -> tuple[list[float], list[int]]:
    """Bounds, and the counts up to each of them and beyond the last; none for a summary."""
    if isinstance(value, Histogram):
        return list(value.bounds), list(value.counts)
    if isinstance(value, Summary):
        return [], []
    below = [-_power(value.scale, value.negative_offset + index) for index in range(len(value.negative), -1, -1)]
    above = [_power(value.scale, value.positive_offset + index) for index in range(len(value.positive) + 1)]
    bounds = (below if value.negative else []) + (above if value.positive else [])
    counts = [0, *reversed(value.negative)] if value.negative else []
    counts += [value.zeros, *value.positive, 0] if value.positive else [value.zeros]
    return bounds, counts


def _power(scale: int, index: int) -> float:
    """The bound of an exponential histogram's bucket: base ** index with base = 2 ** (2 ** -scale)."""
    try:
        return math.pow(2.0, math.ldexp(index, -scale))
    except OverflowError:
        return math.inf


class ExemplarRow(Struct, frozen=True):
    """One exemplar, with the step and the series of its point; ids are None where it has none."""

    series: SeriesRow
    attempt: int
    step: int | None
    time: int
    value: int | float
    trace_id: bytes | None
    span_id: bytes | None
    attrs: Attrs


def every_exemplar(
    engine: Engine, run: int, *, keys: Collection[str] = (), rank: int | None = None
) -> Iterator[list[ExemplarRow]]:
    """Yield the exemplars of a run page by page, by series and time."""
    catalog = find_series(engine, run, keys=keys, rank=rank)
    return pages(partial(_read_exemplars, engine, catalog), catalog, "series, time, span_id")


def _read_exemplars(engine: Engine, catalog: dict[int, SeriesRow], rest: str) -> list[ExemplarRow]:
    columns = (
        *("series", "attempt", "step", "time", "value", "rest"),
        *("trace_id", "span_id", "attr_names", "attr_values", "attr_types"),
    )
    found = engine.query(f"SELECT {', '.join(columns)} FROM exemplars {rest}")
    return [
        ExemplarRow(
            catalog[series],
            attempt,
            step_of(step),
            time,
            exact_number(value, off),
            trace if any(trace) else None,
            span if any(span) else None,
            attrs.restore(names, values, types),
        )
        for series, attempt, step, time, value, off, trace, span, names, values, types in found.rows(*columns)
    ]


@Endpoint("/api/runs/{run}/exemplars", "readExemplars", (RUN, METRIC, RANK_ONLY, SINCE, UNTIL, LIMIT))
def exemplars(reader: Reader, given: dict[str, Any]) -> ExemplarList:
    """Exemplars of a metric: single measurements with their spans, the newest first."""
    (key,), catalog = find_metrics(reader.engine, reader.number(given["run"]), [given["key"]], given["rank"])
    since, until = nanoseconds(given["since"]), nanoseconds(given["until"])
    found = newest(partial(_read_exemplars, reader.engine, catalog), catalog, since, until, given["limit"])
    return {"run": given["run"], "key": key, "exemplars": [_exemplar_json(row) for row in found]}


def _exemplar_json(row: ExemplarRow) -> ExemplarJson:
    return {
        "rank": row.series.rank,
        "series": plain(row.series.attrs),
        "scope": row.series.scope,
        "attempt": row.attempt,
        "step": row.step,
        "time": seconds(row.time),
        "value": plain(row.value),
        "trace_id": row.trace_id.hex() if row.trace_id else None,
        "span_id": row.span_id.hex() if row.span_id else None,
        "attrs": plain(row.attrs),
    }
