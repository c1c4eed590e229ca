"""OTLP/protobuf requests: their messages counted before they are parsed, and read into raw tuples."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
from stepscope.wire.otlp.decode import request_limits
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
from stepscope.wire.otlp.decode.request_limits import Counts
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
    _bound(signal, data)
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


_SMALLEST = 2
"""The fewest bytes of a message, so that a small body cannot hold too many."""
_DEEPEST = 100
"""The deepest nesting of messages; protobuf's parser refuses more."""

_LAST_TAG = 32 << 3
"""The highest field number of OTLP; fields beyond are skipped, as many as there may be items."""
_FEW_NUMBERS = 1000
"""Numbers in one message that are not counted: no message of ours has as many, unless bounds are not packed."""
_NUMBER = 11
"""The most bytes of a numeric value."""


class _Shape(NamedTuple):
    """A message: what it counts as, and those of its fields that are messages, by number."""

    kind: str
    fields: "dict[int, _Shape]"


_VALUE = _Shape("", {})
_PAIR = _Shape("attribute", {2: _VALUE})
_VALUE.fields.update({5: _Shape("", {1: _Shape("attribute", _VALUE.fields)}), 6: _Shape("", {1: _PAIR})})
_ITEM = _Shape("item", {})
_EXEMPLAR = _Shape("item", {7: _PAIR})
_METRIC_FIELDS = {
    5: _Shape("", {1: _Shape("item", {7: _PAIR, 5: _EXEMPLAR})}),
    7: _Shape("", {1: _Shape("item", {7: _PAIR, 5: _EXEMPLAR})}),
    9: _Shape("", {1: _Shape("item", {9: _PAIR, 8: _EXEMPLAR})}),
    10: _Shape("", {1: _Shape("item", {1: _PAIR, 11: _EXEMPLAR})}),
    11: _Shape("", {1: _Shape("item", {7: _PAIR, 6: _ITEM})}),
    12: _PAIR,
}
_ITEMS: dict[otlp_names.Signal, _Shape] = {
    "traces": _Shape("item", {9: _PAIR, 11: _Shape("item", {3: _PAIR}), 13: _Shape("item", {4: _PAIR})}),
    "metrics": _Shape("item", _METRIC_FIELDS),
    "logs": _Shape("item", {5: _VALUE, 6: _PAIR}),
}


def _request(item: _Shape | None) -> _Shape:
    """A request of items; without them, of resources and scopes alone."""
    scope: dict[int, _Shape] = {1: _Shape("", {3: _PAIR}), 2: item} if item is not None else {}
    resource = {1: _Shape("", {1: _PAIR, 3: _ITEM})} if item is not None else {}
    return _Shape("", {1: _Shape("group", {**resource, 2: _Shape("group", scope)})})


_GROUPS = _request(None)
_BARE = {
    signal: _request(_Shape("item", {number: _Shape("", {1: _ITEM}) for number in (5, 7, 9, 10, 11)}))
    if signal == "metrics"
    else _request(_ITEM)
    for signal in _ITEMS
}
"""Items without their content, which is faster to scan."""
_ALL = {signal: _request(item) for signal, item in _ITEMS.items()}


def _bound(signal: otlp_names.Signal, data: bytes) -> None:
    """Reject a body with too many messages; the parser reports one that cannot be scanned."""
    if len(data) <= request_limits.MAX_GROUPS * _SMALLEST:
        return
    shape = _GROUPS
    if len(data) > request_limits.MOST * _SMALLEST:
        shape = _ALL[signal] if len(data) > 2 * request_limits.MAX_ATTRIBUTES * _SMALLEST else _BARE[signal]
    try:
        _count(data, 0, len(data), shape.fields, Counts(), _DEEPEST)
    except BadRequest:
        raise
    except (ValueError, IndexError):
        return


def _count(
    data: bytes, at: int, end: int, fields: dict[int, _Shape], counts: request_limits.Counts, depth: int
) -> None:
    """Count the messages between two offsets; ValueError or IndexError for invalid protobuf."""
    if depth == 0:
        return
    numbers = 0
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        wire = tag & 7
        if wire == 2:
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            inner = fields.get(tag >> 3)
            if inner is not None:
                if inner.kind:
                    counts.add(inner.kind)
                if size and inner.fields and not (inner is _PAIR and _is_plain(data, at, at + size)):
                    _count(data, at, min(at + size, end), inner.fields, counts, depth - 1)
            elif tag > _LAST_TAG:
                counts.add("item")
            at += size
        elif wire == 0:
            while data[at] > 127:
                at += 1
            at += 1
            numbers += 1
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            numbers += 1
        else:
            raise ValueError("unknown protobuf wire type")
        if numbers > _FEW_NUMBERS:
            counts.add("item", numbers)
            numbers = 0


def _is_plain(data: bytes, at: int, end: int) -> bool:
    """Return whether a pair is one key with one text or number, as most are; a fast check."""
    value = at + 2 + data[at + 1]
    if data[at] != 0x0A or data[at + 1] > 127 or value + 2 > end or data[value] != 0x12:
        return False
    size = data[value + 1]
    if size > 127 or value + 2 + size != end:
        return False
    return size <= _NUMBER or (data[value + 2] == 0x0A and data[value + 3] + 2 == size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")
    return number, at + 1
