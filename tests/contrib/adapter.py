"""A pytest plugin that gives OpenTelemetry's TestBase our providers; what they record is shown in the SDK's types."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.test.test_base import TestBase

from stepscope.model import records
from stepscope.model.names import ATTR_EXEMPLARS, ATTR_FLAGS, ATTR_TRACE_STATE
from stepscope.sdk import launch, settings
from stepscope.sdk.otel.current_run import SCOPE, CurrentRun
from stepscope.sdk.otel.meter import MeterProvider
from stepscope.sdk.otel.tracer import TracerProvider
from stepscope.sdk.run import Run
from stepscope.sdk.span_fields import IS_REMOTE
from stepscope.wire import frames

_HOME = Path(tempfile.gettempdir()) / "stepscope-contrib-writes-nothing"
_HIDDEN = frozenset({ATTR_EXEMPLARS, ATTR_FLAGS, ATTR_TRACE_STATE})


def new_run() -> Run:
    """A run whose records stay in memory: no flusher takes them."""
    chosen = settings.load({"home": str(_HOME), "disabled": False}, env={}, folder=_HOME)
    run = Run(chosen, launch.detect({}))
    run.recorder.wake = lambda: None
    return run


def taken(run: Run) -> list[records.Record]:
    """Every record so far."""
    return [frames.unpack_record(packed) for packed in run.recorder.buffer]


class Exporter:
    """Stands for the SDK's InMemorySpanExporter."""

    def __init__(self, run: Run, resource: Resource) -> None:
        self._run = run
        self._resource = resource
        self._exported: list[ReadableSpan] = []
        self._contexts: dict[tuple[int, int, bool], trace.SpanContext] = {}

    def get_finished_spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in that order; equal contexts are one object, as in the SDK."""
        ours = (readable(span, self._resource) for span in taken(self._run) if isinstance(span, records.Span))
        found = (*ours, *self._exported)
        for span in found:
            span._context = self._same(span._context)
            span._parent = self._same(span._parent)
        return found

    def _same(self, context: trace.SpanContext | None) -> trace.SpanContext | None:
        if context is None:
            return None
        return self._contexts.setdefault((context.trace_id, context.span_id, context.is_remote), context)

    def clear(self) -> None:
        """Forget them."""
        self._run.recorder.after_fork()
        self._exported.clear()

    def export(self, spans: list[ReadableSpan]) -> SpanExportResult:
        """Take spans of a provider of the SDK that a test makes itself."""
        self._exported += spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Do nothing."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Do nothing."""
        return True


def readable(span: records.Span, resource: Resource) -> ReadableSpan:
    """Show a span record as the SDK shows its spans."""
    scope, attrs = _by_scope(span.scope, span.attrs)
    above, flags = span.parent_id, span.flags
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id, span.attrs, flags),
        parent=None if above is None else _context(span.trace_id, above, span.attrs, flags, True),
        resource=resource,
        attributes=_tuples(attrs),
        events=[Event(event.name, _tuples(event.attrs), event.time) for event in span.events],
        links=[
            trace.Link(
                _context(link.trace_id, link.span_id, link.attrs, link.attrs.get(ATTR_FLAGS, 1), True),
                _tuples(link.attrs),
            )
            for link in span.links
        ],
        kind=trace.SpanKind(span.span_kind - 1),
        status=trace.Status(trace.StatusCode(span.status), span.message or None),
        start_time=span.time,
        end_time=span.time + (span.duration or 0),
        instrumentation_scope=scope,
    )


def _context(
    trace_id: bytes, span_id: bytes, attrs: records.Attrs, flags: int, of_parent: bool = False
) -> trace.SpanContext:
    state = trace.TraceState.from_header([attrs[ATTR_TRACE_STATE]]) if ATTR_TRACE_STATE in attrs else None
    ids = (int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"))
    is_remote = of_parent and bool(flags & IS_REMOTE)
    return trace.SpanContext(
        *ids, is_remote=is_remote, trace_flags=trace.TraceFlags(flags & 0xFF or 1), trace_state=state
    )


def _by_scope(name: str, attrs: records.Attrs) -> tuple[InstrumentationScope, dict[str, Any]]:
    """Part what the scope says of itself from what the record says."""
    said = {key.removeprefix(SCOPE): value for key, value in attrs.items() if key.startswith(SCOPE)}
    version, schema = said.pop("version", None), said.pop("schema_url", None)
    return InstrumentationScope(name, version, schema, said), {
        key: value for key, value in attrs.items() if not key.startswith(SCOPE)
    }


def _tuples(attrs: records.Attrs) -> dict[str, Any]:
    """The SDK keeps sequences as tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items() if key not in _HIDDEN
    }


class Reader:
    """Stands for the SDK's InMemoryMetricReader."""

    def __init__(self, run: Run, meters: MeterProvider, resource: Resource) -> None:
        self._run = run
        self._meters = meters
        self._resource = resource

    def get_metrics_data(self) -> sdk.MetricsData | None:
        """What all instruments come to now; None when nothing was measured."""
        now = time.time_ns()
        for each in (*self._meters.series, *self._meters.sources):
            each.journal(self._run, now)
        latest: dict[tuple[Any, ...], tuple[str, records.Metric, Any]] = {}
        for record in taken(self._run):
            if isinstance(record, records.Metric) and record.instrument is not None:
                for key, value in record.values.items():
                    if not key.endswith(".nonfinite"):
                        latest[(record.instrument, key, repr(sorted(_tuples(record.attrs).items())))] = (
                            key,
                            record,
                            value,
                        )
        return _metrics_data(list(latest.values()), self._resource) if latest else None


def _metrics_data(points: list[tuple[str, records.Metric, Any]], resource: Resource) -> sdk.MetricsData:
    scopes: dict[InstrumentationScope, dict[tuple[str, records.Instrument], list[Any]]] = {}
    for key, record, value in points:
        assert record.instrument is not None
        scope, attrs = _by_scope(record.instrument.scope, record.attrs)
        metrics = scopes.setdefault(scope, {})
        metrics.setdefault((key, record.instrument), []).append(_point(record, value, _tuples(attrs)))
    found = [
        sdk.ScopeMetrics(
            scope,
            [
                sdk.Metric(key, about.description, about.unit, _data(about, held))
                for (key, about), held in metrics.items()
            ],
            scope.schema_url or "",
        )
        for scope, metrics in scopes.items()
    ]
    return sdk.MetricsData([sdk.ResourceMetrics(resource, found, "")])


def _point(record: records.Metric, value: Any, attrs: dict[str, Any]) -> Any:
    assert record.instrument is not None
    if isinstance(value, records.Histogram):
        return sdk.HistogramDataPoint(
            attrs, record.instrument.start, record.time, value.count, value.total, tuple(value.counts),
            tuple(value.bounds), value.low, value.high, exemplars=_exemplars(record),
        )  # fmt: skip
    return sdk.NumberDataPoint(attrs, record.instrument.start, record.time, value, exemplars=_exemplars(record))


def _exemplars(record: records.Metric) -> list[Exemplar]:
    return [
        Exemplar({}, each["value"], each["time"], int(each["span_id"], 16), int(each["trace_id"], 16))
        for each in record.attrs.get(ATTR_EXEMPLARS, ())
    ]


def _data(about: records.Instrument, points: list[Any]) -> Any:
    cumulative = sdk.AggregationTemporality.CUMULATIVE
    if about.type == "histogram":
        return sdk.Histogram(points, cumulative)
    return sdk.Gauge(points) if about.type == "gauge" else sdk.Sum(points, cumulative, about.monotonic)


def create_tracer_provider(resource: Resource | None = None, **given: Any) -> tuple[TracerProvider, Any]:
    """Make one of ours, with a run of its own."""
    current = CurrentRun()
    current.run = run = new_run()
    return TracerProvider(current), Exporter(run, resource or Resource.create())


def create_meter_provider(**given: Any) -> tuple[MeterProvider, Any]:
    """Make one of ours, with a run of its own."""
    current = CurrentRun()
    current.run = run = new_run()
    meters = MeterProvider(current)
    return meters, Reader(run, meters, given.get("resource") or Resource.create())


def pytest_configure() -> None:
    """Have every suite that builds on TestBase use ours."""
    os.environ.pop("STEPSCOPE_DISABLED", None)
    TestBase.create_tracer_provider = staticmethod(create_tracer_provider)
    TestBase.create_meter_provider = staticmethod(create_meter_provider)
