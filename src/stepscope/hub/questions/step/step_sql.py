"""The SQL of the step inspector: values, neighbours, system metrics and the nearest anomalies of a step."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from stepscope.hub.questions.logs import find_alerts, find_logs
from stepscope.hub.questions.step.rank_pages import RankPage
from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.traces.stored_spans import (
    RankSpans,
    SpanRow,
    extents_of,
    find_spans,
    last_rank,
    outline_of,
    outline_sql,
    usual_durations_sql,
)
from stepscope.hub.store import literal
from stepscope.hub.store.columns import exact_number, is_large
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LogRow
from stepscope.hub.store.read.run_catalog import SeriesRow, find_series, span_of
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.names import SEVERITIES
from stepscope.model.records import FIRST_STEP, LAST_STEP

WINDOW = 50
"""The number of earlier steps that define what is usual."""
NEAR_NS = 15 * 10**9
"""The time around a step in which system metrics are read."""
MOST = 10_000
"""Spans, logs and alerts of one step; more are left out."""
NEAR_STEPS, FAR_STEPS = 250, 1_000_000
"""The distances in which the neighbours of a step are searched, one after the other."""
MAX_POINTS = 500_000
"""About the most points of a step and those before it that are in memory at a time."""
Array = npt.NDArray[Any]
Sides = tuple[int | None, int | None]
"""A step before and one after; None where there is none."""
Row = TypeVar("Row", SpanRow, LogRow, RankSpans)
MAX_SIGMAS = 1e6
"""A value that is not finite counts as this far from the usual ones."""
MAX_LEVEL = 4
"""More than the level of any value."""
MIN_BEFORE = 5
"""The least number of earlier values that a z-score needs."""
NOTABLE_SIGMAS, UNUSUAL_SIGMAS, EXTREME_SIGMAS = 3.0, 6.0, 10.0
"""Standard deviations from the mean of earlier steps for the levels 1, 2 and 3."""
ROUNDING = 1e-12
"""A difference of less than this share of the mean is the rounding of the mean."""
STEADY_SHARE = 0.02
"""A value within this share of the mean never reaches level 2: schedules move that much."""


def value_level(value: float, mean: float, delta: float | None, z: float | None) -> int:
    """Return how unusual a value is: 0 normal, 1 notable, 2 unusual, 3 extreme or not finite."""
    if not math.isfinite(value):
        return 3
    if z is None or delta is None or abs(z) < NOTABLE_SIGMAS:
        return 0
    if abs(z) < UNUSUAL_SIGMAS or abs(delta) < STEADY_SHARE * abs(mean):
        return 1
    return 3 if abs(z) >= EXTREME_SIGMAS else 2


class StepValue(Struct, frozen=True):
    """The value of a metric at a step in an attempt, the latest when it was logged more than once."""

    series: SeriesRow
    attempt: int
    time: int
    value: float
    logged: int
    mean: float
    std: float
    before: int
    """The number of earlier finite values in `mean` and `std`."""

    def against(self) -> tuple[float | None, float | None, int]:
        """The difference from the mean of earlier values, its z-score, and how unusual that is.

        The first two are None where there are no earlier values, too few, or only equal ones.
        """
        if not self.before or not math.isfinite(self.value):
            return None, None, value_level(self.value, self.mean, None, None)
        delta = self.value - self.mean
        if abs(delta) <= ROUNDING * abs(self.mean):
            delta = 0.0
        # Below a ten-millionth of the mean a deviation is rounding.
        usable = self.before >= MIN_BEFORE and self.std > abs(self.mean) * 1e-7 and math.isfinite(self.std)
        z = delta / self.std if usable else None
        z = round(z, 3) if z is not None and math.isfinite(z) else None
        return delta, z, value_level(self.value, self.mean, delta, z)


class Reading(Struct, frozen=True):
    """A system metric that has no step of its own, around this one: its latest value and its extremes."""

    series: SeriesRow
    time: int
    value: float
    low: float
    high: float
    points: int


class StepView(Struct, frozen=True):
    """What happened at a step. `begin` and `end` bound its spans and values; both 0 when there are no records.

    A rank's spans are those of one attempt: the time between two attempts does not count. Where an attempt was named,
    everything is of that one; it may be none of `attempts`.
    """

    step: int
    attempt: int
    attempts: list[int]
    """All attempts that reached this step, whichever was asked for."""
    begin: int
    end: int
    duration: int
    """The duration on the slowest rank; clocks of different machines are not compared."""
    values: list[StepValue]
    spans: list[SpanRow]
    outline: list[RankSpans]
    """What the spans of all ranks took, whichever ranks are in `spans`."""
    ranks: int
    """The number of ranks that have a span or a value."""
    last_rank: int | None
    """The rank whose spans ended last."""
    open: list[SpanRow]
    usual: dict[str, float]
    logs: list[LogRow]
    alerts: list[LogRow]
    samples: dict[str, int]
    """How many rows each table of samples has."""
    system: list[Reading]
    previous: int | None
    following: int | None


def read_step(
    engine: Engine, run: int, step: int, *, window: int = WINDOW, attempt: int | None = None,
    page: RankPage | None = None,
) -> StepView:  # fmt: skip
    """Read everything about a step in the attempt named, else in all: values and spans of a rank are of its newest.

    With `page`, what each rank recorded is of the ranks on that page; times, alerts and neighbours are of all.
    """
    catalog = find_series(engine, run)
    values, came, near = _values(engine, run, step, window, catalog, attempt)
    asked = [usual_durations_sql(run, step - window, step - 1), _held_sql(run, step)]
    usual, tables, *outlined = engine.query_many([*asked, *([] if page is None else [outline_sql(run, step)])])
    held = {name: (attempts, sorted(ranks)) for name, attempts, ranks in tables.rows("place", "attempts", "ranks")}
    held = {name: found for name, found in held.items() if found[1]}
    every = RecordQuery(run=run, step=step, order="oldest", limit=MOST)
    alerts = find_alerts(engine, every) if "alerts" in held else []
    begun = find_spans(engine, replace(every, open=True, order="newest")) if "open_spans" in held else []
    odd = _oddness(values, begun)
    if page is None:
        ranks, spans = None, _spans(engine, every)
        outline = outline_of(spans)
    else:
        outline = [RankSpans(*row) for row in outlined[0].rows()]
        attempts, logging = held.get("logs", ([], []))
        came |= set(attempts)
        odd = dict.fromkeys(logging, 0.0) | odd
        ranks = page.choose(_reached(attempt, outline), odd)
        spans = _spans(engine, replace(every, ranks=ranks))
    logs = find_logs(engine, replace(every, ranks=ranks)) if "logs" in held else []
    came |= {row.attempt for row in begun} | {row.attempt for row in outline}
    came |= {row.attempt for row in (*logs, *alerts)}
    spans, outline = _reached(attempt, spans), _reached(attempt, outline)
    begun, logs, alerts = _of(attempt, begun), _of(attempt, logs), _of(attempt, alerts)
    # A reading that only an earlier attempt made at this step is shown, but does not count for the step's duration.
    present = {row.attempt for row in outline} or {max((value.attempt for value in values), default=0)}
    counted = [value for value in values if value.attempt in present]
    times = [row.begin for row in outline] + [value.time for value in counted]
    times = times or [row.record.time for row in (*logs, *alerts)]
    begin, end = min(times, default=0), max([*times, *(row.end for row in outline)], default=0)
    extents = extents_of(outline)
    previous, following = _neighbours(engine, run, step, attempt, near)
    return StepView(
        step=step,
        attempt=attempt or max(came, default=1),
        attempts=sorted(came),
        begin=begin,
        end=end,
        duration=_longest(extents, counted, end - begin),
        values=[value for value in values if ranks is None or value.series.rank in ranks],
        spans=spans,
        outline=outline,
        ranks=len(extents.keys() | odd.keys() | {row.rank for row in logs}),
        last_rank=last_rank(extents),
        open=[row for row in begun if ranks is None or row.rank in ranks],
        samples=_sample_counts(engine, run, step, attempt) if "samples" in held else {},
        usual=dict(usual.rows("name", "median")),
        logs=logs,
        alerts=alerts,
        system=_system(engine, run, begin, end, _of_ranks(catalog, ranks)) if times else [],
        previous=previous,
        following=following,
    )


def _spans(engine: Engine, query: RecordQuery) -> list[SpanRow]:
    spans = find_spans(engine, replace(query, order="newest"))
    return sorted(spans, key=lambda row: (row.rank, row.span.time, row.span.span_id))


def _longest(extents: Mapping[int, tuple[int, int]], values: Iterable[StepValue], whole: int) -> int:
    """The longest time between the first and the last record of a rank; `whole` without any."""
    found = dict(extents)
    for value in values:
        first, last = found.get(value.series.rank, (value.time, value.time))
        found[value.series.rank] = min(first, value.time), max(last, value.time)
    return max((last - first for first, last in found.values()), default=whole)


def _oddness(values: Iterable[StepValue], begun: Iterable[SpanRow]) -> dict[int, float]:
    """How odd each rank is: most with an open span, else by the level of its values and their distance from usual."""
    found: dict[int, float] = {row.rank: MAX_LEVEL * MAX_SIGMAS for row in begun}
    for value in values:
        _, z, level = value.against()
        odd = level * MAX_SIGMAS + min(abs(MAX_SIGMAS if z is None else z), MAX_SIGMAS) if level else 0.0
        found[value.series.rank] = max(found.get(value.series.rank, 0.0), odd)
    return found


def _of_ranks(catalog: dict[int, SeriesRow], ranks: Sequence[int] | None) -> dict[int, SeriesRow]:
    return catalog if ranks is None else {each: info for each, info in catalog.items() if info.rank in ranks}


def _held_sql(run: int, step: int) -> str:
    """The query for the attempts and ranks at a step in each of the tables that most often have no row there."""
    return " UNION ALL ".join(
        f"""SELECT {literal.text(table)} AS place, groupUniqArray(attempt) AS attempts, groupUniqArray(rank) AS ranks
        FROM {table} WHERE run = {run} AND step = {step}"""
        for table in ("logs", "alerts", "open_spans", "samples")
    )


def _reached(attempt: int | None, rows: list[Row]) -> list[Row]:
    """Those of the attempt named, else of the newest of each rank."""
    if attempt is not None:
        return _of(attempt, rows)
    newest: dict[int, int] = {}
    for row in rows:
        newest[row.rank] = max(row.attempt, newest.get(row.rank, 0))
    return [row for row in rows if row.attempt == newest[row.rank]]


def _of(attempt: int | None, rows: list[Row]) -> list[Row]:
    return [row for row in rows if attempt in (None, row.attempt)]


def _values(
    engine: Engine, run: int, step: int, window: int, catalog: dict[int, SeriesRow], attempt: int | None
) -> tuple[list[StepValue], set[int], Sides]:
    """The values at a step, the attempts that logged any, superseded ones too, and the steps beside it with values.

    Steps further away than `window`, or than one step after, are not looked for. The points are read as they are and
    compared here: to sort and group them takes the engine three times as long as to find them.
    """
    rows: list[StepValue] = []
    came: set[int] = set()
    near: Sides = (None, None)
    numbers = sorted(catalog)
    each = max(MAX_POINTS // (window + 2), 1)
    between = f"step BETWEEN {max(step - window, FIRST_STEP)} AND {min(step + 1, LAST_STEP)}"
    for part in (numbers[at : at + each] for at in range(0, len(numbers), each)):
        found = engine.query(
            f"""SELECT series, step, time, attempt, value FROM metrics
            WHERE series BETWEEN {part[0]} AND {part[-1]} AND {between}"""
        )
        points = _Points(*(found.array(name, kind) for name, kind in _POINT.items()))
        came.update(points.attempt[points.step == step].tolist())
        beside = points.step if attempt is None else points.step[points.attempt == attempt]
        before = beside[beside < step]
        sides = int(before.max()) if len(before) else None, step + 1 if (beside > step).any() else None
        near = _nearest(near, sides)
        rows += _against_earlier(points, step, attempt, catalog)
    known = "1" if attempt is None else f"(attempt = {attempt} OR attempt < {attempt} AND step < {step})"
    rows = _exact(engine, f"step = {step} AND {known}", rows)
    return sorted(rows, key=lambda value: (value.series.key, value.series.rank, value.series.scope)), came, near


_POINT = {"series": "u8", "step": "i8", "time": "i8", "attempt": "u2", "value": "f8"}


class _Points(NamedTuple):
    """Points as columns."""

    series: Array
    step: Array
    time: Array
    attempt: Array
    value: Array

    def among(self, chosen: Array) -> "_Points":
        """Those that are chosen, by a mask or by their places."""
        return _Points(*(column[chosen] for column in self))


def _against_earlier(
    points: _Points, step: int, attempt: int | None, catalog: Mapping[int, SeriesRow]
) -> Iterator[StepValue]:
    """The values at a step, with mean and deviation of those before it; a later attempt supersedes a step."""
    points = points.among(points.step <= step)
    if attempt is not None:  # the baseline of an attempt includes earlier attempts up to the step at which it resumed
        points = points.among((points.attempt == attempt) | (points.attempt < attempt) & (points.step < step))
    points = points.among(np.lexsort((points.time, points.attempt, points.step, points.series)))
    newest = np.ones(len(points.series), bool)
    newest[:-1] = (points.series[1:] != points.series[:-1]) | (points.step[1:] != points.step[:-1])
    series, logged = np.unique(points.series[points.step == step], return_counts=True)
    points = points.among(newest)
    here = points.among(points.step == step)
    earlier = points.among((points.step < step) & np.isfinite(points.value) & np.isin(points.series, series))
    place = np.searchsorted(series, earlier.series)
    before = np.bincount(place, minlength=len(series))
    with np.errstate(all="ignore"):
        mean = np.bincount(place, earlier.value, len(series)) / before
        std = np.sqrt(np.bincount(place, (earlier.value - mean[place]) ** 2, len(series)) / before)
    columns = (here.series, here.attempt, here.time, here.value, logged, mean, std, before)
    for number, *rest in zip(*(column.tolist() for column in columns), strict=True):
        if number in catalog:
            yield StepValue(catalog[number], *rest)


def _exact(engine: Engine, where: str, rows: list[StepValue]) -> list[StepValue]:
    """Restore the digits of integers beyond 2**53."""
    large = [row.series.number for row in rows if is_large(row.value)]
    if not large:
        return rows
    found = engine.query(
        f"""SELECT series, argMax(rest, (attempt, time)) AS rest FROM metrics
        WHERE series IN {literal.integers(large)} AND {where} GROUP BY series"""
    )
    remainders = dict(found.rows("series", "rest"))
    return [structs.replace(row, value=exact_number(row.value, remainders.get(row.series.number, 0))) for row in rows]


def _neighbours(engine: Engine, run: int, step: int, attempt: int | None, near: Sides) -> Sides:
    """The nearest steps on either side that have a record of any kind; of the attempt, where one is named.

    `near` has those that have a metric, from close by: most often nothing can be nearer.
    """
    if near == (step - 1, step + 1):
        return near
    mine = "" if attempt is None else f" AND attempt = {attempt}"
    series, of_run = span_of(run) + mine, f"run = {run}{mine}"
    for reach in (NEAR_STEPS, FAR_STEPS, LAST_STEP - FIRST_STEP):
        if None in near:
            low, high = (
                step if side is not None else far for side, far in zip(near, (step - reach, step + reach), strict=True)
            )
            near = _nearest(near, _within(engine, step, {"metrics": series}, low, high))
    rest = {"histograms": series, **dict.fromkeys(("spans", "open_spans", "logs", "samples", "alerts"), of_run)}
    low, high = FIRST_STEP if near[0] is None else near[0], LAST_STEP if near[1] is None else near[1]
    return _nearest(near, _within(engine, step, rest, low, high))


def _within(engine: Engine, step: int, tables: dict[str, str], low: int, high: int) -> Sides:
    """Return the last step before and the first after a step within bounds, over tables with a condition each."""
    between = f"step BETWEEN {max(low, FIRST_STEP)} AND {min(high, LAST_STEP)}"
    parts = [f"SELECT {_sides(step)} FROM {table} WHERE {where} AND {between}" for table, where in tables.items()]
    found: Sides = (None, None)
    for row in engine.query(" UNION ALL ".join(parts)).rows():
        found = _nearest(found, _sides_of(*row))
    return found


def _sides(step: int, of: str = "1") -> str:
    """Return the columns for the neighbouring steps among the rows that match a condition."""
    before, after = f"step < {step} AND {of}", f"step > {step} AND {of}"
    return f"countIf({before}), maxIf(step, {before}), countIf({after}), minIf(step, {after})"


def _sides_of(some_before: int, before: int, some_after: int, after: int) -> Sides:
    return (before if some_before else None), (after if some_after else None)


def _nearest(one: Sides, other: Sides) -> Sides:
    befores, afters = ([each for each in side if each is not None] for side in zip(one, other, strict=True))
    return max(befores, default=None), min(afters, default=None)


def _system(engine: Engine, run: int, begin: int, end: int, catalog: dict[int, SeriesRow]) -> list[Reading]:
    wanted = {series: info for series, info in catalog.items() if info.key.startswith("system/")}
    if not wanted:
        return []
    found = engine.query(
        f"""SELECT series, max(time) AS latest, argMax(value, time) AS last, min(value) AS low, max(value) AS high,
            count() AS points
        FROM metrics WHERE series IN {literal.integers(wanted)} AND step = {NO_STEP}
            AND time BETWEEN {begin - NEAR_NS} AND {end + NEAR_NS} GROUP BY series ORDER BY series"""
    )
    readings = [Reading(wanted[series], *rest) for series, *rest in found.rows()]
    return sorted(readings, key=lambda each: (each.series.key, each.series.rank, each.series.scope))


def _sample_counts(engine: Engine, run: int, step: int, attempt: int | None) -> dict[str, int]:
    """How many rows each table of samples has at a step, in the attempt named, else in all."""
    mine = "" if attempt is None else f" AND attempt = {int(attempt)}"
    found = engine.query(
        f"""SELECT name, count() AS held FROM samples WHERE run = {run} AND step = {int(step)}{mine}
        GROUP BY name ORDER BY name LIMIT {MOST}"""
    )
    return dict(found.rows("name", "held"))


Reason = Literal["alert", "failed span", "not finite", "error log"]
"""The first that applies to a step is reported."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A step, what was wrong there, and in which attempt, the newest where it was so in several."""

    step: int
    reason: Reason
    attempt: int


def nearest_anomalies(engine: Engine, run: int, step: int) -> tuple[Anomaly | None, Anomaly | None]:
    """The last step before one and the first after it at which something was wrong."""
    tables: dict[Reason, str] = {
        "alert": f"alerts WHERE run = {run}",
        "failed span": f"spans WHERE run = {run} AND status = 2",
        "error log": f"logs WHERE run = {run} AND severity >= {SEVERITIES['ERROR']}",
    }
    flagged = _flagged(engine, run)
    if flagged:
        tables["not finite"] = f"metrics WHERE series IN {literal.integers(flagged)} AND NOT isFinite(value)"
    earlier, later = f"step < {int(step)}", f"step > {int(step)}"
    parts = [
        f"""SELECT toUInt8({_REASONS.index(reason)}) AS reason,
            countIf({earlier}) AS some_before, maxIf(step, {earlier}) AS before,
            argMaxIf(attempt, (step, attempt), {earlier}) AS before_in,
            countIf({later}) AS some_after, minIf(step, {later}) AS after,
            argMinIf(attempt, (step, -toInt32(attempt)), {later}) AS after_in
        FROM {where} AND step > {NO_STEP}"""
        for reason, where in tables.items()
    ]
    rows = sorted(engine.query(" UNION ALL ".join(parts)).rows())
    befores = [Anomaly(before, _REASONS[reason], attempt) for reason, some, before, attempt, *_ in rows if some]
    afters = [Anomaly(after, _REASONS[reason], attempt) for reason, *_, some, after, attempt in rows if some]
    # Of several at one step the first is used: they are ordered by reason.
    return max(befores, key=_step, default=None), min(afters, key=_step, default=None)


_REASONS: tuple[Reason, ...] = get_args(Reason)


def _step(anomaly: Anomaly) -> int:
    return anomaly.step


def _flagged(engine: Engine, run: int) -> list[int]:
    """The series of a run with values that are not finite."""
    found = engine.query(
        f"""SELECT series FROM (SELECT series, groupBitOrMerge(flags) AS flagged FROM totals
        WHERE {span_of(run)} GROUP BY series) WHERE flagged > 0 ORDER BY series"""
    )
    return found["series"]
