"""Requests as the unmodified OpenTelemetry SDK makes them, decoded; and ours beside theirs."""

from typing import Any

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from stepscope.model import records as model
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.names import Encoding
from tests.wire.otlp.bodies import ENCODINGS, decoded, records

RESOURCE = Resource.create(
    {"service.name": "tuft", "service.instance.id": "i-1", "rl.run.id": "run-9", "dl.rank": 2, "dl.world_size": 4}
)
pytestmark = pytest.mark.parametrize("encoding", ENCODINGS)


def made_spans() -> Any:
    """Two spans of the SDK: one with everything, inside another."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tuft.training_controller", "2.1", schema_url="https://example.org/1")
    with tracer.start_as_current_span("train.step", attributes={"train.step": 12}) as outer:
        link = Link(outer.get_span_context(), {"why": "test"})
        with tracer.start_as_current_span("forward", kind=SpanKind.CLIENT, links=[link]) as inner:
            inner.set_attributes({"s": "x", "b": True, "i": 5, "f": 0.5, "list": ["a", "b"], "none": [1, 2]})
            inner.add_event("checkpoint", {"at": 3})
            inner.set_status(Status(StatusCode.ERROR, "oom"))
    return encode_spans(exporter.get_finished_spans()), exporter.get_finished_spans()


def test_spans_of_the_sdk(encoding: Encoding) -> None:
    """Every part arrives, under the run that the resource names."""
    message, (sdk_inner, sdk_outer) = made_spans()
    found = decoded("traces", message, encoding)
    (group,) = found.groups
    inner, outer = group.records
    assert isinstance(inner, model.Span)
    assert isinstance(outer, model.Span)
    assert (group.origin.run, group.origin.project, group.origin.rank, group.origin.world_size) == (
        "run-9",
        "tuft",
        2,
        4,
    )
    assert group.origin.resource["telemetry.sdk.language"] == "python"
    assert (outer.name, outer.step, outer.axis, outer.parent_id) == ("train.step", 12, None, None)
    assert outer.trace_id == sdk_outer.context.trace_id.to_bytes(16, "big")
    assert (inner.parent_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert (inner.span_kind, inner.status, inner.message) == (3, 2, "oom")
    assert (inner.time, inner.duration) == (sdk_inner.start_time, sdk_inner.end_time - sdk_inner.start_time)
    assert inner.attrs == {
        "s": "x", "b": True, "i": 5, "f": 0.5, "list": ["a", "b"], "none": [1, 2],
        "otel.scope.version": "2.1", "otel.scope.schema_url": "https://example.org/1",
    }  # fmt: skip
    assert [(event.name, event.attrs) for event in inner.events] == [("checkpoint", {"at": 3})]
    assert inner.links == (model.Link(outer.trace_id, outer.span_id, {"why": "test", "otel.flags": 256}),)
    assert inner.scope == "tuft.training_controller"


def made_metrics(temporality: AggregationTemporality) -> Any:
    """One of each instrument of the SDK, with an exemplar from a sampled span."""
    preferred = {Counter: temporality, Histogram: temporality}
    reader = InMemoryMetricReader(preferred_temporality=preferred)
    view = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    meter = MeterProvider([reader], resource=RESOURCE, views=[view]).get_meter("tuft")
    tracer = TracerProvider(resource=RESOURCE).get_tracer("t")
    with tracer.start_as_current_span("sampled"):
        meter.create_counter("tokens", "{token}", "seen").add(5, {"k": "v"})
        meter.create_histogram("duration", "s").record(0.3)
    meter.create_up_down_counter("active").add(-2)
    meter.create_gauge("loss").set(0.25, {"train.step": 3})
    for value in (1.0, 2.0, 0.0):
        meter.create_histogram("exponential").record(value)
    return encode_metrics(reader.get_metrics_data())


@pytest.mark.parametrize("temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])
def test_metrics_of_the_sdk(encoding: Encoding, temporality: AggregationTemporality) -> None:
    """Counters, histograms of both sorts, gauges, and exemplars."""
    found = decoded("metrics", made_metrics(temporality), encoding)
    assert not found.rejections.reasons
    points = {
        next(iter(record.values)): record for record in found.groups[0].records if isinstance(record, model.Metric)
    }
    assert set(points) == {"tokens", "duration", "active", "loss", "exponential"}
    tokens, cumulative = points["tokens"], temporality is AggregationTemporality.CUMULATIVE
    assert tokens.values == {"tokens": 5}
    assert tokens.instrument is not None
    assert (tokens.instrument.type, tokens.instrument.unit, tokens.instrument.description) == ("sum", "{token}", "seen")
    assert (tokens.instrument.cumulative, tokens.instrument.monotonic) == (cumulative, True)
    assert tokens.instrument.scope == "tuft"
    (exemplar,) = tokens.attrs["otel.exemplars"]
    assert (exemplar["value"], len(exemplar["trace_id"]), len(exemplar["span_id"])) == (5, 32, 16)
    histogram = points["duration"].values["duration"]
    assert isinstance(histogram, model.Histogram)
    assert (histogram.count, histogram.total, histogram.low, histogram.high) == (1, 0.3, 0.3, 0.3)
    exponential = points["exponential"].values["exponential"]
    assert isinstance(exponential, model.ExponentialHistogram)
    assert (exponential.count, exponential.zeros, sum(exponential.positive)) == (3, 1, 2)
    assert (points["loss"].step, points["loss"].attrs) == (3, {})
    assert points["active"].values == {"active": -2}


def test_logs_of_the_sdk(encoding: Encoding) -> None:
    """A line of a logger, and an event."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("root")
    logger.emit(LogRecord(timestamp=5, body="hot", severity_number=SeverityNumber.WARN, severity_text="WARN"))
    logger.emit(
        LogRecord(observed_timestamp=7, event_name="train.preempted", attributes={"step": 4}, body={"a": [1, None]})
    )
    log, event = records(decoded("logs", encode_logs(exporter.get_finished_logs()), encoding))
    seen = exporter.get_finished_logs()[0].log_record.observed_timestamp
    assert log == model.Log(5, None, None, None, None, 13, "hot", {}, "root", seen)
    assert event == model.Event(
        7, 4, None, None, None, 0, "train.preempted", {"otel.scope.name": "root"}, {"a": [1, None]}, 7
    )


def test_what_we_send_is_what_the_sdk_sends(encoding: Encoding) -> None:
    """Decoded and encoded again, spans of the SDK are the same messages."""
    message, _ = made_spans()
    (group,) = decoded("traces", message, encoding).groups
    (request,) = encode([(group.origin.writer(), group.records)]).requests
    again = type(message).FromString(request.body)
    (ours,), (theirs,) = again.resource_spans[0].scope_spans, message.resource_spans[0].scope_spans
    assert (ours.scope, ours.schema_url) == (theirs.scope, theirs.schema_url)
    for sent in (ours, theirs):
        for span in sent.spans:
            span.status.SetInParent()  # the SDK sends an empty one, which says no more than none
            span.attributes.sort(key=lambda pair: pair.key)
    assert sorted(map(str, ours.spans)) == sorted(map(str, theirs.spans))
