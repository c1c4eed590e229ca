"""The exporters of the OpenTelemetry SDK, unmodified, and something for them to export."""

import logging
from typing import Any

import grpc
from opentelemetry import trace as trace
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as grpc_logs
from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_metrics
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_traces
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http import _log_exporter as http_logs
from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_traces
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.hub.conftest import RunningHub

COUNT = 50
Exporters = tuple[Any, Any, Any]


def over_http(hub: RunningHub) -> Exporters:
    """The three exporters over HTTP, with gzip."""
    return (
        http_traces.OTLPSpanExporter(f"{hub.url}/v1/traces", compression=Compression.Gzip),
        http_metrics.OTLPMetricExporter(f"{hub.url}/v1/metrics", compression=Compression.Gzip),
        http_logs.OTLPLogExporter(f"{hub.url}/v1/logs", compression=Compression.Gzip),
    )


def over_grpc(hub: RunningHub) -> Exporters:
    """The three exporters over gRPC, with gzip."""
    options: dict[str, Any] = {
        "endpoint": f"127.0.0.1:{hub.grpc_port}",
        "insecure": True,
        "compression": grpc.Compression.Gzip,
    }
    return (
        grpc_traces.OTLPSpanExporter(**options),
        grpc_metrics.OTLPMetricExporter(**options),
        grpc_logs.OTLPLogExporter(**options),
    )


def emit(exporters: Exporters, run: str) -> None:
    """Make spans, a counter and log lines with the SDK."""
    resource = Resource({"service.name": "sdk", "train.run.id": run, "dl.rank": 1, "dl.world_size": 2})
    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(exporters[0]))
    for step in range(COUNT):
        with traces.get_tracer("t").start_as_current_span("work") as span:
            span.set_attribute("train.step", step)
            span.set_attribute("api_key", "hunter2")
    meters = MeterProvider([PeriodicExportingMetricReader(exporters[1])], resource=resource)
    meters.get_meter("m").create_counter("done").add(COUNT)
    lines = LoggerProvider(resource=resource)
    lines.add_log_record_processor(SimpleLogRecordProcessor(exporters[2]))
    logger = logging.Logger(run)
    logger.addHandler(LoggingHandler(logger_provider=lines))
    for index in range(5):
        logger.warning("line %d", index)
    for provider in (traces, meters, lines):
        provider.force_flush()
        provider.shutdown()
