"""Metric points of every type, walked out of JSON."""

from collections.abc import Callable
from functools import partial
from typing import Any

from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Summary, Value
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.json_values import (
    as_count,
    as_float,
    as_float_or_none,
    as_id,
    as_int,
    as_int64,
    as_list,
    as_object,
    as_text,
    attributes,
    read_each,
)
from stepscope.wire.otlp.decode.raw import NO_ID, RawMetric, RawPoint
from stepscope.wire.otlp.refusals import Rejections


def read_metric(metric: Any, refused: Rejections) -> RawMetric:
    """Read a metric; its points are read, and refused one by one, when they are asked for."""
    name = as_text(metric.get("name"))
    unit, description = as_text(metric.get("unit")), as_text(metric.get("description"))
    for field, (kind, value) in _DATA.items():
        if data := metric.get(field):
            temporality = as_int(data.get("aggregationTemporality"))
            monotonic = data.get("isMonotonic") is True
            points = read_each(data.get("dataPoints"), partial(_point, value), refused, name)
            return name, kind, unit, description, temporality, monotonic, points
    return name, "gauge", unit, description, 0, False, ()


def _point(value: Callable[[Any], Value | None], point: Any) -> RawPoint:
    get = point.get
    attrs = attributes(get("attributes"))
    if exemplars := get("exemplars"):
        attrs[names.ATTR_EXEMPLARS] = [_exemplar(exemplar) for exemplar in as_list(exemplars)]
    times = as_int(get("timeUnixNano")), as_int(get("startTimeUnixNano"))
    return *times, value(point), attrs, as_int(get("flags"))


def _exemplar(exemplar: Any) -> Attrs:
    return {
        "value": _number(exemplar),
        "time": as_count(exemplar.get("timeUnixNano")),
        "trace_id": _hex(exemplar.get("traceId")),
        "span_id": _hex(exemplar.get("spanId")),
        "attrs": attributes(exemplar.get("filteredAttributes")),
    }


def _hex(value: Any) -> str:
    found = as_id(value)
    return "" if found == NO_ID else found.hex()


def _number(point: Any) -> int | float | None:
    value = point.get("asDouble")
    if value is not None:
        return as_float(value)
    value = point.get("asInt")
    return None if value is None else as_int64(value)


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(map(as_count, as_list(values)))


def _histogram(point: Any) -> Histogram:
    get = point.get
    return Histogram(
        as_count(get("count")), *_spread(point),
        tuple(map(as_float, as_list(get("explicitBounds")))), _counts(get("bucketCounts")),
    )  # fmt: skip


def _spread(point: Any) -> tuple[float | None, float | None, float | None]:
    get = point.get
    return as_float_or_none(get("sum")), as_float_or_none(get("min")), as_float_or_none(get("max"))


def _exponential(point: Any) -> ExponentialHistogram:
    get = point.get
    positive, negative = as_object(get("positive")), as_object(get("negative"))
    return ExponentialHistogram(
        as_count(get("count")), *_spread(point),
        as_int(get("scale")), as_count(get("zeroCount")), _double(point, "zeroThreshold"),
        as_int(positive.get("offset")), _counts(positive.get("bucketCounts")),
        as_int(negative.get("offset")), _counts(negative.get("bucketCounts")),
    )  # fmt: skip


def _summary(point: Any) -> Summary:
    pairs = as_list(point.get("quantileValues"))
    quantiles = tuple((_double(pair, "quantile"), _double(pair, "value")) for pair in pairs)
    return Summary(as_count(point.get("count")), _double(point, "sum"), quantiles)


def _double(node: Any, field: str) -> float:
    value = node.get(field)
    return 0.0 if value is None else as_float(value)


_DATA: dict[str, tuple[str, Callable[[Any], Value | None]]] = {
    "gauge": ("gauge", _number),
    "sum": ("sum", _number),
    "histogram": ("histogram", _histogram),
    "exponentialHistogram": ("exponential_histogram", _exponential),
    "summary": ("summary", _summary),
}
