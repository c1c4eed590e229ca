"""The same calls given to the OpenTelemetry SDK and to ours come to the same."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepscope.model.names import ATTR_FLAGS, ATTR_TRACE_STATE
from stepscope.model.records import Event, ExponentialHistogram, Histogram, Log, Metric, Span
from stepscope.sdk.otel import meter as meters
from stepscope.testing import recorded

REMOTE = trace.SpanContext(77, 88, True, trace.TraceFlags(1), trace.TraceState([("a", "1")]))
Said = dict[str, Any]


def trace_calls(tracer: trace.Tracer) -> None:
    """A bit of everything a tracer does."""
    remote = trace.set_span_in_context(trace.NonRecordingSpan(REMOTE), Context())
    with tracer.start_as_current_span("root", kind=trace.SpanKind.SERVER, attributes={"a": 1, "b": [1.5]}) as root:
        root.add_event("happened", {"x": "y"}, timestamp=5)
        with tracer.start_as_current_span("child", links=[trace.Link(REMOTE, {"l": True})]) as child:
            child.set_attributes({"c": "d", "a": 2})
            child.set_attribute("a", 3)
            child.update_name("renamed")
            child.set_status(trace.Status(trace.StatusCode.ERROR, "bad"))
            child.set_status(trace.Status(trace.StatusCode.OK))
            child.set_status(trace.Status(trace.StatusCode.ERROR, "worse"))
        for name, error, flags in (
            ("raises", ValueError("no"), {}),
            ("unnoted", ValueError("no"), {"record_exception": False}),
            ("unblamed", ValueError("no"), {"set_status_on_exception": False}),
            ("interrupted", KeyboardInterrupt(), {}),
        ):
            with pytest.raises(type(error)), tracer.start_as_current_span(name, **flags):
                raise error
        with pytest.raises(RuntimeError), tracer.start_span("entered"):
            raise RuntimeError("inside")
    with trace.use_span(tracer.start_span("used", remote, trace.SpanKind.CONSUMER), end_on_exit=True):
        tracer.start_span("below").end()
        tracer.start_span("explicit root", Context()).end()
    tracer.start_span("timed", start_time=10).end(25)
    late = tracer.start_span("late")
    late.end()
    late.set_attribute("too", "late")
    late.add_event("too late")
    late.end()


def test_traces_are_the_same() -> None:
    """Names, parents, kinds, attributes, events, links, states and times of all spans, in order."""
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace_calls(provider.get_tracer("compared"))
    with recorded(otel=True) as recording:
        trace_calls(trace.get_tracer("compared"))
    theirs = memory.get_finished_spans()
    names = {span.context.span_id: span.name for span in theirs}
    expected: list[Said] = [
        {
            "name": span.name,
            "parent": names.get(span.parent.span_id, span.parent.span_id) if span.parent else None,
            "kind": span.kind.value + 1,
            "attrs": {
                key: list(value) if isinstance(value, tuple) else value for key, value in span.attributes.items()
            },
            "events": [(event.name, event.attributes.get("exception.message")) for event in span.events],
            "links": [
                (
                    link.context.trace_id,
                    link.context.span_id,
                    dict(link.attributes),
                    link.context.trace_state.to_header(),
                )
                for link in span.links
            ],
            "status": (span.status.status_code.value, span.status.description or ""),
        }
        for span in theirs
    ]
    ours = [span for span in recording.of(Span) if span.scope == "compared"]
    own = {int.from_bytes(span.span_id, "big"): span.name for span in ours}
    assert [_said(span, own) for span in ours] == expected
    timed = next(span for span in ours if span.name == "timed")
    assert (timed.time, timed.duration) == (10, 15)


def _said(span: Span, names: dict[int, str]) -> Said:
    parent = int.from_bytes(span.parent_id, "big") if span.parent_id else None
    return {
        "name": span.name,
        "parent": None if parent is None else names.get(parent, parent),
        "kind": span.span_kind,
        "attrs": {key: value for key, value in span.attrs.items() if key != ATTR_TRACE_STATE},
        "events": [(event.name, event.attrs.get("exception.message")) for event in span.events],
        "links": [
            (
                int.from_bytes(link.trace_id, "big"),
                int.from_bytes(link.span_id, "big"),
                {key: value for key, value in link.attrs.items() if key not in (ATTR_FLAGS, ATTR_TRACE_STATE)},
                link.attrs.get(ATTR_TRACE_STATE, ""),
            )
            for link in span.links
        ],
        "status": (span.status, span.message),
    }


def measure_calls(meter: metrics.Meter) -> None:
    """A bit of everything a meter does; the values are the same each time."""
    chance = random.Random(7)
    counter, level = meter.create_counter("counter", "1"), meter.create_up_down_counter("level")
    plain, advised = (
        meter.create_histogram("plain"),
        meter.create_histogram("advised", "s", explicit_bucket_boundaries_advisory=[0.1, 1.0, 10.0]),
    )
    meter.create_observable_counter("seen", [lambda options: [metrics.Observation(5, {"a": 1})]])
    meter.create_observable_up_down_counter("depth", [lambda options: [metrics.Observation(-2.5)]])
    meter.create_observable_gauge("heat", [lambda options: [metrics.Observation(40, {"gpu": 0})]])
    gauge = meter.create_gauge("gauge")
    for number in range(2000):
        attributes = {"even": number % 2 == 0, "third": number % 3}
        counter.add(chance.randrange(10), attributes)
        level.add(chance.uniform(-1, 1))
        plain.record(chance.choice([0, 5, 5.0001, chance.expovariate(0.001)]), attributes)
        advised.record(chance.expovariate(1))
        gauge.set(number, attributes)


def their_points(reader: InMemoryMetricReader) -> Iterator[tuple[str, Any]]:
    """What the SDK collected, as (name and attributes, value)."""
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    yield _series_name(metric.name, dict(point.attributes)), _their_value(point)


def _their_value(point: Any) -> Any:
    if hasattr(point, "bucket_counts"):
        return (point.count, point.sum, point.min, point.max, *point.bucket_counts, *point.explicit_bounds)
    if hasattr(point, "positive"):
        whole = (point.count, point.sum, point.min, point.max, point.scale, point.zero_count)
        counts = list(point.positive.bucket_counts)
        while counts and not counts[-1]:  # the SDK always shows 160 buckets
            counts.pop()
        return (*whole, point.positive.offset, *counts)
    return point.value


def _our_value(value: Any) -> Any:
    if isinstance(value, Histogram):
        return (value.count, value.total, value.low, value.high, *value.counts, *value.bounds)
    if isinstance(value, ExponentialHistogram):
        whole = (value.count, value.total, value.low, value.high, value.scale, value.zeros)
        return (*whole, value.positive_offset, *value.positive)
    return value


def _series_name(name: str, attributes: Said) -> str:
    return f"{name} {sorted(attributes.items())}"


def compare(name: str, calls: Callable[[metrics.Meter], None], reader: InMemoryMetricReader, *views: View) -> int:
    """Give the same calls to both and compare every series; returns how many there were."""
    provider = MeterProvider([reader], views=views)
    calls(provider.get_meter(name))
    with recorded(otel=True) as recording:
        calls(metrics.get_meter(name))
    expected = dict(their_points(reader))
    ours = {
        _series_name(key, metric.attrs): _our_value(value)
        for metric in recording.of(Metric)
        if metric.instrument is not None and metric.instrument.scope == name
        for key, value in metric.values.items()
    }
    assert ours.keys() == expected.keys()
    for key, value in expected.items():
        assert ours[key] == pytest.approx(value, rel=1e-9), key
    return len(expected)


def test_metrics_are_the_same() -> None:
    """Sums, histograms with their bounds and buckets, observed values and the last of each gauge."""
    assert compare("compared", measure_calls, InMemoryMetricReader()) == 6 + 1 + 6 + 1 + 3 + 6


def test_exponential_histograms_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale, offset, buckets and zeros, for narrow and wide ranges."""
    monkeypatch.setenv(meters.AGGREGATION, meters.EXPONENTIAL)

    def calls(meter: metrics.Meter) -> None:
        chance = random.Random(3)
        for spread in (0.001, 1.0, 20.0):
            histogram = meter.create_histogram(f"spread{spread}")
            for _ in range(500):
                histogram.record(math.exp(chance.gauss(0, spread)))
            histogram.record(0)

    everything = View(instrument_name="*", aggregation=ExponentialBucketHistogramAggregation())
    assert compare("exponential", calls, InMemoryMetricReader(), everything) == 3


def test_where_ours_keeps_more() -> None:
    """The SDK keeps one value of a gauge and no NaN; we keep every one."""
    reader = InMemoryMetricReader()

    def calls(meter: metrics.Meter) -> None:
        gauge = meter.create_gauge("loss")
        for value in (1.0, 2.0, math.nan):
            gauge.set(value)

    calls(MeterProvider([reader]).get_meter("kept"))
    with recorded(otel=True) as recording:
        calls(metrics.get_meter("kept"))
    assert len(list(their_points(reader))) == 1
    assert str([value for _, value in recording.series("loss")]) == "[1.0, 2.0, nan]"


def log_calls(logger: _logs.Logger) -> None:
    """A bit of everything a logger does."""
    remote = trace.set_span_in_context(trace.NonRecordingSpan(REMOTE), Context())
    logger.emit(_logs.LogRecord(timestamp=5, severity_number=_logs.SeverityNumber.ERROR, body="text"))
    logger.emit(_logs.LogRecord(body={"a": [1, "b"]}, attributes={"c": 1}, context=remote))
    logger.emit(event_name="named", body="event", severity_number=_logs.SeverityNumber.DEBUG3)


def test_logs_are_the_same() -> None:
    """Bodies, severities, attributes, names and ids of all records, in order."""
    memory, provider = InMemoryLogRecordExporter(), LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(memory))
    log_calls(provider.get_logger("compared"))
    with recorded(otel=True) as recording:
        log_calls(_logs.get_logger("compared"))
    theirs = [data.log_record for data in memory.get_finished_logs()]
    expected = [
        (
            record.body,
            record.severity_number.value if record.severity_number else 0,
            dict(record.attributes or {}),
            record.event_name or "",
            record.trace_id,
        )
        for record in theirs
    ]
    kept = [record for record in recording.records if isinstance(record, Log | Event)]
    ours = [
        (
            record.body,
            record.severity,
            {key: value for key, value in record.attrs.items() if not key.startswith("otel.scope.")},
            record.name if isinstance(record, Event) else "",
            int.from_bytes(record.trace_id or b"", "big"),
        )
        for record in kept
        if not (isinstance(record, Event) and record.name.startswith("train.run."))
    ]
    assert ours == expected
