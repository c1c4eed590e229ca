"""OTLP requests for the tests, made with OpenTelemetry's own messages and offered in both encodings."""

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from stepscope.wire.otlp.decode.decode_request import Decoded, decode
from stepscope.wire.otlp.encode.to_json import to_json
from stepscope.wire.otlp.names import Encoding, Signal

TIME = 1_700_000_000_000_000_000
TRACE = bytes(range(1, 17))
SPAN = bytes(range(1, 9))
ENCODINGS: tuple[Encoding, ...] = ("protobuf", "json")


def attributes(attrs: dict[str, Any]) -> list[KeyValue]:
    """Key-values of plain types."""
    fields = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return [
        KeyValue(key=key, value=AnyValue(**{fields[type(value)]: value}) if value is not None else None)
        for key, value in attrs.items()
    ]


def span(**fields: Any) -> Span:
    """A valid span, but for the fields given."""
    attrs = attributes(fields.pop("attrs", {}))
    valid = {
        "trace_id": TRACE, "span_id": SPAN, "name": "work", "start_time_unix_nano": TIME,
        "end_time_unix_nano": TIME + 5,
    }  # fmt: skip
    return Span(**{**valid, **fields}, attributes=attrs)


def gauge(name: str = "loss", attrs: dict[str, Any] | None = None, **fields: Any) -> Metric:
    """A gauge with one valid point, but for the fields given."""
    metric = Metric(name=name)
    valid = {"time_unix_nano": TIME, "as_double": 0.5}
    metric.gauge.data_points.add(**{**valid, **fields}, attributes=attributes(attrs or {}))
    return metric


def log(attrs: dict[str, Any] | None = None, **fields: Any) -> LogRecord:
    """A valid log record, but for the fields given."""
    return LogRecord(**{"time_unix_nano": TIME, **fields}, attributes=attributes(attrs or {}))


def request(signal: Signal, items: list[Any], resource: dict[str, Any] | None = None, scope: Any = None) -> Any:
    """A request with one resource and one scope."""
    if signal == "traces":
        message: Any = ExportTraceServiceRequest()
        part = message.resource_spans.add()
        inner = part.scope_spans.add(scope=scope, spans=items)
    elif signal == "metrics":
        message = ExportMetricsServiceRequest()
        part = message.resource_metrics.add()
        inner = part.scope_metrics.add(scope=scope, metrics=items)
    else:
        message = ExportLogsServiceRequest()
        part = message.resource_logs.add()
        inner = part.scope_logs.add(scope=scope, log_records=items)
    assert inner is not None
    part.resource.attributes.extend(attributes({"service.name": "svc"} if resource is None else resource))
    return message


def decoded(signal: Signal, message: Any, encoding: Encoding, **options: Any) -> Decoded:
    """Decode a message in one of the encodings."""
    body = message.SerializeToString()
    return decode(signal, encoding, body if encoding == "protobuf" else to_json(signal, body), **options)


def records(found: Decoded) -> list[Any]:
    """All records of a request."""
    return [record for group in found.groups for record in group.records]
