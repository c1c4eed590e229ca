"""Metric points of every type, read out of protobuf messages."""

from collections.abc import Callable, Iterator
from typing import Any

from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Summary
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.protobuf_values import attributes
from stepscope.wire.otlp.decode.raw import RawMetric, RawPoint


def read_metrics(metrics: Any) -> Iterator[RawMetric]:
    """Read metrics; their points are read when they are asked for."""
    for metric in metrics:
        kind = metric.WhichOneof("data")
        if kind is None:
            continue
        data = getattr(metric, kind)
        temporality = 0 if kind in ("gauge", "summary") else data.aggregation_temporality
        monotonic = kind == "sum" and data.is_monotonic
        points = _POINTS[kind](data.data_points)
        yield metric.name, kind, metric.unit, metric.description, temporality, monotonic, points


def _numbers(points: Any) -> Iterator[RawPoint]:
    for point in points:
        attrs = attributes(point.attributes)
        if exemplars := point.exemplars:
            attrs[names.ATTR_EXEMPLARS] = _exemplars(exemplars)
        value = point.as_double or point.as_int or _number(point)
        yield point.time_unix_nano, point.start_time_unix_nano, value, attrs, point.flags


def _number(point: Any) -> int | float | None:
    kind = point.WhichOneof("value")
    return None if kind is None else getattr(point, kind)


def _exemplars(exemplars: Any) -> list[Attrs]:
    return [
        {
            "value": _number(exemplar),
            "time": exemplar.time_unix_nano,
            "trace_id": exemplar.trace_id.hex(),
            "span_id": exemplar.span_id.hex(),
            "attrs": attributes(exemplar.filtered_attributes),
        }
        for exemplar in exemplars
    ]


def _with_exemplars(point: Any) -> Attrs:
    attrs = attributes(point.attributes)
    if point.exemplars:
        attrs[names.ATTR_EXEMPLARS] = _exemplars(point.exemplars)
    return attrs


def _optional(point: Any, field: str) -> float | None:
    return getattr(point, field) if point.HasField(field) else None


def _histograms(points: Any) -> Iterator[RawPoint]:
    for point in points:
        value = Histogram(
            point.count, _optional(point, "sum"), _optional(point, "min"), _optional(point, "max"),
            tuple(point.explicit_bounds), tuple(point.bucket_counts),
        )  # fmt: skip
        attrs = _with_exemplars(point)
        yield point.time_unix_nano, point.start_time_unix_nano, value, attrs, point.flags


def _exponentials(points: Any) -> Iterator[RawPoint]:
    for point in points:
        positive, negative = point.positive, point.negative
        value = ExponentialHistogram(
            point.count, _optional(point, "sum"), _optional(point, "min"), _optional(point, "max"),
            point.scale, point.zero_count, point.zero_threshold,
            positive.offset, tuple(positive.bucket_counts), negative.offset, tuple(negative.bucket_counts),
        )  # fmt: skip
        attrs = _with_exemplars(point)
        yield point.time_unix_nano, point.start_time_unix_nano, value, attrs, point.flags


def _summaries(points: Any) -> Iterator[RawPoint]:
    for point in points:
        quantiles = tuple((pair.quantile, pair.value) for pair in point.quantile_values)
        value = Summary(point.count, point.sum, quantiles)
        attrs = attributes(point.attributes)
        yield point.time_unix_nano, point.start_time_unix_nano, value, attrs, point.flags


_POINTS: dict[str, Callable[[Any], Iterator[RawPoint]]] = {
    "gauge": _numbers,
    "sum": _numbers,
    "histogram": _histograms,
    "exponential_histogram": _exponentials,
    "summary": _summaries,
}
