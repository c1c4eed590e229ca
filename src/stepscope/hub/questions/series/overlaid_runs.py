"""A metric of many runs, or an expression of metrics, as chart lines, in buckets of one width or over a metric."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from stepscope.hub.dashboards.metric_expression import BadExpression, MetricExpression, parse_expression
from stepscope.hub.questions.series import ANY_VALUES, Axis, along
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Param, Reader, to_int64
from stepscope.hub.refusals import bad_request
from stepscope.hub.store import literal
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import list_runs, step_of
from stepscope.hub.store.schema import LAST, NO_STEP
from stepscope.model import names
from stepscope.model.last_value import MEANING, last_of
from stepscope.model.records import Number, word

MAX_RUNS = 200
_RUN = "toInt64(bitShiftRight(series, 32))"
Columns = dict[str, list[Any]]
"""Buckets, column by column: numbers, and None where there is no finite one."""


class _Total(Struct, frozen=True, gc=False):
    """The totals of a series in one attempt."""

    rank: int
    series: int
    attempt: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    low: float
    high: float
    last: float


@dataclass(frozen=True, slots=True)
class _Metric:
    """A metric of a run, over its ranks and attempts."""

    run: int
    key: str
    unit: str
    totals: Sequence[_Total]

    @property
    def several_attempts(self) -> bool:
        return len({total.attempt for total in self.totals}) > 1


class RunLine(TypedDict):
    """A metric of a run, or an expression of its metrics, over all its ranks."""

    run: str
    key: str
    unit: str
    ranks: int
    total: int
    last: Annotated[Number | None, Meta(description=f"The last value, whatever the range of x: {MEANING}.")]
    last_step: int | None
    min: float | None
    max: float | None
    columns: dict[str, list[Number | None]]


class OverlaidRuns(TypedDict):
    """Lines of many runs."""

    key: str
    x: str
    width: Annotated[float, Meta(description="Of a bucket, in the units of x.")]
    lines: list[RunLine]


@Endpoint(
    "/api/series",
    "readRunsSeries",
    (
        Param("run", "text", "a run", required=True, many=MAX_RUNS),
        Param("key", "text", "a metric, such as trainer/loss, in any spelling of its category"),
        Param(
            "expression",
            "text",
            "instead of a key: metrics (in braces where a name has more than letters and digits), numbers, + - "
            "* / ^, parentheses, log, log2, log10, exp, sqrt and abs, such as `{val/loss} - {train/loss}`",
        ),
        Param("x", "choice", "the x axis", "step", choices=("step", "time", "relative")),
        Param(
            "along",
            "text",
            "a metric that x is: each bucket of steps has the place of its mean there; `from` and `to` bound it",
        ),
        Param("points", "integer", "at most this many buckets", default=300, low=1, high=5000),
        Param("from", "number", "the least x"),
        Param("to", "number", "the greatest x"),
    ),
)
def answer(reader: Reader, given: dict[str, Any]) -> OverlaidRuns:
    """One metric of many runs, a line for each that has it, over all its ranks: buckets of one `width`, which keep
    every finite spike; or an expression of metrics, of the means in each bucket that all of them have.
    """
    x: Axis = given["x"]
    expression = _expression(given)
    along = given["along"]
    wanted = [*([given["key"]] if expression is None else expression.metrics), *([along] if along else [])]
    ids = {row.number: row for row in list_runs(reader.engine, ids=given["run"], project=reader.project)}
    metrics = [_metrics(reader.engine, ids, name) for name in wanted]
    runs = sorted(set.intersection(*map(set, metrics)))
    metrics = [{run: each[run] for run in runs} for each in metrics]
    origins = {run: ids[run].started if x == "relative" else 0 for run in runs}
    scale = 1.0 if x == "step" else 1e9
    low, high = _range((metric for each in metrics for metric in each.values()), x, origins)
    if not along:
        low = max(low, start) if (start := to_int64(given["from"], scale)) is not None else low
        high = min(high, end) if (end := to_int64(given["to"], scale)) is not None else high
    width = 1 if low > high else _width(high - low + 1, given["points"])
    within = (low, high)
    marks = [_marks(reader.engine, each, origins, x, within, width) if runs and low <= high else {} for each in metrics]
    if expression is None:
        lines = [_line_json(ids[run].id, metrics[0][run], marks[0].get(run, _EMPTY)) for run in runs]
    else:
        parts = marks[:-1] if along else marks
        made = {run: _evaluated(expression, [each.get(run, _EMPTY) for each in parts]) for run in runs}
        ranks = {run: max(len({total.rank for total in each[run].totals}) for each in metrics) for run in runs}
        lines = [_expression_json(ids[run].id, given["expression"], ranks[run], made[run], x) for run in runs]
    if along:
        within_x = (-inf if given["from"] is None else given["from"], inf if given["to"] is None else given["to"])
        for run, line in zip(runs, lines, strict=True):
            columns = _over_metric(line["columns"], marks[-1].get(run, _EMPTY), within_x)
            line["columns"], line["total"] = columns, sum(columns["count"])
    for line in lines:
        line["columns"] = {name: values for name, values in line["columns"].items() if name != "bucket"}
    return {
        "key": given["key"] if expression is None else given["expression"],
        "x": "metric" if along else x,
        "width": _share(lines, given["points"]) if along else width if x == "step" else round(width / 1e9, 9),
        "lines": lines,
    }


def _expression(given: dict[str, Any]) -> MetricExpression | None:
    """The expression of a request; None when it names a metric. Refused when it has neither or both."""
    if (given["key"] is None) == (given["expression"] is None):
        raise bad_request("give a key or an expression: key=trainer/loss or expression={val/loss} - {train/loss}")
    if given["key"] is not None:
        return None
    try:
        return parse_expression(given["expression"])
    except BadExpression as error:
        raise bad_request(str(error)) from None


def _evaluated(expression: MetricExpression, columns: Sequence[Columns]) -> Columns:
    """An expression of the means in each bucket that all its metrics have."""
    common = sorted(set.intersection(*(set(each["bucket"]) for each in columns)))
    places = [dict(zip(each["bucket"], range(len(each["bucket"])), strict=True)) for each in columns]

    def taken(name: str) -> list[tuple[Any, ...]]:
        """A column of every metric, bucket by bucket."""
        return [tuple(each[name][place[at]] for each, place in zip(columns, places, strict=True)) for at in common]

    means = np.array(taken("mean"), "f8").reshape(len(common), len(columns))
    values = np.broadcast_to(
        expression.evaluate({name: means[:, at] for at, name in enumerate(expression.metrics)}), len(common)
    )
    flags = np.isnan(values) * 1 + np.isposinf(values) * 2 + np.isneginf(values) * 4
    shown = _finite(values, np.isfinite(values))
    return {
        "bucket": common,
        "x": [min(each) for each in taken("x")],
        "x_last": [max(each) for each in taken("x_last")],
        "min": shown,
        "max": shown,
        "mean": shown,
        "count": [min(each) for each in taken("count")],
        "flags": flags.tolist(),
    }


def _over_metric(columns: Columns, along: Columns, within: tuple[float, float]) -> Columns:
    """The marks at the mean of another metric in their buckets, in its order; `step` and `step_last` are steps."""
    places = dict(zip(along["bucket"], along["mean"], strict=True))
    low, high = within
    found = [(place, at) for at, each in enumerate(columns["bucket"]) if (place := places.get(each)) is not None]
    order = sorted((place, at) for place, at in found if low <= place <= high)
    made = {name: [values[at] for _, at in order] for name, values in columns.items()}
    made["step"], made["step_last"] = made["x"], made["x_last"]
    made["x"] = made["x_last"] = [place for place, _ in order]
    return made


def _share(lines: Iterable[RunLine], points: int) -> float:
    """The part of the extent of x that a mark has where x is a metric."""
    places: list[Any] = [place for line in lines for place in line["columns"]["x"]]
    return (max(places) - min(places)) / points if places and max(places) > min(places) else 1.0


def _expression_json(id: str, text: str, ranks: int, columns: Columns, x: Axis) -> RunLine:
    known = [value for value in columns["mean"] if value is not None]
    last = columns["mean"][-1] if columns["mean"] else None
    return {
        "run": id,
        "key": text,
        "unit": "",
        "ranks": ranks,
        "total": sum(columns["count"]),
        "last": last,
        "last_step": columns["x_last"][-1] if columns["mean"] and x == "step" else None,
        "min": min(known, default=None),
        "max": max(known, default=None),
        "columns": columns,
    }


def _metrics(engine: Engine, runs: Iterable[int], name: str) -> dict[int, _Metric]:
    """The metric of each run that has it, in any spelling of its category."""
    if not (among := list(runs)):
        return {}
    found = engine.query(
        f"""SELECT run, series, key, rank, unit FROM series WHERE run IN {literal.integers(among)}
        AND key IN {literal.texts(names.spellings(name))} ORDER BY series LIMIT 1 BY series"""
    )
    by_run: dict[int, dict[str, list[tuple[int, int, str]]]] = {}
    for run, series, key, rank, unit in found.rows("run", "series", "key", "rank", "unit"):
        by_run.setdefault(run, {}).setdefault(key, []).append((series, rank, unit))
    chosen = {run: key for run, keys in by_run.items() if (key := names.recorded_key(name, keys)) is not None}
    totals = _totals(engine, {series: rank for run, key in chosen.items() for series, rank, _ in by_run[run][key]})
    return {run: _Metric(run, key, by_run[run][key][0][2], totals[run]) for run, key in chosen.items() if run in totals}


def _totals(engine: Engine, ranks: Mapping[int, int]) -> dict[int, list[_Total]]:
    if not ranks:
        return {}
    found = engine.query(
        f"""SELECT series, attempt, minMerge(first_step) AS s0, maxMerge(last_step) AS s1, minMerge(first_time) AS t0,
            maxMerge(last_time) AS t1, minMerge(low) AS v0, maxMerge(high) AS v1, {LAST} AS v
        FROM totals WHERE series IN {literal.integers(ranks)} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    made: dict[int, list[_Total]] = {}
    for series, *rest in found.rows():
        made.setdefault(series >> 32, []).append(_Total(ranks[series], series, *rest))
    return made


def _range(metrics: Iterable[_Metric], x: Axis, origins: Mapping[int, int]) -> tuple[int, int]:
    """The extent of x over all runs; empty, with the low end above the high one, where there are no points."""
    low, high = 2**62, -(2**62)
    for metric in metrics:
        for total in metric.totals:
            if x != "step":
                low = min(low, total.first_time - origins[metric.run])
                high = max(high, total.last_time - origins[metric.run])
            elif total.last_step != NO_STEP:
                low = min(low, 0 if total.first_step == NO_STEP else total.first_step)
                high = max(high, total.last_step)
    return low, high


def _width(extent: int, points: int) -> int:
    """The width of a bucket: a power of two, so that the buckets of two requests lie within each other."""
    return 1 << max(-(-extent // points) - 1, 0).bit_length()


def _marks(
    engine: Engine,
    metrics: Mapping[int, _Metric],
    origins: Mapping[int, int],
    x: Axis,
    within: tuple[int, int],
    width: int,
) -> dict[int, Columns]:
    """The buckets of each run."""
    series = {total.series for metric in metrics.values() for total in metric.totals}
    repeated = {t.series for metric in metrics.values() if metric.several_attempts for t in metric.totals}
    conditions = [f"series IN {literal.integers(series)}"]
    if repeated:  # at a step of a rank the newest attempt counts
        again = f"series IN {literal.integers(repeated)}"
        newest = f"SELECT series, step, max(attempt) FROM metrics WHERE {again} GROUP BY series, step"
        conditions.append(f"(NOT ({again}) OR step = {NO_STEP} OR (series, step, attempt) IN ({newest}))")
    if x == "step":
        conditions.append(f"step > {NO_STEP}")
    chosen = " AND ".join(conditions)
    if x != "step" and len(series) > len(metrics):
        # Ranks log a step at slightly different times: all of them have the place of the first.
        points = f"""SELECT run, first{_minus(origins, "run")} AS x, arrayJoin(held) AS value FROM (
            SELECT {_RUN} AS run, min(time) AS first, groupArray(value) AS held FROM metrics WHERE {chosen}
            GROUP BY run, step, attempt, if(step > {NO_STEP}, toInt64(0), time))"""
    else:
        along = "step" if x == "step" else f"time{_minus(origins, _RUN)}"
        points = f"SELECT {_RUN} AS run, {along} AS x, value FROM metrics WHERE {chosen}"
    low, high = within
    start = low // width * width
    found = engine.query(
        f"""SELECT run, intDiv(x - ({start}), {width}) AS bucket, count() AS count, min(x) AS first_x, max(x) AS last_x,
            {ANY_VALUES}
        FROM ({points}) WHERE x BETWEEN {low} AND {high} GROUP BY run, bucket ORDER BY run, bucket"""
    )
    return _by_run(found, x)


def _minus(origins: Mapping[int, int], run: str) -> str:
    """The SQL that makes a time relative to the start of its run, which an expression names."""
    if not any(origins.values()):
        return ""
    runs, starts = (", ".join(f"toInt64({number})" for number in each) for each in (origins, origins.values()))
    return f" - transform({run}, [{runs}], [{starts}], toInt64(0))"


def _by_run(found: Answer, x: Axis) -> dict[int, Columns]:
    runs, good = found.array("run", "i8"), found.array("good", "i8")
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = found.array("sum") / good
    columns = {
        "bucket": found.array("bucket", "i8").tolist(),
        "x": along(found.array("first_x", "i8"), x),
        "x_last": along(found.array("last_x", "i8"), x),
        "min": _finite(found.array("low"), good),
        "max": _finite(found.array("high"), good),
        "mean": _finite(mean, good),
        "count": found.array("count", "i8").tolist(),
        "flags": found.array("flags", "u1").tolist(),
    }
    numbers, starts = np.unique(runs, return_index=True)
    ends = [*starts.tolist()[1:], len(runs)]
    return {
        int(run): {name: values[start:end] for name, values in columns.items()}
        for run, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True)
    }


def _finite(values: npt.NDArray[Any], good: npt.NDArray[Any]) -> list[Any]:
    """Numbers, None where no value is finite, or their sum is not."""
    plain: list[Any] = values.tolist()
    for at in np.flatnonzero((good == 0) | ~np.isfinite(values)).tolist():
        plain[at] = None
    return plain


_EMPTY: Columns = {name: [] for name in ("bucket", "x", "x_last", "min", "max", "mean", "count", "flags")}


def _line_json(id: str, metric: _Metric, columns: Columns) -> RunLine:
    totals = metric.totals
    last = last_of((t.last, t.rank, t.attempt, step_of(t.last_step), t.last_time) for t in totals)
    low, high = min((t.low for t in totals), default=inf), max((t.high for t in totals), default=-inf)
    return {
        "run": id,
        "key": metric.key,
        "unit": metric.unit,
        "ranks": len({total.rank for total in totals}),
        "total": sum(columns["count"]),
        "last": None if last.value is None else word(last.value),
        "last_step": last.step,
        "min": low if isfinite(low) else None,
        "max": high if isfinite(high) else None,
        "columns": columns,
    }
