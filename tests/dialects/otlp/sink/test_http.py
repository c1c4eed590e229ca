"""OTLP over HTTP against a real server: what arrives, what is tried again, what is refused, and how long it takes."""

import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.dialects.otlp.sink import Otlp, OtlpSink
from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Log, Metric, Record
from stepscope.testing.sinks import WRITERS, SinkContract, example_batches
from tests.sinks.servers import Reply, Server, http_date, running, span_names


class OtlpPeer(Server):
    """The server as the contract speaks to it: a refusal hits the metrics, which come second."""

    def busy(self, seconds: float) -> None:
        """Take the traces, then ask to wait."""
        self.replies += [Reply(), Reply(429, {"Retry-After": str(int(seconds))})]

    def refuse(self) -> None:
        """Refuse the traces."""
        self.replies += [Reply(400, {}, b"\x08\x03\x12\x03bad")]


@pytest.fixture
def peer() -> Iterator[OtlpPeer]:
    """A server."""
    server = OtlpPeer()
    yield server
    server.stop()


def open_sink(server: Server, env: dict[str, str] | None = None, **options: object) -> OtlpSink:
    """The sink of a server."""
    return Otlp.read({"endpoint": server.url, **options}, env or {}).open()


@pytest.fixture
def sink(peer: OtlpPeer) -> Iterator[Sink]:
    """Its sink."""
    made = open_sink(peer)
    yield made
    made.close()


class TestContract(SinkContract):
    """Every sink's contract."""


def test_all_signals_arrive_on_one_connection_each(peer: OtlpPeer, sink: Sink) -> None:
    """Traces, metrics and logs go to their paths; the connections are kept."""
    for seq in range(3):
        sink.write(example_batches(seq=seq))
    assert {got.path for got in peer.received} == {"/v1/traces", "/v1/metrics", "/v1/logs"}
    assert [span_names(message) for message in peer.messages("/v1/traces")] == [["train.step"] * 2] * 3
    assert len(peer.messages("/v1/logs")[0].resource_logs) == 2
    assert peer.connections == 3
    assert "Stepscope" in peer.received[0].headers["user-agent"]


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429, 502, 503, 504, 507, 522, 599])
def test_retryable(peer: OtlpPeer, sink: Sink, status: int) -> None:
    """The statuses of OTLP, those about who we are, and other failures of servers and proxies mean try again."""
    peer.replies = [Reply(status)]
    with pytest.raises(Retry, match=str(status)) as caught:
        sink.write(example_batches())
    assert caught.value.after is None
    assert not sink.write(example_batches())
    assert peer.steps() == list(range(10))


def test_a_server_error_names_its_records(peer: OtlpPeer, sink: Sink) -> None:
    """HTTP 500 means that the records of this one request are offered again; those of the others were taken."""
    peer.decide = lambda got: Reply(500, {"Retry-After": "3"}) if got.path == "/v1/logs" else Reply()
    with pytest.raises(ServerError, match="500") as caught:
        sink.write(example_batches())
    assert (caught.value.where, caught.value.after) == ((5, 12), 3.0)
    assert peer.steps() == list(range(10))


@pytest.mark.parametrize("status", [302, 304, 400, 404, 405, 413, 415, 501, 505])
def test_not_retryable(peer: OtlpPeer, sink: Sink, status: int) -> None:
    """Everything else is a refusal of the request's records; the other requests are delivered."""
    peer.replies = [Reply(status, {"Location": "http://127.0.0.1:1/login"}, b"no")]
    with pytest.raises(Reject, match=str(status)) as caught:
        sink.write(example_batches())
    assert caught.value.where == (6, 13)
    assert caught.value.together == (status in (400, 413))
    assert peer.steps() == list(range(10))
    assert peer.requests == 3


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_2xx_is_success(peer: OtlpPeer, sink: Sink, status: int) -> None:
    """Some servers answer 202 or 204."""
    peer.replies = [Reply(status)]
    assert not sink.write(example_batches())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", b""),
        ("application/json", b"{}"),
        ("application/json; charset=utf-8", b'{"partialSuccess": null, "id": 7}'),
        ("text/plain; charset=utf-8", b"{}\n"),
        ("application/x-protobuf", b"\x0a\x00"),
        ("application/octet-stream", b"\x0a\x00"),
    ],
)
def test_forms_of_full_success(peer: OtlpPeer, sink: Sink, content_type: str, body: bytes) -> None:
    """OTLP's response in either encoding, also when a server declares it as text or sends nothing."""
    peer.replies = [Reply(200, {"Content-Type": content_type}, body)] * 3
    assert not sink.write(example_batches())
    assert peer.requests == 3


def test_retry_after_forms(peer: OtlpPeer, sink: Sink) -> None:
    """Seconds and HTTP dates are both understood; one that asks for nothing leaves it to the pump."""
    for text, wanted in (("120", 120.0), (http_date(90), 90.0), (http_date(-90), None), ("0", None), ("soon", None)):
        peer.replies = [Reply(503, {"Retry-After": text})]
        with pytest.raises(Retry) as caught:
            sink.write(example_batches())
        assert caught.value.after == (None if wanted is None else pytest.approx(wanted, abs=2))


def test_partial_success_is_counted(peer: OtlpPeer, sink: Sink) -> None:
    """What the server refused of an accepted request is counted, and never sent again."""
    peer.replies = [Reply(), Reply(200, {"Content-Type": "application/x-protobuf"}, b"\x0a\x09\x08\x03\x12\x05stale")]
    assert sink.write(example_batches()) == {"stale": 3}
    peer.replies = [Reply(200, {}, b"\x0a\x07\x12\x05hello")]
    assert sink.write(example_batches(seq=1)) == {}
    assert peer.requests == 6


def test_what_was_taken_is_not_sent_again(peer: OtlpPeer, sink: Sink) -> None:
    """After a failure in the middle only the rest is sent."""
    peer.replies = [Reply(), Reply(503), Reply(503)]
    for _ in range(2):
        with pytest.raises(Retry):
            sink.write(example_batches())
    assert not sink.write(example_batches())
    assert sorted(got.path for got in peer.received) == ["/v1/logs", "/v1/metrics", "/v1/traces"]


@pytest.mark.parametrize("reply", [Reply(hang=True), Reply(drip=True)], ids=["hangs", "drips"])
def test_bounded_by_the_timeout(peer: OtlpPeer, reply: Reply) -> None:
    """A server that never answers, or never finishes its answer, takes no longer than the timeout."""
    peer.always = reply
    began = time.monotonic()
    with pytest.raises(Retry):
        open_sink(peer, timeout=0.3).write(example_batches())
    assert 0.2 < time.monotonic() - began < 5


def test_cut_off_answers_are_tried_again(peer: OtlpPeer, sink: Sink) -> None:
    """A request with an unknown outcome is sent again."""
    peer.replies = [Reply(cut=True)]
    with pytest.raises(Retry, match="cut off"):
        sink.write(example_batches())
    assert not sink.write(example_batches())
    assert len(peer.messages("/v1/traces")) == 1


def test_a_connection_closed_while_idle_is_opened_again(peer: OtlpPeer, sink: Sink) -> None:
    """A server may close what it kept open; the next write does not notice."""
    peer.replies = [Reply(200, {"Connection": "close"})] * 3
    assert not sink.write(example_batches())
    assert not sink.write(example_batches(seq=1))
    assert len(peer.steps()) == 20


def test_an_unreachable_server_is_retried(sink: Sink, peer: OtlpPeer) -> None:
    """Refused connections and unknown hosts are said in one line."""
    peer.stop()
    with pytest.raises(Retry, match="nothing listens"):
        sink.write(example_batches())
    with pytest.raises(Retry, match="DNS"):
        Otlp.read({"endpoint": "http://no-such-host.invalid:4318"}, {}).open().write(example_batches())


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    paths = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*line.split(), "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def test_tls(certificate: tuple[str, str]) -> None:
    """A server is trusted by the CA that is named, and not otherwise; the reason says what to do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Server(context)
    try:
        with pytest.raises(Retry, match=r"not trusted.*certificate"):
            open_sink(server).write(example_batches())
        sink = open_sink(server, certificate=certificate[0])
        assert not sink.write(example_batches())
        assert server.steps() == list(range(10))
        sink.close()
    finally:
        server.stop()


def test_a_tls_handshake_that_hangs() -> None:
    """A port that accepts and never speaks TLS costs the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(Retry, match="no answer in time"):
            Otlp.read({"endpoint": url, "timeout": 0.3}, {}).open().write(example_batches())
        assert time.monotonic() - began < 5


def test_no_tls_there() -> None:
    """A server that speaks plain HTTP is recognised."""
    with running() as plain:
        made = Otlp.read({"endpoint": plain.url.replace("http", "https"), "timeout": 2}, {}).open()
        with pytest.raises(Retry, match="TLS"):
            made.write(example_batches())


def test_large_deliveries_are_split(peer: OtlpPeer, sink: Sink) -> None:
    """No request is larger than 4 MiB."""
    records: list[Record] = [Log(1, None, None, None, None, 9, "x" * 100_000) for _ in range(100)]
    assert not sink.write([Batch(WRITERS[0], 0, records)])
    assert len(peer.received) >= 3
    assert max(len(got.body) for got in peer.received) <= 4 * 1024 * 1024


def test_json_and_gzip(peer: OtlpPeer) -> None:
    """Compression and JSON as asked for."""
    assert not open_sink(peer, compression="gzip").write(example_batches())
    assert peer.steps() == list(range(10))
    peer.received.clear()
    assert not open_sink(peer, protocol="http/json").write(example_batches())
    assert peer.received[0].headers["content-type"] == "application/json"
    assert "resourceSpans" in json.loads(peer.received[0].body)


def test_nan_arrives(peer: OtlpPeer, sink: Sink) -> None:
    """NaN and infinities are values like others."""
    values = {"a": float("nan"), "b": float("inf")}
    sink.write([Batch(WRITERS[0], 0, [Metric(1, 1, None, None, values)])])
    (message,) = peer.messages("/v1/metrics")
    found = [metric.gauge.data_points[0].as_double for metric in message.resource_metrics[0].scope_metrics[0].metrics]
    assert [str(value) for value in found] == ["nan", "inf"]


def test_steps_can_be_left_out(peer: OtlpPeer) -> None:
    """For backends that make a series of every attribute value."""
    open_sink(peer, steps=False).write(example_batches())
    assert peer.messages("/v1/metrics")
    assert not peer.steps()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A certificate that cannot be read is a wrong configuration."""
    with pytest.raises(ConfigError, match="TLS files"):
        Otlp.read({"endpoint": "https://x", "certificate": str(tmp_path / "none.pem")}, {}).open()
