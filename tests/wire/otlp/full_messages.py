"""OTLP requests in which every field is set, made of the real protobuf messages."""

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

START = 1_700_000_000_000_000_000
TRACE, SPAN = bytes(range(16)), bytes(range(8, 16))
EXACT = 2**63 - 1
"""An integer that no double can hold."""


def pairs(**attrs: Any) -> list[KeyValue]:
    """Attributes of strings and integers."""
    return [
        KeyValue(key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value))
        for key, value in attrs.items()
    ]


def resource(service: str) -> Resource:
    """A resource with an attribute of its own."""
    attrs = [
        KeyValue(key="service.name", value=AnyValue(string_value=service)),
        KeyValue(key="service.instance.id", value=AnyValue(string_value=f"{service}-1")),
        KeyValue(key="train.run.id", value=AnyValue(string_value="full")),
        *pairs(zone=f"zone of {service}"),
    ]
    return Resource(attributes=attrs, dropped_attributes_count=3)


def scope(name: str) -> InstrumentationScope:
    """A scope with everything a scope has."""
    return InstrumentationScope(name=name, version="1.2", attributes=pairs(team="a"), dropped_attributes_count=2)


def traces() -> ExportTraceServiceRequest:
    """Two services, each with a span of every field."""
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=resource(service),
                schema_url="https://opentelemetry.io/schemas/1.30.0",
                scope_spans=[ScopeSpans(scope=scope("lib"), schema_url="https://example.org/1", spans=[_span(number)])],
            )
            for number, service in enumerate(("front", "back"))
        ]
    )


def _span(number: int) -> Span:
    return Span(
        trace_id=TRACE,
        span_id=bytes([number + 1]) * 8,
        parent_span_id=SPAN,
        trace_state="vendor=a",
        flags=0x301,
        name=f"call {number}",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=START + number,
        end_time_unix_nano=START + number + 10,
        attributes=pairs(route="/x", size=EXACT),
        dropped_attributes_count=4,
        events=[
            Span.Event(time_unix_nano=START + 2, name="retry", attributes=pairs(n=1), dropped_attributes_count=5),
        ],
        dropped_events_count=6,
        links=[
            Span.Link(
                trace_id=TRACE[::-1],
                span_id=SPAN[::-1],
                trace_state="other=b",
                attributes=pairs(why="cause"),
                dropped_attributes_count=7,
                flags=0x100,
            )
        ],
        dropped_links_count=8,
        status=Status(code=Status.STATUS_CODE_ERROR, message="broken"),
    )


def logs() -> ExportLogsServiceRequest:
    """A log of every field, one that was only observed, and an event."""
    context = {"trace_id": TRACE, "span_id": SPAN, "flags": 1}
    info = {"severity_number": 9, "severity_text": "INFO"}
    records = [
        LogRecord(
            time_unix_nano=START,
            observed_time_unix_nano=START + 99,
            body=AnyValue(string_value="hot"),
            attributes=pairs(n=1),
            dropped_attributes_count=4,
            **info,
            **context,
        ),
        LogRecord(observed_time_unix_nano=START + 5, body=AnyValue(string_value="seen"), **info),
        LogRecord(
            time_unix_nano=START + 7, observed_time_unix_nano=START + 9, event_name="train.preempted", **info, **context
        ),
    ]
    return ExportLogsServiceRequest(
        resource_logs=[
            ResourceLogs(
                resource=resource("front"),
                schema_url="https://opentelemetry.io/schemas/1.30.0",
                scope_logs=[ScopeLogs(scope=scope("lib"), schema_url="https://example.org/1", log_records=records)],
            )
        ]
    )


def metrics() -> ExportMetricsServiceRequest:
    """The same instruments in two scopes: a gauge, a counter beyond 2**53, a histogram without a sum."""
    return ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=resource("front"),
                schema_url="https://opentelemetry.io/schemas/1.30.0",
                scope_metrics=[
                    ScopeMetrics(scope=scope(name), schema_url="https://example.org/1", metrics=_metrics(offset))
                    for offset, name in enumerate(("lib", "other"))
                ],
            )
        ]
    )


def _metrics(offset: int) -> list[Metric]:
    times = {"start_time_unix_nano": START, "time_unix_nano": START + 10**9}
    exemplar = Exemplar(
        time_unix_nano=START + 3,
        as_int=EXACT,
        trace_id=TRACE,
        span_id=SPAN,
        filtered_attributes=pairs(user="u"),
    )
    gauge = NumberDataPoint(time_unix_nano=START + 10**9, as_double=float("nan"), attributes=pairs(k="v"))
    count = NumberDataPoint(**times, as_int=EXACT - offset, attributes=pairs(k="v"), exemplars=[exemplar])
    spread = HistogramDataPoint(
        **times, count=3, bucket_counts=[1, 2], explicit_bounds=[0.5], attributes=pairs(k="v"), min=0.1, max=9.0
    )
    return [
        Metric(name="broken", unit="1", description="NaN only", gauge=Gauge(data_points=[gauge])),
        Metric(
            name="bytes",
            unit="By",
            description="sent",
            sum=Sum(data_points=[count], aggregation_temporality=2, is_monotonic=True),
        ),
        Metric(
            name="latency",
            unit="s",
            description="took",
            histogram=Histogram(data_points=[spread], aggregation_temporality=2),
        ),
    ]


def compare(sent: Any, again: Any) -> None:
    """Check that a request came back field by field; its resources may have attributes more."""
    ((parts, resources),) = sent.ListFields()
    for ours, theirs in zip(getattr(again, parts.name), resources, strict=True):
        known = {pair.key for pair in theirs.resource.attributes}
        kept = [pair for pair in ours.resource.attributes if pair.key in known]
        del ours.resource.attributes[:]
        ours.resource.attributes.extend(kept)
        assert str(_sorted(ours)) == str(_sorted(theirs))


def _sorted(message: Any) -> Any:
    """A message with all lists of attributes in the order of their names, for they are sets."""
    for field, value in message.ListFields():
        if "attributes" in field.name and field.name != "dropped_attributes_count":
            value.sort(key=lambda pair: pair.key)
        elif field.message_type is not None:
            for inner in [value] if hasattr(value, "ListFields") else value:
                _sorted(inner)
    return message
