"""Metrics of a run as chart lines: every point when they fit, else buckets that keep every spike."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stepscope.hub.questions.series.metric_keys import LastJson, exact_totals, find_metrics, last_json
from stepscope.hub.questions.series.rollup_sql import CellQuery, Grid, Interval, grid
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Param, Reader, to_int64
from stepscope.hub.refusals import bad_request
from stepscope.hub.store import literal, rollups
from stepscope.hub.store.columns import Answer, is_large, patch_exact
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import SeriesRow, Total, find_series, read_totals, step_of
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.last_value import MEANING
from stepscope.model.records import Attrs, Number, Seconds, word
from stepscope.wire.plain import plain

Array = npt.NDArray[Any]
Axis = Literal["step", "time", "relative"]


@dataclass(frozen=True, slots=True)
class SeriesQuery:
    """A chart line: `start` and `end` bound x, both included; relative x counts ns from the run's start."""

    run: int
    key: str
    x: Axis = "step"
    points: int = 1000
    start: int | None = None
    end: int | None = None
    rank: int | None = None
    attempt: int | Literal["newest", "all"] = "newest"
    """`newest`: at the same step of a rank a later attempt supersedes the earlier ones."""
    axis: str | None = None
    attrs: Attrs | None = None
    scope: str | None = None
    align: bool = False
    """Over time, merge what several ranks logged at one step into one mark, at the time of the first."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of x: first and last x, extremes and mean of the finite values, last value, counts, flags."""

    first: Array
    last_x: Array
    low: Array
    high: Array
    mean: Array
    last: Array
    count: Array
    flags: Array
    non_finite: Array | None = None
    """None where the points of several ranks were merged."""
    remainders: tuple[Array, ...] | None = None
    """The differences of `low`, `high` and `last` from the exact integers; None when there are none."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Points as they were logged, in the order of x."""

    x: Array
    value: Array
    step: Array
    time: Array
    rank: Array
    attempt: Array
    rest: Array | None = None
    """The difference of `value` from the exact integer; None when there is none."""


class Plan:
    """The queries of one chart line, once its extent is known."""

    def __init__(self, engine: Engine, query: SeriesQuery, totals: Sequence[Total]) -> None:
        self._engine = engine
        self._query = query
        self._totals = totals
        self._ranks = {total.series.number: total.series.rank for total in totals}
        self._large = any(is_large(total.low, total.high) for total in totals)
        by_step = query.x == "step"
        self._x = "step" if by_step else "time"
        self.origin = _origin(engine, query.run, totals) if query.x == "relative" else 0
        lows = [total.first_step if by_step else total.first_time for total in totals]
        highs = [total.last_step if by_step else total.last_time for total in totals]
        self._full_range = (min(lows), max(highs))
        self.low = min(lows) if query.start is None else max(min(lows), query.start + self.origin)
        self.high = max(highs) if query.end is None else min(max(highs), query.end + self.origin)
        if by_step:
            self.low = max(self.low, NO_STEP + 1)
        conditions = [f"series IN {literal.integers(self._ranks)}"]
        if isinstance(query.attempt, int):
            conditions.append(f"attempt = {query.attempt}")
        if by_step or (self.low, self.high) != self._full_range:
            conditions.append(f"{self._x} BETWEEN {self.low} AND {self.high}")
        self._all = " AND ".join(conditions)
        self._overlaps: list[Interval] = []
        older = self._superseded() if query.attempt == "newest" else []
        self._newest = " AND ".join((*conditions, *older))

    def _superseded(self) -> list[str]:
        """Conditions that exclude points whose step a later attempt has too, where steps overlap; notes where."""
        found = []
        for attempt in sorted({total.attempt for total in self._totals})[:-1]:
            mine = [total for total in self._totals if total.attempt == attempt]
            newer = [total for total in self._totals if total.attempt > attempt]
            low = max(min(total.first_step for total in mine), min(total.first_step for total in newer), NO_STEP + 1)
            high = min(max(total.last_step for total in mine), max(total.last_step for total in newer))
            if self._x == "step":
                low, high = max(low, self.low), min(high, self.high)
            if low > high:
                continue
            self._overlaps.append((low, high))
            among = f"step BETWEEN {low} AND {high}"
            what = "step" if len(self._ranks) == 1 else "series, step"
            later = f"series IN {literal.integers(self._ranks)} AND attempt > {attempt} AND {among}"
            repeated = f"({what}) IN (SELECT {what} FROM metrics WHERE {later})"
            found.append(f"NOT (attempt = {attempt} AND {among} AND {repeated})")
        return found

    def count(self) -> int:
        """How many points are in range."""
        if (self.low, self.high) == self._full_range:
            return sum(total.points for total in self._totals)
        return self._count(self._all)

    def count_newest(self, everything: int) -> int:
        """How many of them are not superseded."""
        return everything if self._newest == self._all else self._count(self._newest)

    def _count(self, condition: str) -> int:
        return int(self._engine.query(f"SELECT count() AS n FROM metrics WHERE {condition}").one("n"))

    def raw(self) -> Raw:
        found = self._engine.query(
            f"""SELECT series, step, time, attempt, value{", rest" if self._large else ""}
            FROM metrics WHERE {self._newest}
            ORDER BY {self._x}, time, series"""
        )
        x = found.array(self._x, "i8") - self.origin
        ranks = np.array([self._ranks[series] for series in found["series"]], dtype=np.int64)
        return Raw(
            x,
            found.array("value"),
            found.array("step", "i8"),
            found.array("time", "i8"),
            ranks,
            found.array("attempt", "u2"),
            found.array("rest", "i8") if self._large else None,
        )

    def _grid(self) -> Grid:
        """The buckets of the range; those of steps do not depend on whether there are rollups."""
        points = self._query.points
        if self._x == "step" and max(abs(self.low), abs(self.high)) < _LARGEST_PLACE:
            return grid(self.low, self.high, points)
        return Grid(self.low, -(-(self.high - self.low + 1) // points), None)

    def from_rollups(self) -> tuple[Buckets, int] | None:
        """The buckets of a long line by step, and how many points are superseded; None when points must be read."""
        if self._x != "step" or self._large or sum(total.points for total in self._totals) < rollups.FOLD_POINTS:
            return None
        made = self._grid()
        if made.level is None:
            return None
        first, last = max(self._full_range[0], NO_STEP + 1), self._full_range[1]
        found = CellQuery(
            engine=self._engine,
            grid=made,
            series=self._ordered(),
            low=self.low,
            high=self.high,
            every=self._all,
            newest=self._newest,
            attempt=self._query.attempt if isinstance(self._query.attempt, int) else None,
            held=self._held(),
            overlaps=self._overlaps,
            cut=[end for end, whole in ((self.low, first), (self.high, last)) if end != whole],
        ).read()
        if found is None:
            return None
        rows, superseded = found
        good = rows["good"]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = rows["total"] / good
        buckets = Buckets(
            first=rows["first_step"],
            last_x=rows["last_step"],
            low=np.where(good > 0, rows["low"], np.nan),
            high=np.where(good > 0, rows["high"], np.nan),
            mean=mean,
            last=rows["last"],
            count=rows["points"],
            flags=rows["flags"],
            non_finite=rows["points"].astype(np.int64) - good.astype(np.int64),
        )
        return buckets, superseded

    def _held(self) -> dict[int, int]:
        """How many points each series has, where the line has all of its attempts."""
        held: dict[int, int] = {}
        for total in self._totals if not isinstance(self._query.attempt, int) else ():
            held[total.series.number] = held.get(total.series.number, 0) + total.points
        return held

    def buckets(self, *, finite: bool) -> Buckets:
        """Cut the range into buckets of equal width; a line known to be finite needs less work."""
        made = self._grid()
        x = self._x
        good = "count" if finite else "good"
        values = _FINITE if finite else ANY_VALUES
        last = self._place()
        rests = _RESTS.format(x=last) if self._large else ""
        found = self._engine.query(
            f"""SELECT {made.bucket(x)} AS bucket, count() AS count, min({x}) AS first_x,
                max({x}) AS last_x, argMax(value, {last}) AS last, {values}{rests}
            FROM metrics WHERE {self._newest} GROUP BY bucket ORDER BY bucket"""
        )
        buckets = self._made(found, good, finite=finite, remainders=self._large)
        return replace(buckets, non_finite=found.array("count", "i8") - found.array(good, "i8"))

    def _place(self) -> str:
        """What decides which point is the last one: x, and of several series at one step the highest rank.

        One number, for a tuple would take the query three times as long.
        """
        ordered = self._ordered()
        count = len(ordered)
        if self._x != "step" or count == 1 or max(abs(self.low), abs(self.high)) * count >= _LARGEST_PLACE:
            return self._x
        numbers = ", ".join(map(str, ordered))
        return f"step * {count} + transform(series, [{numbers}], {list(range(count))}, 0)"

    def _ordered(self) -> list[int]:
        """The series in the order in which the last of them counts."""
        series = {total.series.number: total.series for total in self._totals}
        return sorted(series, key=lambda number: (series[number].rank, repr(series[number].attrs), number))

    def aligned(self, total: int, ranks: int) -> Buckets:
        """The points of all ranks at a step as one mark; without steps, the points of two rounds of readings.

        Ranks log at slightly different times, so that points in the order of time would jump from rank to rank. The
        mean of a mark is that of the ranks, each by its own mean.
        """
        slot = max(2 * (self.high - self.low) * ranks // max(total, 1), 1)
        # An incomplete slot at the end is merged into the one before: some ranks are missing in it.
        most = max((self.high - self.low) // slot - 1, 0)
        place = f"if(step > {NO_STEP}, step, least(intDiv(time - ({self.low}), {slot}), {most}))"
        by_rank = f"""SELECT {place} AS place, attempt, step > {NO_STEP} AS stepped, series, min(time) AS at,
                count() AS n, {ANY_VALUES}
            FROM metrics WHERE {self._newest} GROUP BY place, attempt, stepped, series"""
        marks = f"""SELECT min(at) AS x, sum(n) AS points, countIf(good > 0) > 0 AS g, minIf(low, good > 0) AS l,
                maxIf(high, good > 0) AS h, if(g, avgIf(sum / good, good > 0), 0) AS m, groupBitOr(flags) AS f
            FROM ({by_rank}) GROUP BY place, attempt, stepped"""
        # One mark per point: no buckets needed.
        width = 1 if total <= self._query.points * ranks else -(-(self.high - self.low + 1) // self._query.points)
        found = self._engine.query(
            f"""SELECT intDiv(x - ({self.low}), {width}) AS bucket, sum(points) AS count, min(x) AS first_x,
                max(x) AS last_x, argMax(m, x) AS last, sum(g) AS good, minIf(l, g) AS low, maxIf(h, g) AS high,
                sumIf(m, g) AS sum, groupBitOr(f) AS flags
            FROM ({marks}) GROUP BY bucket ORDER BY bucket"""
        )
        return self._made(found, "good", finite=False, remainders=False)

    def _made(self, found: Answer, good: str, *, finite: bool, remainders: bool) -> Buckets:
        finite_counts = found.array(good)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = found.array("sum") / finite_counts
        return Buckets(
            first=found.array("first_x", "i8") - self.origin,
            last_x=found.array("last_x", "i8") - self.origin,
            low=np.where(finite_counts > 0, found.array("low"), np.nan),
            high=np.where(finite_counts > 0, found.array("high"), np.nan),
            mean=mean,
            last=found.array("last"),
            count=found.array("count", "u8"),
            flags=np.zeros(len(finite_counts), np.uint8) if finite else found.array("flags", "u1"),
            remainders=tuple(found.array(name, "i8") for name in _REST_NAMES) if remainders else None,
        )


_LARGEST_PLACE = 2**62
_REST_NAMES = ("low_rest", "high_rest", "last_rest")
_RESTS = """, argMinIf(rest, (value, rest), isFinite(value)) AS low_rest,
    argMaxIf(rest, (value, rest), isFinite(value)) AS high_rest, argMax(rest, {x}) AS last_rest"""
_FINITE = "min(value) AS low, max(value) AS high, sum(value) AS sum"
ANY_VALUES = """countIf(isFinite(value)) AS good, minIf(value, isFinite(value)) AS low,
    maxIf(value, isFinite(value)) AS high, sumIf(value, isFinite(value)) AS sum,
    groupBitOr(toUInt8(if(isFinite(value), 0, if(isNaN(value), 1, if(value > 0, 2, 4))))) AS flags"""


def _origin(engine: Engine, run: int, totals: Sequence[Total]) -> int:
    """When the run started: by the clock of its first writer, or by its first point."""
    found = engine.query(f"SELECT min(wall_ns) AS at FROM writers WHERE run = {run} AND wall_ns > 0 GROUP BY run")["at"]
    return int(min([*found, *(total.first_time for total in totals)]))


def along(values: npt.NDArray[Any], x: Axis) -> list[Any]:
    """Steps as they are, times in seconds to the microsecond."""
    return list(values.tolist()) if x == "step" else list(np.round(values / 1e9, 6).tolist())


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
