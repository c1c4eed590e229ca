"""Distributions as JSON: counts between bounds, whatever the kind of histogram, or quantiles."""

import math
from typing import Any

from stepscope.hub.questions.shapes import seconds
from stepscope.hub.questions.spread_rows import SpreadLine, SpreadRow
from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.wire.plain import plain


def line(found: SpreadLine, x: str) -> dict[str, Any]:
    """One series: of `total` distributions in range `shown` rows are given."""
    series = found.line
    return {
        "rank": series.rank,
        "axis": series.axis,
        "attrs": plain(series.attrs),
        "scope": series.scope,
        "type": series.type,
        "unit": series.unit,
        "cumulative": found.cumulative,
        "total": found.total,
        "shown": len(found.rows),
        "rows": [_row(row, x) for row in found.rows],
    }


def _row(row: SpreadRow, x: str) -> dict[str, Any]:
    value = row.value
    bounds, counts = buckets(value)
    return {
        "x": row.step if x == "step" else seconds(row.time),
        "step": row.step,
        "time": seconds(row.time),
        "attempt": row.attempt,
        "merged": row.merged,
        "count": value.count,
        "sum": plain(value.total),
        "min": None if isinstance(value, Summary) else plain(value.low),
        "max": None if isinstance(value, Summary) else plain(value.high),
        "bounds": plain(bounds),
        "counts": counts,
        "quantiles": plain([list(pair) for pair in value.quantiles]) if isinstance(value, Summary) else [],
    }


def buckets(value: Histogram | ExponentialHistogram | Summary) -> tuple[list[float], list[int]]:
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
