"""Metrics of a run as chart lines: every point when they fit, else buckets that keep every spike."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stepscope.hub.questions.series.metric_keys import LastJson, exact_totals, find_metrics, last_json
from stepscope.hub.questions.series.series_sql import Axis, Buckets, Plan, Raw, SeriesQuery, along
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader, to_int64
from stepscope.hub.refusals import bad_request
from stepscope.hub.store.columns import patch_exact
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.hub.store.read.series_catalog import SeriesRow, Total, find_series, read_totals
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.last_value import MEANING
from stepscope.model.records import Attrs, Number, Seconds, word
from stepscope.wire.plain import plain


@dataclass(frozen=True, slots=True)
class Series:
    """A line. Of `total` points in range and not superseded, `shown` marks are given: raw points or buckets."""

    total: int = 0
    shown: int = 0
    superseded: int = 0
    flags: int = 0
    origin: int = 0
    """The wall time that relative x counts from."""
    unit: str = ""
    axes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    scope: str = ""
    raw: Raw | None = None
    buckets: Buckets | None = None
    aligned: bool = False
    """Whether the points of several ranks were merged by step."""
    totals: tuple[Total, ...] = field(default=(), repr=False)


def read_series(engine: Engine, query: SeriesQuery) -> Series:
    """Read a line of at most about `points` marks."""
    catalog = find_series(engine, query.run, keys=[query.key], rank=query.rank)
    totals = _matching(query, exact_totals(engine, read_totals(engine, query.run, catalog)))
    return _series(engine, query, totals) if totals else Series()


def _read_by_scope(engine: Engine, query: SeriesQuery, totals: Sequence[Total]) -> list[Series]:
    """Read a line for each instrumentation scope: the same name in two scopes is two instruments."""
    scopes: dict[str, list[Total]] = {}
    for total in _matching(query, totals):
        scopes.setdefault(total.series.scope, []).append(total)
    return [_series(engine, query, scopes[scope]) for scope in sorted(scopes)] or [Series()]


def _series(engine: Engine, query: SeriesQuery, totals: list[Total]) -> Series:
    plan = Plan(engine, query, totals)
    series = Series(
        flags=int(np.bitwise_or.reduce([total.flags for total in totals])),
        origin=plan.origin,
        unit=totals[-1].series.unit,
        axes=tuple(sorted({total.series.axis for total in totals})),
        ranks=tuple(sorted({total.series.rank for total in totals})),
        scope=totals[0].series.scope,
        totals=tuple(totals),
    )
    if plan.low > plan.high:
        return series
    most = max(query.points, 1)
    rolled = plan.from_rollups()
    if rolled is not None and (total := int(rolled[0].count.sum())) > most:
        buckets, superseded = rolled
        return replace(series, buckets=buckets, shown=len(buckets.first), total=total, superseded=superseded)
    everything = plan.count()
    if query.align and query.x != "step" and len(series.ranks) > 1:
        total = plan.count_newest(everything)
        buckets = plan.aligned(total, len(series.ranks))
        shown = replace(series, buckets=buckets, shown=len(buckets.first), aligned=True)
    else:
        shown, total = _points_or_buckets(plan, series, everything, most)
    return replace(shown, total=total, superseded=max(everything - total, 0))  # points may have come in between


def _points_or_buckets(plan: Plan, series: Series, everything: int, most: int) -> tuple[Series, int]:
    """The line as points if at most so many are not superseded, else as buckets; and how many points it has."""
    if everything > most:
        buckets = plan.buckets(finite=not series.flags)
        total = int(buckets.count.sum())
        if total > most:
            return replace(series, buckets=buckets, shown=len(buckets.first)), total
    raw = plan.raw()
    return replace(series, raw=raw, shown=len(raw.x)), len(raw.x)


def _matching(query: SeriesQuery, totals: Sequence[Total]) -> list[Total]:
    """The totals of the series and attempts that a query is about."""
    return [
        total
        for total in totals
        if total.series.key == query.key
        and query.rank in (None, total.series.rank)
        and query.axis in (None, total.series.axis)
        and (query.attrs is None or total.series.attrs == query.attrs)
        and query.scope in (None, total.series.scope)
        and (not isinstance(query.attempt, int) or total.attempt == query.attempt)
        and (query.x != "step" or total.last_step != NO_STEP)
    ]


Shape = Literal["raw", "buckets"]


class SeriesJson(TypedDict):
    """A chart line."""

    key: str
    rank: int | None
    attrs: Attrs | None
    scope: str
    unit: str
    axes: Sequence[str]
    ranks: Sequence[int]
    total: Annotated[int, Meta(description="Points in range.")]
    shown: Annotated[int, Meta(description="Marks: raw points, or buckets.")]
    superseded: Annotated[int, Meta(description="Points replaced by a later attempt.")]
    flags: Annotated[int, Meta(description="1 for NaN, 2 for Infinity, 4 for -Infinity, added up.")]
    origin: Seconds
    shape: Shape
    aligned: bool
    last: Annotated[
        LastJson | None, Meta(description=f"The last value, whatever the range of x: {MEANING}, and their values.")
    ]
    columns: dict[str, list[Number | None]]


class SeriesAnswer(TypedDict):
    """Metrics of a run as lines."""

    run: str
    x: str
    series: list[SeriesJson]


def series_json(key: str, rank: int | None, series: Series, x: Axis, attrs: Attrs | None = None) -> SeriesJson:
    """A chart line. Of `total` points `shown` marks are given; `flags`: 1 for NaN, 2 for Infinity, 4 for -Infinity."""
    shape: Shape = "raw" if series.buckets is None else "buckets"
    columns = _buckets(series.buckets, x) if series.buckets is not None else _raw(series.raw, x)
    return {
        "key": key,
        "rank": rank,
        "attrs": None if attrs is None else plain(attrs),
        "scope": series.scope,
        "unit": series.unit,
        "axes": series.axes,
        "ranks": series.ranks,
        "total": series.total,
        "shown": series.shown,
        "superseded": series.superseded,
        "flags": series.flags,
        "origin": round(series.origin / 1e9, 6) if series.origin else None,
        "shape": shape,
        "aligned": series.aligned,
        "last": last_json(series.totals),
        "columns": columns,
    }


def _raw(raw: Raw | None, x: Axis) -> dict[str, list[Any]]:
    if raw is None:
        return {name: [] for name in ("x", "value", "step", "time", "rank", "attempt")}
    values = _json_values(raw.value)
    if raw.rest is not None:
        patch_exact(values, raw.value, raw.rest)
    return {
        "x": along(raw.x, x),
        "value": values,
        "step": _steps(raw.step),
        "time": along(raw.time, "time"),
        "rank": raw.rank.tolist(),
        "attempt": raw.attempt.tolist(),
    }


def _buckets(buckets: Buckets, x: Axis) -> dict[str, list[Any]]:
    low, high, last = _known(buckets.low), _known(buckets.high), _json_values(buckets.last)
    if buckets.remainders is not None:
        columns = zip((low, high, last), (buckets.low, buckets.high, buckets.last), buckets.remainders, strict=True)
        for shown, values, rest in columns:
            patch_exact(shown, values, rest)
    return {
        "x": along(buckets.first, x),
        "x_last": along(buckets.last_x, x),
        "min": low,
        "max": high,
        "mean": _known(buckets.mean),
        "last": last,
        "count": buckets.count.tolist(),
        "flags": buckets.flags.tolist(),
        **({} if buckets.non_finite is None else {"non_finite": buckets.non_finite.tolist()}),
    }


def _steps(values: npt.NDArray[Any]) -> list[int | None]:
    return [step_of(value) for value in values.tolist()]


def _json_values(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers, with NaN and infinities as strings."""
    plain: list[Any] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        plain[at] = word(plain[at])
    return plain


def _known(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers, None for NaN; an infinite sum is a string."""
    plain: list[Any] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        plain[at] = None if np.isnan(values[at]) else word(plain[at])
    return plain


MAX_LINES = 64


@Endpoint(
    "/api/runs/{run}/series",
    "readSeries",
    (
        RUN,
        Param(
            "key",
            "text",
            "a metric, such as trainer/loss, in any spelling of its category",
            required=True,
            many=MAX_LINES,
        ),
        Param("x", "choice", "the x axis", "step", choices=("step", "time", "relative")),
        Param("points", "integer", "at most about this many marks", default=1000, low=1, high=20_000),
        Param("from", "number", "the least x"),
        Param("to", "number", "the greatest x"),
        Param("rank", "integer", "this rank only; with by_rank, several", many=MAX_LINES, low=0, high=2**32 - 1),
        Param("by_rank", "boolean", "a line for each rank, or each of those named", default=False),
        Param("align", "boolean", "over time, merge what several ranks logged at a step into one mark", default=False),
        Param("by_attrs", "boolean", "a line for each set of attributes", default=False),
        Param("attempts", "text", "newest (superseded points are left out), all, or the number of one", "newest"),
        Param("axis", "text", "of this step axis only, where a metric has several"),
        Param("scope", "text", "of this instrumentation scope only; each has its own line"),
    ),
)
def series(reader: Reader, given: dict[str, Any]) -> SeriesAnswer:
    """Metrics of a run as lines: every point when they fit, else buckets that keep every spike."""
    run, x = reader.number(given["run"]), given["x"]
    ranks = given["rank"]
    if len(ranks) > 1 and not given["by_rank"]:
        raise bad_request("several ranks are given: ask for a line of each with by_rank=true")
    keys, catalog = find_metrics(reader.engine, run, given["key"], ranks[0] if len(ranks) == 1 else None)
    wanted = [(key, *part) for key in keys for part in _parts(catalog, key, given)]
    if len(wanted) > MAX_LINES:
        raise bad_request(f"{len(wanted)} lines are too many: ask for at most {MAX_LINES}")
    attempt = given["attempts"]
    if attempt not in ("newest", "all"):
        if not attempt.isascii() or not attempt.isdecimal() or int(attempt) > 65535:
            raise bad_request("attempts must be newest, all or the number of one")
        attempt = int(attempt)
    totals = exact_totals(reader.engine, read_totals(reader.engine, run, catalog))
    made: list[SeriesJson] = []
    scale = 1.0 if x == "step" else 1e9
    for key, rank, attrs in wanted:
        query = SeriesQuery(
            run=run,
            key=key,
            x=x,
            points=given["points"],
            start=to_int64(given["from"], scale),
            end=to_int64(given["to"], scale),
            rank=rank,
            attempt=attempt,
            axis=given["axis"],
            attrs=attrs,
            scope=given["scope"],
            align=given["align"],
        )
        made += [series_json(key, rank, found, x, attrs) for found in _read_by_scope(reader.engine, query, totals)]
    return {"run": given["run"], "x": x, "series": made}


def _parts(catalog: dict[int, SeriesRow], key: str, given: dict[str, Any]) -> list[tuple[int | None, Attrs | None]]:
    """The ranks and attributes that get a line each; None for all of them together."""
    ranks = given["rank"]
    rank = ranks[0] if len(ranks) == 1 else None
    by_rank = given["by_rank"] and rank is None
    if not by_rank and not given["by_attrs"]:
        return [(rank, None)]
    parts: list[tuple[int | None, Attrs | None]] = []
    for line in (each for each in catalog.values() if each.key == key and (not ranks or each.rank in ranks)):
        part = (line.rank if by_rank else rank, line.attrs if given["by_attrs"] else None)
        if part not in parts:
            parts.append(part)
        if len(parts) > MAX_LINES:
            raise bad_request(
                f"{key} has more than {MAX_LINES} lines; name at most {MAX_LINES} ranks, or ask for all together"
            )
    return sorted(parts, key=lambda part: (part[0] or 0, str(part[1]))) or [(rank, None)]
