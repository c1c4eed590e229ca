"""JSON requests, walked directly into raw tuples."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stepscope.model.records import Link, SpanEvent
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.bulk import bound_json
from stepscope.wire.otlp.decode.json_document import parse
from stepscope.wire.otlp.decode.json_points import read_metric
from stepscope.wire.otlp.decode.json_values import (
    MALFORMED,
    any_value,
    as_count,
    as_id,
    as_int,
    as_list,
    as_object,
    as_text,
    attributes,
    read_each,
)
from stepscope.wire.otlp.decode.raw import (
    BAD_LINK,
    LATEST,
    Item,
    RawLog,
    RawMetric,
    RawResource,
    RawSpan,
    Scope,
    is_id,
    scope_of,
)
from stepscope.wire.otlp.refusals import BadRequest, Rejections


def traces(data: bytes, refused: Rejections) -> Iterator[RawResource[RawSpan]]:
    """Read an ExportTraceServiceRequest."""

    def read(span: Any) -> RawSpan:
        return _span(span, refused)

    return _resources("traces", data, "Spans", lambda scope: read_each(scope.get("spans"), read, refused))


def metrics(data: bytes, refused: Rejections) -> Iterator[RawResource[RawMetric]]:
    """Read an ExportMetricsServiceRequest."""

    def read(metric: Any) -> RawMetric:
        return read_metric(metric, refused)

    return _resources("metrics", data, "Metrics", lambda scope: read_each(scope.get("metrics"), read, refused))


def logs(data: bytes, refused: Rejections) -> Iterator[RawResource[RawLog]]:
    """Read an ExportLogsServiceRequest."""
    return _resources("logs", data, "Logs", lambda scope: read_each(scope.get("logRecords"), _log, refused))


def _resources(
    signal: names.Signal, data: bytes, noun: str, items: Callable[[Any], Iterable[Item]]
) -> Iterator[RawResource[Item]]:
    """Walk resources and scopes; where these are malformed, so is the whole request."""
    document = parse(data)
    bound_json(signal, document)
    try:
        for part in as_list(as_object(document).get(f"resource{noun}")):
            resource = attributes(as_object(part.get("resource")).get("attributes"))
            if schema_url := as_text(part.get("schemaUrl")):
                resource["otel.resource.schema_url"] = schema_url
            yield resource, [(_scope(scope), items(scope)) for scope in as_list(part.get(f"scope{noun}"))]
    except MALFORMED as error:
        raise BadRequest(f"the body is no export request for {noun.lower()}: {error}") from None


def _scope(part: Any) -> Scope:
    scope = as_object(part.get("scope"))
    name, version = as_text(scope.get("name")), as_text(scope.get("version"))
    return scope_of(name, version, as_text(part.get("schemaUrl")), attributes(scope.get("attributes")))


def _span(span: Any, refused: Rejections) -> RawSpan:
    get = span.get
    attrs = attributes(get("attributes"))
    if state := get("traceState"):
        attrs[names.ATTR_TRACE_STATE] = as_text(state)
    for field, name in _DROPPED:
        if field in span and (dropped := as_count(span[field])):
            attrs[name] = dropped
    status = get("status") or {}
    return (
        as_id(get("traceId")), as_id(get("spanId")), as_id(get("parentSpanId")),
        as_text(get("name")), as_int(get("kind")),
        as_int(get("startTimeUnixNano")), as_int(get("endTimeUnixNano")), attrs,
        tuple(map(_event, as_list(get("events")))), _links(as_list(get("links")), refused),
        as_int(status.get("code")), as_text(status.get("message")),
    )  # fmt: skip


_DROPPED = (
    ("droppedAttributesCount", names.ATTR_DROPPED),
    ("droppedEventsCount", "otel.dropped_events_count"),
    ("droppedLinksCount", "otel.dropped_links_count"),
)


def _event(event: Any) -> SpanEvent:
    time = min(as_count(event.get("timeUnixNano")), LATEST)
    return SpanEvent(time, as_text(event.get("name")), attributes(event.get("attributes")))


def _links(links: list[Any], refused: Rejections) -> tuple[Link, ...]:
    read = (
        Link(as_id(link.get("traceId")), as_id(link.get("spanId")), attributes(link.get("attributes")))
        for link in links
    )
    good = tuple(link for link in read if is_id(link.trace_id, 16) and is_id(link.span_id, 8))
    if len(good) < len(links):
        refused.warn(BAD_LINK, count=len(links) - len(good))
    return good


def _log(record: Any) -> RawLog:
    get = record.get
    attrs = attributes(get("attributes"))
    if dropped := as_count(get("droppedAttributesCount")):
        attrs[names.ATTR_DROPPED] = dropped
    return (
        as_int(get("timeUnixNano")), as_int(get("observedTimeUnixNano")),
        as_int(get("severityNumber")), as_text(get("severityText")), as_text(get("eventName")),
        any_value(get("body")), attrs, as_id(get("traceId")), as_id(get("spanId")),
    )  # fmt: skip
