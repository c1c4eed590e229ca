"""Connections that are silent, on the gRPC port and in TLS handshakes, make room for those that speak."""

import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from stepscope.dialects.otlp.listener.eviction import Eviction, accepted
from tests.hub.conftest import JSON, RunningHub
from tests.hub.test_connections import connect, limited, wait_for

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How an HTTP/2 connection begins, with empty settings."""
FEW = {"header_seconds": 300.0, "connections": 40, "grpc_connections": 40}
"""Nobody is closed for being slow within a test; what makes room is eviction."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make, *names], check=True, capture_output=True)
    return cert, key


@contextlib.contextmanager
def running(hub: RunningHub) -> Iterator[RunningHub]:
    """A hub while it runs."""
    pytest.importorskip("tests.chdb")
    hub.start()
    try:
        yield hub
    finally:
        hub.kill()


@contextlib.contextmanager
def crowd(port: int, count: int, first: bytes = b"") -> Iterator[None]:
    """Many connections that say `first` and nothing more."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                made.append(connect(port, 5))
                made[-1].sendall(first)
        yield
    finally:
        for each in made:
            each.close()


@pytest.mark.parametrize("first", [b"", PREFACE[:10], PREFACE], ids=["silent", "half a preface", "idle"])
def test_silent_connections_make_room_for_a_call(tmp_path: Path, first: bytes) -> None:
    """With more silent connections than the gRPC port may have, a client is served long before their time is over."""
    with (
        running(limited(tmp_path / "home", FEW)) as hub,
        crowd(hub.grpc_port, 100, first),
        grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}") as channel,
    ):
        assert channel.unary_unary(EXPORT)(b"", timeout=300, wait_for_ready=True) == b""


def test_half_open_tls_connections_make_room(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Connections that never begin a TLS handshake keep neither HTTPS nor gRPC clients out."""
    hub = limited(tmp_path / "home", FEW)
    hub.arguments = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]))
    with running(hub), crowd(hub.port, 100), crowd(hub.grpc_port, 100):
        context = ssl.create_default_context(cafile=str(certificate[0]))
        connection = http.client.HTTPSConnection("localhost", hub.port, context=context, timeout=300)
        connection.request("POST", "/v1/logs", b"{}", {"content-type": JSON})
        assert connection.getresponse().status == 200
        connection.close()
        credentials = grpc.ssl_channel_credentials(certificate[0].read_bytes())
        with grpc.secure_channel(f"localhost:{hub.grpc_port}", credentials) as channel:
            assert channel.unary_unary(EXPORT)(b"", timeout=300, wait_for_ready=True) == b""


def test_the_silent_of_the_largest_crowd_go_and_the_busy_stay() -> None:
    """As many connections as are too many are closed; not those with a call under way."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as undo:
        port = listener.getsockname()[1]
        clients = [undo.enter_context(connect(port)) for _ in range(6)]
        served = [undo.enter_context(listener.accept()[0]) for _ in clients]
        assert len(served) == 6
        wait_for(lambda: len([each.socket.close() for each in accepted(port)]) == 6)
        busy = {client.getsockname()[1] for client in clients[:2]}
        assert Eviction(port, 1, lambda: busy).evict() == 4
        for client in clients[2:]:
            assert client.recv(1) == b""
        for client in clients[:2]:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
