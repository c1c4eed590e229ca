"""Records to requests: grouping, splitting, what is left out."""

import json
import math
import random
import subprocess
import sys

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.model.ports import Writer
from stepscope.model.records import (
    Alert,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Record,
    Span,
    SpanEvent,
    Summary,
)
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.encode.encode_request import BAD_IDS, LIMIT, OPEN_SPAN, encode
from stepscope.wire.otlp.encode.to_json import to_json
from stepscope.wire.otlp.protobuf_writing import resource_of
from tests.wire.otlp.bodies import SPAN, TIME, TRACE

WRITER = Writer(id="w0", run="R", project="P")
OTHER = Writer(id="w1", run="R", project="P", rank=1)


def span(name: str = "work", duration: int | None = 5, **attrs: object) -> Span:
    """A span."""
    return Span(TIME, duration, 1, None, TRACE, SPAN, None, name, attrs=attrs)


def test_nothing_makes_no_request() -> None:
    """Senders do not create empty envelopes."""
    assert encode([]).requests == []
    assert encode([(WRITER, [])]).requests == []


def test_signals_and_writers_are_sorted() -> None:
    """One request a signal, in it one resource a writer, and indices to tell which records it holds."""
    ours: list[Record] = [
        Metric(TIME, 1, None, "trainer", {"loss": 0.5, "lr": 0.1}),
        span(),
        Log(TIME, 1, None, None, None, 9, "line"),
    ]
    theirs: list[Record] = [Event(TIME, 1, None, None, None, 9, "e"), Metric(TIME, 2, None, None, {"n": 3}), span()]
    traces, metrics, logs = encode([(WRITER, ours), (OTHER, theirs)]).requests
    assert [(request.signal, request.count, request.where) for request in (traces, metrics, logs)] == [
        ("traces", 2, [1, 5]),
        ("metrics", 3, [0, 4]),
        ("logs", 2, [2, 3]),
    ]
    assert len(ExportTraceServiceRequest.FromString(traces.body).resource_spans) == 2
    assert len(ExportMetricsServiceRequest.FromString(metrics.body).resource_metrics) == 2
    assert len(ExportLogsServiceRequest.FromString(logs.body).resource_logs) == 2


def test_open_spans_and_impossible_ids_are_left_out_and_counted() -> None:
    """OTLP has no open spans; a bad id would cost the whole batch at some servers."""
    bad = Span(TIME, 5, None, None, b"short", SPAN, None, "bad")
    encoded = encode([(WRITER, [span(duration=None), span(), bad, span(duration=None)])])
    assert encoded.skipped == {OPEN_SPAN: 2, BAD_IDS: 1}
    assert encoded.requests[0].where == [1]
    assert encode([(WRITER, [span(duration=None)])]).requests == []


def test_scopes_are_grouped() -> None:
    """One scope message a scope, in the order they appear."""
    spans = [Span(TIME, 5, None, None, TRACE, SPAN, None, "s", scope=scope) for scope in ("a", "", "a", "b")]
    (request,) = encode([(WRITER, spans)]).requests
    (resource,) = ExportTraceServiceRequest.FromString(request.body).resource_spans
    assert [(part.scope.name, len(part.spans)) for part in resource.scope_spans] == [("a", 2), ("", 1), ("b", 1)]


def test_the_step_can_be_stripped_from_points_only() -> None:
    """The step can be left out of points, for backends that create a series per attribute value."""
    records: list[Record] = [Metric(TIME, 7, "tokens", None, {"loss": 0.5}, {"a": 1}), span()]
    for steps in (True, False):
        traces, metrics = encode([(WRITER, records)], steps=steps).requests
        (point,) = decode("metrics", "protobuf", metrics.body).groups[0].records
        assert (point.step, point.axis) == ((7, "tokens") if steps else (None, None))
        (kept,) = decode("traces", "protobuf", traces.body).groups[0].records
        assert kept.step == 1


def test_a_gauge_point_has_the_time_of_its_step() -> None:
    """Each point its own, none of them the time of export; and `train.step` as an integer."""
    (request,) = encode([(WRITER, [Metric(TIME + n, n, None, None, {"loss": n / 2}) for n in range(3)])]).requests
    (metric,) = ExportMetricsServiceRequest.FromString(request.body).resource_metrics[0].scope_metrics[0].metrics
    points = metric.gauge.data_points
    assert [(point.time_unix_nano, point.as_double) for point in points] == [(TIME, 0), (TIME + 1, 0.5), (TIME + 2, 1)]
    assert [(pair.key, pair.value.int_value) for point in points for pair in point.attributes] == [
        ("train.step", 0),
        ("train.step", 1),
        ("train.step", 2),
    ]


def test_units_and_temporality_keep_metrics_apart() -> None:
    """Points of one name under different instruments are different metrics."""
    records = [
        Metric(TIME, None, None, None, {"n": value}, {}, instrument)
        for instrument, value in [
            (None, 1),
            (Instrument("gauge", "s"), 1),
            (Instrument("sum", monotonic=True), 1),
            (Instrument("sum", cumulative=False), 1),
            (Instrument("histogram"), Histogram(1, 1.0, None, None, (), ())),
        ]
    ]
    (request,) = encode([(WRITER, records)]).requests
    (scope,) = ExportMetricsServiceRequest.FromString(request.body).resource_metrics[0].scope_metrics
    assert [metric.WhichOneof("data") for metric in scope.metrics] == ["gauge", "gauge", "sum", "sum", "histogram"]
    assert [metric.sum.aggregation_temporality for metric in scope.metrics[2:4]] == [2, 1]


@pytest.mark.parametrize("limit", [2_000, 20_000, LIMIT])
def test_no_request_is_larger_than_the_limit(limit: int) -> None:
    """Each record is in exactly one request, for records of any sizes."""
    chance = random.Random(5)
    records: list[Record] = []
    for n in range(400):
        records += [
            span(f"s{n}", text="x" * chance.choice((0, 10, 900))),
            Metric(TIME + n, n, None, None, {"loss": 0.5}),
        ]
    encoded = encode([(WRITER, records)], limit=limit)
    assert all(len(request.body) <= limit for request in encoded.requests)
    assert sorted(index for request in encoded.requests for index in request.where) == list(range(800))
    found = [
        record
        for request in encoded.requests
        for group in decode(request.signal, "protobuf", request.body).groups
        for record in group.records
    ]
    assert sorted(map(msgspec.msgpack.encode, found)) == sorted(map(msgspec.msgpack.encode, records))


def test_a_record_larger_than_the_limit_goes_alone() -> None:
    """An oversized record is sent alone: it cannot be split."""
    records = [span(), span(text="x" * 5_000), span()]
    sizes = [len(request.body) > 1_000 for request in encode([(WRITER, records)], limit=1_000).requests]
    assert sizes.count(True) == 1


@pytest.mark.parametrize("number", [-1, -(2**63), 2**63, 2**64 - 1])
def test_no_record_that_a_journal_can_hold_raises(number: int) -> None:
    """Numbers out of OTLP's range are bent, for a sink that raises loses a whole batch."""
    many = (number, 5)
    records: list[Record] = [
        Metric(
            number, number, "a", None, {"n": number, "b": True}, {"k": number, "otel.exemplars": [{"value": number}]}
        ),
        Metric(5, 1, None, None, {"h": Histogram(number, 1, None, None, (1,), many)}),
        Metric(
            5, 1, None, None, {"e": ExponentialHistogram(number, None, None, None, number, number, 0, number, many)}
        ),
        Metric(5, 1, None, None, {"s": Summary(number, 1, ((1, 2),))}, {}, Instrument(start=number)),
        Span(number, number, number, "a", TRACE, SPAN, b"odd", "s", number, number),
        Log(number, None, None, b"odd", b"odd", number, None, {"otel.exemplars": 5, "otel.severity_text": 5}),
        Event(number, None, None, None, None, number, "", {"otel.exemplars": [5, {"trace_id": "zz", "attrs": 7}]}),
        Alert(number, None, None, None, None, number, "\ud800"),
    ]
    for request in encode([(WRITER, records)]).requests:
        decode(request.signal, "protobuf", request.body)


def test_a_sender_needs_no_protobuf_library() -> None:
    """Training environments pin protobuf in ways that differ; what sends must not care."""
    code = (
        "import sys; from stepscope.wire.otlp import replies; from stepscope.wire.otlp.encode import encode_request;"
        "sys.exit(any(name.startswith(('google', 'opentelemetry.proto')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_alert_is_the_event_alert_firing() -> None:
    """An alert is an event `alert.firing` with the rule's name as an attribute and the message as body."""
    (request,) = encode(
        [(WRITER, [Alert(TIME, 3, None, None, None, 17, "loss.nan", "NaN!", {"v": math.nan})])]
    ).requests
    (record,) = ExportLogsServiceRequest.FromString(request.body).resource_logs[0].scope_logs[0].log_records
    assert (record.event_name, record.severity_number, record.severity_text) == ("alert.firing", 17, "ERROR")
    assert record.body.string_value == "NaN!"
    assert record.observed_time_unix_nano == record.time_unix_nano == TIME
    assert {pair.key for pair in record.attributes} == {"v", "train.step", "alert.rule.name"}


def test_a_writer_is_described() -> None:
    """A writer is described by OpenTelemetry's and our attribute names."""
    writer = Writer(
        id="w", run="R", project="P", name="base", attempt=2, rank=3, world_size=8, local_rank=1, host="h", pid=9
    )
    assert resource_of(writer) == {
        "service.name": "P",
        "service.instance.id": "R-r3",
        "train.run.id": "R",
        "train.run.name": "base",
        "train.experiment.name": "P",
        "train.job.attempt": 2,
        "dl.rank": 3,
        "dl.world_size": 8,
        "dl.local_rank": 1,
        "host.name": "h",
        "process.pid": 9,
    }


def test_its_own_resource_stands_but_for_its_identity() -> None:
    """The service is the user's to name; run and rank are not."""
    said = {"service.name": "svc", "service.instance.id": "i", "deployment.environment": "prod", "train.run.id": "lie"}
    found = resource_of(Writer(id="w", run="R", project="P", resource=said))
    assert (found["service.name"], found["service.instance.id"]) == ("svc", "i")
    assert (found["deployment.environment"], found["train.run.id"]) == ("prod", "R")
    assert said["train.run.id"] == "lie"


def test_a_forked_process_is_an_instance_of_its_own() -> None:
    """Or the cumulative sums of parent and child would interleave."""
    child = Writer(id="w", run="R", project="P", main=False, pid=9, resource={"service.instance.id": "R-r0"})
    assert resource_of(child)["service.instance.id"] == "R-r0-p9"


def test_what_is_unknown_is_not_said() -> None:
    """No empty host, no pid 0, no run name."""
    assert not {"host.name", "process.pid", "train.run.name"} & set(resource_of(Writer(id="w", run="R", project="P")))


def test_the_host_that_a_person_named() -> None:
    """`resource_attributes: {host.name: ...}` stands above the machine's own name."""
    writer = Writer(id="w", run="r", project="p", host="machine", resource={"host.name": "rack-7"})
    assert resource_of(writer)["host.name"] == "rack-7"
    assert resource_of(Writer(id="w", run="r", project="p", host="machine"))["host.name"] == "machine"


def spelt(*records: Record) -> dict[str, object]:
    """The item of a request that holds these records."""
    (request,) = encode([(Writer(id="w", run="R", project="P"), records)]).requests
    document = json.loads(to_json(request.signal, request.body))
    ((_, resources),) = document.items()
    (scopes,) = [value for key, value in resources[0].items() if key.startswith("scope")]
    (items,) = scopes[0].values()
    return items[0]


def test_a_span() -> None:
    """lowerCamelCase, hex ids, integer enums, 64-bit numbers as strings, bytes in base64."""
    link = Link(TRACE, SPAN, {"a": b"\x00\xff"})
    event = SpanEvent(TIME, "e", {"big": 2**60, "no": None, "f": math.nan})
    found = spelt(Span(TIME, 5, 7, None, TRACE, SPAN, SPAN, "s", 3, 2, "bad", {"k": [True, "x"]}, (event,), (link,)))
    assert found == {
        "traceId": TRACE.hex(),
        "spanId": SPAN.hex(),
        "parentSpanId": SPAN.hex(),
        "name": "s",
        "kind": 3,
        "startTimeUnixNano": str(TIME),
        "endTimeUnixNano": str(TIME + 5),
        "attributes": [
            {"key": "train.step", "value": {"intValue": "7"}},
            {"key": "k", "value": {"arrayValue": {"values": [{"boolValue": True}, {"stringValue": "x"}]}}},
        ],
        "events": [
            {
                "timeUnixNano": str(TIME),
                "name": "e",
                "attributes": [
                    {"key": "big", "value": {"intValue": str(2**60)}},
                    {"key": "no", "value": {}},
                    {"key": "f", "value": {"doubleValue": "NaN"}},
                ],
            }
        ],
        "links": [
            {
                "traceId": TRACE.hex(),
                "spanId": SPAN.hex(),
                "attributes": [{"key": "a", "value": {"bytesValue": "AP8="}}],
            }
        ],
        "status": {"message": "bad", "code": 2},
    }


def test_a_histogram() -> None:
    """Counts are strings, bounds are numbers."""
    value = Histogram(3, math.inf, None, None, (1.5,), (1, 2))
    found = spelt(Metric(TIME, None, None, None, {"h": value}, {}, Instrument("histogram", cumulative=True, start=5)))
    assert found == {
        "name": "h",
        "histogram": {
            "dataPoints": [
                {
                    "startTimeUnixNano": "5",
                    "timeUnixNano": str(TIME),
                    "count": "3",
                    "sum": "Infinity",
                    "bucketCounts": ["1", "2"],
                    "explicitBounds": [1.5],
                }
            ],
            "aggregationTemporality": 2,
        },
    }
