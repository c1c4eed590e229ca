"""Metric records to MLflow's points: a key, a number, milliseconds, a step."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stepscope.model.records import Histogram, Metric, Summary, Value
from stepscope.model.writer import Writer
from stepscope.wire.mlflow.names import legal_key
from stepscope.wire.plain import word

Point = dict[str, str | int | float]


def points(writer: Writer, record: Metric) -> Iterator[Point]:
    """Yield the points of a record.

    MLflow has no dimensions: what parts two series of ours is appended to the key, the attributes as `/name:value`,
    and any rank but the first as `/rank_N`. A distribution becomes its count, sum, extremes and quantiles.
    """
    ending = _ending(writer, record.attrs)
    time, step = max(record.time // 1_000_000, 0), record.step or 0
    for key, value in record.points():
        if isinstance(value, (bool, int, float)):
            yield {"key": legal_key(key + ending), "value": number(value), "timestamp": time, "step": step}
            continue
        for name, part in _parts(value):
            yield {"key": legal_key(f"{key}/{name}{ending}"), "value": number(part), "timestamp": time, "step": step}


def number(value: bool | int | float) -> float | str:
    """Spell a number for MLflow: what is not finite is a word, what is beyond a double is infinite."""
    try:
        return word(float(value))
    except OverflowError:
        return word(math.inf if value > 0 else -math.inf)


def _parts(value: Value) -> Iterator[tuple[str, float]]:
    if isinstance(value, (bool, int, float)):
        return
    yield "count", value.count
    if value.total is not None:
        yield "sum", value.total
    if isinstance(value, Summary):
        for quantile, found in value.quantiles:
            yield f"p{quantile * 100:g}", found
        return
    low, high = value.low, value.high
    if low is not None:
        yield "min", low
    if high is not None:
        yield "max", high
    if isinstance(value, Histogram) and value.count and value.total is not None:
        yield "mean", value.total / value.count


def _ending(writer: Writer, attrs: Mapping[str, Any]) -> str:
    told = "".join(
        f"/{name}:{attrs[name]}"
        for name in sorted(attrs)
        if isinstance(attrs[name], (str, int, float)) and not name.startswith("otel.")
    )
    return f"{told}/rank_{writer.rank}" if writer.rank else told
