"""When there is no room: clients are told to come back, and nothing acknowledged is lost."""

import json
import resource

import grpc
import pytest

from stepscope.wire.otlp.replies import read_status
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, RunningHub, StartHub, stored_columns


def _grpc_refusal(hub: RunningHub, body: bytes) -> grpc.RpcError:
    with grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}") as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            call(body, timeout=30)
    return refused.value


def test_full_journal(start_hub: StartHub) -> None:
    """Beyond the journal's bound every receiver says when to come again, in its client's language."""
    hub = start_hub("--journal-bytes", "20kB")
    assert hub.post("/v1/traces", bodies.spans(5)).status == 200
    large = bodies.spans(200, note="x" * 500)
    answer = hub.post("/v1/traces", large)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    status = read_status("protobuf", answer.body)
    assert (status.code, (status.retry_after or 0) > 0) == (14, True)
    record = {"body": {"stringValue": "x" * 30_000}}
    text = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    answer = hub.post("/v1/logs", text.encode(), JSON)
    assert (answer.status, read_status("json", answer.body).retry_after) == (503, 5.0)
    refusal = _grpc_refusal(hub, large)
    assert refusal.code() is grpc.StatusCode.UNAVAILABLE
    details = dict(refusal.trailing_metadata())["grpc-status-details-bin"]
    assert (read_status("protobuf", details).retry_after or 0) > 0
    assert hub.health()["receivers"]["otlp_http"]["retried"] == {"full": 2}


def test_full_disk(start_hub: StartHub) -> None:
    """While the disk takes nothing the answer is 503; afterwards what was acknowledged is stored, once."""
    hub = start_hub()
    assert hub.process is not None
    _, hard = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    acknowledged = 0
    for _ in range(3):
        assert hub.post("/v1/metrics", bodies.points(10, run="disk", first=acknowledged)).status == 200
        acknowledged += 10
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (0, hard))
        answer = hub.post("/v1/metrics", bodies.points(10, run="disk", first=acknowledged))
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    hub.wait_stored("otlp_http", acknowledged, seconds=60)
    assert hub.stop() == 0
    found = stored_columns(hub.home, "SELECT step FROM metrics ORDER BY step")
    assert [int(step) for step in found["step"]] == list(range(acknowledged))
