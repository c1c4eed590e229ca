"""OTLP over HTTP, by hand: every answer the specification asks for, and none of 500."""

import gzip
import json
import shutil
import subprocess
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from stepscope.dialects.otlp.receiver import NO_RECORDED_VALUE, _encoding_of
from stepscope.wire.otlp.protobuf_writing import delimited
from stepscope.wire.otlp.replies import read_status
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, PROTOBUF, RunningHub
from tests.wire.otlp import full_messages

MEGA = 1024 * 1024


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/metrics", "/v1/logs"])
@pytest.mark.parametrize(("content", "body", "empty"), [(PROTOBUF, b"", b""), (JSON, b"{}", b"{}")])
def test_empty_request(hub: RunningHub, path: str, content: str, body: bytes, empty: bytes) -> None:
    """An empty request is a success, answered in its own encoding."""
    answer = hub.post(path, body, content)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, empty, content)


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate", "raw deflate", "zstd"])
def test_compressions(hub: RunningHub, encoding: str) -> None:
    """Every compression a client may use is understood."""
    before = hub.health()["receivers"].get("otlp_http", {}).get("written", 0)
    data = bodies.spans(10)
    bare = zlib.compressobj(wbits=-15)
    packed = {
        "identity": lambda: data,
        "gzip": lambda: gzip.compress(data),
        "deflate": lambda: zlib.compress(data),
        "raw deflate": lambda: bare.compress(data) + bare.flush(),
        "zstd": lambda: zstandard.compress(data),
    }[encoding]()
    answer = hub.post("/v1/traces", packed, content_encoding=encoding.removeprefix("raw "))
    assert (answer.status, answer.body) == (200, b"")
    assert hub.health()["receivers"]["otlp_http"]["written"] == before + 10


@pytest.mark.parametrize("content", ["", "text/plain", "application/octet-stream", "application/xml"])
def test_wrong_content_type(hub: RunningHub, content: str) -> None:
    """A body of an unknown type is refused with 415."""
    assert hub.post("/v1/traces", b"", content).status == 415


def test_charset(hub: RunningHub) -> None:
    """A Content-Type may carry parameters."""
    assert hub.post("/v1/logs", b"{}", "application/json; charset=utf-8").status == 200


def test_unknown_compression(hub: RunningHub) -> None:
    """An unknown Content-Encoding is refused with 415 and a Status that names the known ones."""
    answer = hub.post("/v1/traces", b"x", content_encoding="br")
    assert answer.status == 415
    assert "zstd" in read_status("protobuf", answer.body).message


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_wrong_method(hub: RunningHub, method: str) -> None:
    """Anything but POST is 405 and says so."""
    answer = hub.request(method, "/v1/metrics")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/v1/profiles", "/v1/nothing", "/v2/traces"])
def test_unknown_path(hub: RunningHub, path: str) -> None:
    """An unknown path is 404."""
    assert hub.post(path, b"").status == 404


@pytest.mark.parametrize(
    ("content", "body", "headers"),
    [
        (PROTOBUF, b"\xff\xff\xff", {}),
        (PROTOBUF, b"not gzip", {"content_encoding": "gzip"}),
        (PROTOBUF, gzip.compress(bodies.spans(5))[:-20], {"content_encoding": "gzip"}),
        (PROTOBUF, zstandard.compress(bodies.spans(50))[:-5], {"content_encoding": "zstd"}),
        (PROTOBUF, b"x", {"content_encoding": "deflate"}),
        (JSON, b"{", {}),
        (JSON, b"[]", {}),
        (JSON, b"null", {}),
        (JSON, b'{"resourceSpans": 7}', {}),
        (JSON, b"\xff\xfe", {}),
    ],
)
def test_bad_bodies(hub: RunningHub, content: str, body: bytes, headers: dict[str, str]) -> None:
    """What cannot be read is 400, with a Status in the request's encoding."""
    answer = hub.post("/v1/traces", body, content, **headers)
    assert answer.status in (200, 400), answer
    if answer.status == 400:
        assert answer.headers["content-type"] == content
        status = read_status("json" if content == JSON else "protobuf", answer.body)
        assert (status.code, bool(status.message)) == (3, True)
    assert body in (b"null", b'{"resourceSpans": 7}') or answer.status == 400


def test_partial_success(hub: RunningHub) -> None:
    """A bad span is refused alone and said so; the others are taken."""
    request = ExportTraceServiceRequest.FromString(bodies.spans(3))
    request.resource_spans[0].scope_spans[0].spans[1].trace_id = b"short"
    answer = hub.post("/v1/traces", request.SerializeToString())
    response = ExportTraceServiceResponse.FromString(answer.body)
    assert answer.status == 200
    assert response.partial_success.rejected_spans == 1
    assert "trace id" in response.partial_success.error_message


def test_points_without_a_recorded_value_are_counted(hub: RunningHub) -> None:
    """Points without a value are neither stored nor refused, and counted in health."""
    request = full_messages.metrics()
    request.resource_metrics[0].scope_metrics[0].metrics[1].sum.data_points[0].flags = 1
    answer = hub.post("/v1/metrics", request.SerializeToString())
    assert (answer.status, answer.body) == (200, b"")
    assert hub.health()["receivers"]["otlp_http"]["dropped"][NO_RECORDED_VALUE] == 1


def test_a_run_id_with_a_line_break_is_refused(hub: RunningHub) -> None:
    """The answer counts the spans and says why."""
    request = full_messages.traces()
    request.resource_spans[0].resource.attributes[2].value.string_value = "two\nlines"
    answer = ExportTraceServiceResponse.FromString(hub.post("/v1/traces", request.SerializeToString()).body)
    assert answer.partial_success.rejected_spans == 1
    assert "the run id has control characters" in answer.partial_success.error_message


@pytest.mark.parametrize("text", ['"\\ud800"', '"' + "x" * 300_000 + '"', "1e999", "NaN", "9" * 40])
def test_strange_json_values(hub: RunningHub, text: str) -> None:
    """No value of an attribute or a body brings the hub down."""
    kind = "stringValue" if text.startswith('"') else "doubleValue"
    record = f'{{"timeUnixNano": "1700000000000000000", "body": {{"{kind}": {text}}}}}'
    body = f'{{"resourceLogs": [{{"scopeLogs": [{{"logRecords": [{record}]}}]}}]}}'
    assert hub.post("/v1/logs", body.encode(), JSON).status in (200, 400)
    assert hub.post("/v1/logs", b"{}", JSON).status == 200


def most_memory(hub: RunningHub) -> int:
    """The most bytes the hub ever had in memory."""
    assert hub.process is not None
    with open(f"/proc/{hub.process.pid}/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def test_too_large(hub: RunningHub) -> None:
    """A body over 20 MiB is 413, whether or not its length was announced."""
    answer = hub.post("/v1/traces", bytes(21 * MEGA))
    assert answer.status == 413
    assert read_status("protobuf", answer.body).code == 8


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_bomb(hub: RunningHub, encoding: str) -> None:
    """Very many zeros in a small body are 413, and the hub lives on with its memory bounded."""
    zeros = bytes(MEGA)
    if encoding == "zstd":
        packer = zstandard.ZstdCompressor(level=3).compressobj()
    else:
        packer = zlib.compressobj(1, wbits=31 if encoding == "gzip" else 15)
    bomb = b"".join([packer.compress(zeros) for _ in range(256)]) + packer.flush()
    with ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(hub.post, "/v1/metrics", bomb, content_encoding=encoding) for _ in range(4)]
        answers = [future.result() for future in sent]
    assert {answer.status for answer in answers} == {413}
    assert most_memory(hub) < 1500 * MEGA


@pytest.mark.parametrize("content", [PROTOBUF, JSON])
def test_empty_attributes(hub: RunningHub, content: str) -> None:
    """A request that is all empty attributes is refused before they are made, with what to do, in bounded memory."""
    room = 20 * MEGA - 100
    if content == JSON:
        many = b",".join([b"{}"] * (room // 3))
        body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[%b]}]}]}]}' % many
    else:
        body = b"\x4a\x00" * (room // 2)
        for tag in (b"\x12", b"\x12", b"\x0a"):
            body = delimited(tag, body)
    answer = hub.post("/v1/traces", body, content)
    assert answer.status == 400
    assert b"send" in answer.body
    assert most_memory(hub) < 1500 * MEGA


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_root(hub: RunningHub, signal: str) -> None:
    """A signal's endpoint without a path posts to /, and is understood."""
    run = f"root-{signal}"
    make = {"traces": bodies.spans, "metrics": bodies.points, "logs": bodies.logs}[signal]
    written = hub.health()["receivers"].get("otlp_http", {}).get("written", 0)
    assert hub.post("/", make(7, run=run)).status == 200
    assert hub.health()["receivers"]["otlp_http"]["written"] == written + 7


def test_many_clients(hub: RunningHub) -> None:
    """200 clients at once are all answered, and share their fsyncs."""
    before = hub.health()
    written = before["receivers"].get("otlp_http", {}).get("written", 0)

    def send(client: int) -> list[int]:
        return [hub.post("/v1/metrics", bodies.points(5, run=f"client-{client}")).status for _ in range(3)]

    with ThreadPoolExecutor(200) as threads:
        answers = [status for statuses in threads.map(send, range(200)) for status in statuses]
    assert answers == [200] * 600
    after = hub.health()
    assert after["receivers"]["otlp_http"]["written"] == written + 3000
    assert after["journal"]["groups"] - before["journal"]["groups"] <= 600


def test_health_counts(hub: RunningHub) -> None:
    """Health says what was rejected and why, for people and for Prometheus."""
    request = ExportTraceServiceRequest.FromString(bodies.spans(1))
    request.resource_spans[0].scope_spans[0].spans[0].span_id = b""
    assert hub.post("/v1/traces", request.SerializeToString()).status == 200
    reasons = hub.health()["receivers"]["otlp_http"]["rejected"]
    assert any("span id" in reason for reason in reasons)
    text = hub.request("GET", "/metrics").body.decode()
    assert 'stepscope_hub_rejected_total{receiver="otlp_http",reason="the span id' in text
    assert "stepscope_hub_lag_seconds" in text
    other = hub.request("GET", "/metrics", None, {"accept": "application/openmetrics-text"})
    assert other.body.endswith(b"# EOF\n")
    assert json.dumps(hub.health())


def test_promtool_finds_nothing_wrong(hub: RunningHub) -> None:
    """Prometheus's own checker has no remark about the hub's own page."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    hub.post("/v1/traces", b"not protobuf", PROTOBUF)
    page = hub.request("GET", "/metrics").body
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_what_an_exporter_says_late_and_at_length(hub: RunningHub, until: Callable[..., None]) -> None:
    """A run starts with its first record, names are cut, malformed ids are named, and all of it is counted."""
    began = 1_700_000_000 * 10**9
    span = {
        "traceId": "11" * 16, "spanId": "22" * 8, "parentSpanId": "zz", "name": "n" * 100_000,
        "startTimeUnixNano": str(began), "endTimeUnixNano": str(began + 5 * 10**9),
        "attributes": [{"key": "k" * 100_000, "value": {"intValue": "1"}}], "status": {"message": "m" * 100_000},
    }  # fmt: skip
    later = {**span, "spanId": "33" * 8, "name": "bad\ud800", "startTimeUnixNano": str(began + 6 * 10**9)}
    later = {key: value for key, value in later.items() if key in ("traceId", "spanId", "name", "startTimeUnixNano")}
    resource = {"attributes": [{"key": "train.run.id", "value": {"stringValue": "late"}}]}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span, later]}]}]}
    answer = hub.post("/v1/traces", json.dumps(document).encode(), JSON)
    said = answer.json()["partialSuccess"]
    assert (answer.status, said["rejectedSpans"], "parent span id" in said["errorMessage"]) == (200, "0", True)
    long_ones = "/api/runs?filter=id%20%3D%20late%20and%20duration%20%3E%205"
    until(lambda: hub.request("GET", long_ones).json()["runs"])
    (row,) = hub.request("GET", long_ones).json()["runs"]
    assert (row["started"], row["duration"]) == (began / 1e9, 6.0)
    kept = {each["span_id"]: each for each in hub.request("GET", "/api/spans?run=late").json()["spans"]}
    first = kept["22" * 8]
    assert {len(first["name"]), len(first["message"]), *map(len, first["attrs"])} == {65_536}
    assert hub.health()["receivers"]["otlp_http"]["dropped"]["name or message cut"] == 3
    assert hub.health()["runs"]


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("application/x-protobuf", "protobuf"),
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        ("Application/JSON;charset=UTF-8", "json"),
        (" application/x-protobuf ;x=y", "protobuf"),
        ("", None),
        ("text/plain", None),
        ("application/jsonl", None),
        ("application/grpc", None),
    ],
)
def test_the_media_type_decides(content_type: str, encoding: str | None) -> None:
    """Parameters and case do not."""
    assert _encoding_of(content_type) == encoding
