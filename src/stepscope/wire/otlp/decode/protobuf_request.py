"""OTLP/protobuf requests, read into raw tuples."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.model.names import (
    ATTR_DROPPED,
    ATTR_DROPPED_EVENTS,
    ATTR_DROPPED_LINKS,
    ATTR_EXEMPLARS,
    ATTR_FLAGS,
    ATTR_RESOURCE_DROPPED,
    ATTR_RESOURCE_SCHEMA,
    ATTR_TRACE_STATE,
)
from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Link, SpanEvent, Summary
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.decode.origin import (
    BAD_LINK,
    LATEST,
    MAX_PAIRS,
    RawLog,
    RawMetric,
    RawPoint,
    RawResource,
    RawSpan,
    Scope,
    is_id,
    note_dropped,
    scope_of,
)
from stepscope.wire.otlp.decode.request_limits import bound_protobuf
from stepscope.wire.otlp.replies import BadRequest, Rejections


def attributes(pairs: Any) -> Attrs:
    """Read key-values; one without a key is left out, one without a value is None."""
    attrs = {}
    for pair in pairs[:MAX_PAIRS]:
        value = pair.value
        # Only one of these is ever set, so the first that is true is the value: cheaper than WhichOneof.
        attrs[pair.key] = (
            value.string_value or value.int_value or value.double_value or value.bool_value or any_value(value)
        )
    attrs.pop("", None)
    return attrs


def any_value(value: Any) -> Any:
    """Read an AnyValue of any kind; None when nothing known is set."""
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    if kind == "array_value":
        return [any_value(inner) for inner in value.array_value.values]
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    return getattr(value, kind)


def read_metrics(metrics: Any) -> Iterator[RawMetric]:
    """Read metrics; their points are read lazily."""
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
            attrs[ATTR_EXEMPLARS] = _exemplars(exemplars)
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
        attrs[ATTR_EXEMPLARS] = _exemplars(point.exemplars)
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


def traces(data: bytes, refused: Rejections) -> Iterator[RawResource[RawSpan]]:
    """Read an ExportTraceServiceRequest."""
    for part in _parse("traces", ExportTraceServiceRequest, data).resource_spans:
        yield _resource(part), ((_scope(scope, refused), _spans(scope.spans, refused)) for scope in part.scope_spans)


def metrics(data: bytes, refused: Rejections) -> Iterator[RawResource[RawMetric]]:
    """Read an ExportMetricsServiceRequest."""
    for part in _parse("metrics", ExportMetricsServiceRequest, data).resource_metrics:
        yield _resource(part), ((_scope(scope, refused), read_metrics(scope.metrics)) for scope in part.scope_metrics)


def logs(data: bytes, refused: Rejections) -> Iterator[RawResource[RawLog]]:
    """Read an ExportLogsServiceRequest."""
    for part in _parse("logs", ExportLogsServiceRequest, data).resource_logs:
        yield _resource(part), ((_scope(scope, refused), _logs(scope.log_records)) for scope in part.scope_logs)


def _parse(signal: otlp_names.Signal, message: Any, data: bytes) -> Any:
    bound_protobuf(signal, data)
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the body is not an {message.DESCRIPTOR.name}: {error}") from None


def _resource(part: Any) -> Attrs:
    attrs = attributes(part.resource.attributes)
    if part.schema_url:
        attrs[ATTR_RESOURCE_SCHEMA] = part.schema_url
    note_dropped(attrs, (ATTR_RESOURCE_DROPPED, part.resource.dropped_attributes_count))
    return attrs


def _scope(part: Any, refused: Rejections) -> Scope:
    scope = part.scope
    attrs, dropped = attributes(scope.attributes), scope.dropped_attributes_count
    return scope_of(scope.name, scope.version, part.schema_url, attrs, dropped, refused)


def _spans(spans: Any, refused: Rejections) -> Iterator[RawSpan]:
    for span in spans:
        attrs = attributes(span.attributes)
        if state := span.trace_state:
            attrs[ATTR_TRACE_STATE] = state
        if dropped := span.dropped_attributes_count:
            attrs[ATTR_DROPPED] = dropped
        if dropped := span.dropped_events_count:
            attrs[ATTR_DROPPED_EVENTS] = dropped
        if dropped := span.dropped_links_count:
            attrs[ATTR_DROPPED_LINKS] = dropped
        events, links, status = span.events, span.links, span.status
        yield (
            span.trace_id, span.span_id, span.parent_span_id, span.name, span.kind,
            span.start_time_unix_nano, span.end_time_unix_nano, attrs,
            tuple(map(_event, events)) if events else (), _links(links, refused) if links else (),
            status.code, status.message, span.flags,
        )  # fmt: skip


def _event(event: Any) -> SpanEvent:
    attrs = attributes(event.attributes)
    note_dropped(attrs, (ATTR_DROPPED, event.dropped_attributes_count))
    return SpanEvent(min(event.time_unix_nano, LATEST), event.name, attrs)


def _link(link: Any) -> Link:
    attrs = attributes(link.attributes)
    if link.trace_state:
        attrs[ATTR_TRACE_STATE] = link.trace_state
    note_dropped(attrs, (ATTR_DROPPED, link.dropped_attributes_count), (ATTR_FLAGS, link.flags))
    return Link(link.trace_id, link.span_id, attrs)


def _links(links: Any, refused: Rejections) -> tuple[Link, ...]:
    good = tuple(_link(link) for link in links if is_id(link.trace_id, 16) and is_id(link.span_id, 8))
    if len(good) < len(links):
        refused.warn(BAD_LINK, count=len(links) - len(good))
    return good


def _logs(records: Any) -> Iterator[RawLog]:
    for record in records:
        attrs = attributes(record.attributes)
        if dropped := record.dropped_attributes_count:
            attrs[ATTR_DROPPED] = dropped
        yield (
            record.time_unix_nano, record.observed_time_unix_nano,
            record.severity_number, record.severity_text, record.event_name,
            any_value(record.body), attrs, record.trace_id, record.span_id, record.flags,
        )  # fmt: skip
