"""OTLP's JSON from its protobuf, in the specification's spelling: hex ids, 64-bit numbers as strings."""

import base64
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.model.records import word
from stepscope.wire.otlp.names import Signal

_MESSAGES: dict[Signal, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
_IDS = ("trace_id", "span_id", "parent_span_id")
_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def to_json(signal: Signal, body: bytes) -> bytes:
    """Spell a protobuf request as JSON."""
    return msgspec.json.encode(_message(_MESSAGES[signal].FromString(body)))


def _message(message: Any) -> dict[str, Any]:
    return {field.json_name: _field(field, value) for field, value in message.ListFields()}


def _field(field: Any, value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return str(value) if field.cpp_type in _LONG else value
    if isinstance(value, float):
        return word(value)
    if isinstance(value, bytes):
        return value.hex() if field.name in _IDS else base64.b64encode(value).decode()
    if hasattr(value, "ListFields"):
        return _message(value)
    return [_field(field, inner) for inner in value]
