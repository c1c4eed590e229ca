"""Protobuf requests, read into raw tuples."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.model.records import Attrs, Link, SpanEvent
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.bulk import bound_protobuf
from stepscope.wire.otlp.decode.protobuf_points import read_metrics
from stepscope.wire.otlp.decode.protobuf_values import any_value, attributes
from stepscope.wire.otlp.decode.raw import (
    BAD_LINK,
    LATEST,
    RawLog,
    RawMetric,
    RawResource,
    RawSpan,
    Scope,
    is_id,
    note_dropped,
    scope_of,
)
from stepscope.wire.otlp.refusals import BadRequest, Rejections


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


def _parse(signal: names.Signal, message: Any, data: bytes) -> Any:
    bound_protobuf(signal, data)
    try:
        return message.FromString(data)
    except DecodeError as error:
        raise BadRequest(f"the body is no {message.DESCRIPTOR.name}: {error}") from None


def _resource(part: Any) -> Attrs:
    attrs = attributes(part.resource.attributes)
    if part.schema_url:
        attrs[names.ATTR_RESOURCE_SCHEMA] = part.schema_url
    note_dropped(attrs, (names.ATTR_RESOURCE_DROPPED, part.resource.dropped_attributes_count))
    return attrs


def _scope(part: Any, refused: Rejections) -> Scope:
    scope = part.scope
    attrs, dropped = attributes(scope.attributes), scope.dropped_attributes_count
    return scope_of(scope.name, scope.version, part.schema_url, attrs, dropped, refused)


def _spans(spans: Any, refused: Rejections) -> Iterator[RawSpan]:
    for span in spans:
        attrs = attributes(span.attributes)
        if state := span.trace_state:
            attrs[names.ATTR_TRACE_STATE] = state
        if dropped := span.dropped_attributes_count:
            attrs[names.ATTR_DROPPED] = dropped
        if dropped := span.dropped_events_count:
            attrs[names.ATTR_DROPPED_EVENTS] = dropped
        if dropped := span.dropped_links_count:
            attrs[names.ATTR_DROPPED_LINKS] = dropped
        events, links, status = span.events, span.links, span.status
        yield (
            span.trace_id, span.span_id, span.parent_span_id, span.name, span.kind,
            span.start_time_unix_nano, span.end_time_unix_nano, attrs,
            _events(events) if events else (), _links(links, refused) if links else (),
            status.code, status.message, span.flags,
        )  # fmt: skip


def _events(events: Any) -> tuple[SpanEvent, ...]:
    return tuple(map(_event, events))


def _event(event: Any) -> SpanEvent:
    attrs = attributes(event.attributes)
    note_dropped(attrs, (names.ATTR_DROPPED, event.dropped_attributes_count))
    return SpanEvent(min(event.time_unix_nano, LATEST), event.name, attrs)


def _link(link: Any) -> Link:
    attrs = attributes(link.attributes)
    if link.trace_state:
        attrs[names.ATTR_TRACE_STATE] = link.trace_state
    note_dropped(attrs, (names.ATTR_DROPPED, link.dropped_attributes_count), (names.ATTR_FLAGS, link.flags))
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
            attrs[names.ATTR_DROPPED] = dropped
        yield (
            record.time_unix_nano, record.observed_time_unix_nano,
            record.severity_number, record.severity_text, record.event_name,
            any_value(record.body), attrs, record.trace_id, record.span_id, record.flags,
        )  # fmt: skip
