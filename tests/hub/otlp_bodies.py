"""OTLP requests made by hand for the tests, in protobuf."""

import os
import time

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


def attribute(key: str, value: str | int) -> KeyValue:
    """One attribute."""
    wrapped = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=key, value=wrapped)


def spans(count: int, *, run: str = "r", name: str = "work", first: int = 0, **attrs: str | int) -> bytes:
    """A request of spans; `index` is on each."""
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    part.resource.attributes.extend([attribute("service.name", "tests"), attribute("train.run.id", run)])
    scope = part.scope_spans.add()
    now = time.time_ns()
    trace = os.urandom(16)
    for index in range(first, first + count):
        span = scope.spans.add(trace_id=trace, span_id=os.urandom(8), name=name)
        span.start_time_unix_nano, span.end_time_unix_nano = now - 1000, now
        span.attributes.append(attribute("index", index))
        span.attributes.extend(attribute(key, value) for key, value in attrs.items())
    return request.SerializeToString()


def points(count: int, *, run: str = "r", key: str = "loss", first: int = 0) -> bytes:
    """A request of gauge points, one for each step."""
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    part.resource.attributes.extend([attribute("service.name", "tests"), attribute("train.run.id", run)])
    metric = part.scope_metrics.add().metrics.add(name=key)
    now = time.time_ns()
    for step in range(first, first + count):
        point = metric.gauge.data_points.add(time_unix_nano=now, as_double=float(step))
        point.attributes.append(attribute("train.step", step))
    return request.SerializeToString()


def logs(count: int, *, run: str = "r", first: int = 0, text: str = "line") -> bytes:
    """A request of log records."""
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add()
    part.resource.attributes.extend([attribute("service.name", "tests"), attribute("train.run.id", run)])
    scope = part.scope_logs.add()
    for index in range(first, first + count):
        record = scope.log_records.add(time_unix_nano=time.time_ns(), severity_number=9)
        record.body.string_value = f"{text} {index}"
    return request.SerializeToString()


def child_span(trace: bytes, parent: bytes, *, run: str) -> bytes:
    """A request of one span of a server that continues a trace."""
    request = ExportTraceServiceRequest.FromString(spans(1, run=run, name="server work"))
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.trace_id, span.parent_span_id = trace, parent
    return request.SerializeToString()
