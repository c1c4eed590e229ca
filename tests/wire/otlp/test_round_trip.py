"""Records survive OTLP in both encodings, to the bit."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepscope.model.ports import Writer
from stepscope.model.records import Log, Metric, Record, Span
from stepscope.wire.otlp.decode.decode_request import Decoded, decode
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.encode.to_json import to_json
from tests.wire.otlp import strategies

WRITER = Writer(
    id="w", run="R", project="P", name="baseline", attempt=2, rank=3, world_size=8, local_rank=3, host="h", pid=7
)
_pack = msgspec.msgpack.Encoder(order="sorted").encode
relaxed = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def packed(records: list[Record]) -> list[bytes]:
    """Records to the bit, in any order."""
    return sorted(map(_pack, records))


def there(records: list[Record]) -> list[Decoded]:
    """Encode records, and decode the requests in both encodings."""
    encoded = encode([(WRITER, records)])
    assert not encoded.skipped
    return [
        decode(
            request.signal, encoding, request.body if encoding == "protobuf" else to_json(request.signal, request.body)
        )
        for request in encoded.requests
        for encoding in ("protobuf", "json")
    ]


@relaxed
@given(records=st.lists(strategies.metrics(), max_size=5) | st.lists(strategies.spans(), max_size=5))
def test_metrics_and_spans_come_back(records: list[Record]) -> None:
    """Every metric type and every part of a span survives protobuf and JSON."""
    for found in there(records):
        assert packed([record for group in found.groups for record in group.records]) == packed(records)
        assert not found.rejections.reasons


@relaxed
@given(records=st.lists(strategies.logs(), min_size=1, max_size=5))
def test_logs_events_and_alerts_come_back(records: list[Record]) -> None:
    """Logs, events and alerts keep their kind."""
    for found in there(records):
        assert packed(found.groups[0].records) == packed(records)


@pytest.mark.parametrize("index", [0, 1])
def test_the_writer_comes_back_as_origin(index: int) -> None:
    """Run, project, rank and the rest of a writer's identity are recognised again."""
    found = there([Metric(5, 1, None, None, {"loss": 0.5})])[index]
    origin = found.groups[0].origin
    writer = origin.writer()
    assert (writer.run, writer.project, writer.name, writer.attempt) == ("R", "P", "baseline", 2)
    assert (writer.rank, writer.world_size, writer.local_rank) == (3, 8, 3)
    assert (writer.host, writer.pid) == ("h", 7)
    assert origin.resource["service.instance.id"] == "R-r3"


def test_trace_state_and_foreign_severities_return_to_their_fields() -> None:
    """Trace state and severity text, attributes in a record, return to their OTLP fields."""
    span = Span(5, 1, None, None, bytes(range(16)), bytes(range(8)), None, "s", attrs={"w3c.tracestate": "a=b"})
    log = Log(5, None, None, None, None, 10, "x", {"otel.severity_text": "NOTICE"})
    traces, logs = encode([(WRITER, [span, log])]).requests
    (sent,) = ExportTraceServiceRequest.FromString(traces.body).resource_spans[0].scope_spans[0].spans
    assert (sent.trace_state, list(sent.attributes)) == ("a=b", [])
    (line,) = ExportLogsServiceRequest.FromString(logs.body).resource_logs[0].scope_logs[0].log_records
    assert (line.severity_text, list(line.attributes)) == ("NOTICE", [])
    assert [found.groups[0].records for found in there([span, log])] == [[span], [span], [log], [log]]


def test_a_record_of_many_values_becomes_points_with_their_category() -> None:
    """One log call is one point for each of its keys, all at the same step and time."""
    record = Metric(5, 7, "timesteps", "trainer", {"loss": 0.5, "n": 3}, {"phase": "a"})
    found = there([record])[0].groups[0].records
    assert found == [
        Metric(5, 7, "timesteps", None, {"trainer/loss": 0.5}, {"phase": "a"}),
        Metric(5, 7, "timesteps", None, {"trainer/n": 3}, {"phase": "a"}),
    ]


def test_points_of_one_key_share_one_metric() -> None:
    """A series is one metric with many points, however many records and batches it came in."""
    records = [Metric(5 + n, n, None, None, {"loss": 0.5, "lr": 0.1}) for n in range(100)]
    (request,) = encode([(WRITER, records[:50]), (WRITER, records[50:])]).requests
    message = ExportMetricsServiceRequest.FromString(request.body)
    (resource,) = message.resource_metrics
    (scope,) = resource.scope_metrics
    assert [(metric.name, len(metric.gauge.data_points)) for metric in scope.metrics] == [("loss", 100), ("lr", 100)]
    assert (request.count, request.where) == (200, list(range(100)))
