"""The OpenTelemetry SDK with null exporters: a batch span processor, and one gauge per metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.subjects import SPAN_ATTRS, SPAN_NAME, Subject


class NullSpans(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Any) -> SpanExportResult:
        """Report success."""
        return SpanExportResult.SUCCESS


class NullMetrics(MetricExporter):
    """Takes metric points and forgets them."""

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Report success."""
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Have nothing to close."""

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Have nothing to flush."""
        return True


def open_sdk(folder: Path) -> Subject:
    """Set up both providers with their defaults."""
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(NullSpans()))
    tracer = tracers.get_tracer("bench")
    meters = MeterProvider([PeriodicExportingMetricReader(NullMetrics())])
    meter = meters.get_meter("bench")
    gauges: dict[str, Any] = {}

    def log(metrics: dict[str, float], step: int) -> None:
        for key, value in metrics.items():
            gauge = gauges.get(key)
            if gauge is None:
                gauge = gauges[key] = meter.create_gauge(key)
            gauge.set(value)

    def span() -> None:
        with tracer.start_as_current_span(SPAN_NAME, attributes=SPAN_ATTRS):
            pass

    return Subject(log=log, span=span, close=tracers.shutdown)
