"""Sinks behind a proxy: which one is taken, what it is asked, and a real one that passes requests on."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stepscope.dialects.otlp.sink import Otlp
from stepscope.model.errors import ConfigError, Retry
from stepscope.sinks.http import find_proxy
from stepscope.sinks.hub import Hub
from stepscope.testing.sinks import closing, example_batches
from tests.sinks.servers import Server, running
from tests.sinks.test_hub import HubPeer

NAME = "collector.test"
"""A host that only the proxy knows."""


@pytest.mark.parametrize("proxy", ["http://ada:PA/SS@proxy:3128", "http://[::1", "http://ada:PASS@proxy:99999"])
def test_a_broken_proxy_is_a_wrong_setting(proxy: str) -> None:
    """It is named by its variable, for its own words may be those of the password."""
    with pytest.raises(ConfigError, match="HTTPS_PROXY") as caught:
        find_proxy("https", NAME, 443, {"HTTPS_PROXY": proxy})
    assert "PA" not in str(caught.value)


class TestProxy:
    """Passes everything on to one server: requests with a whole address, and tunnels."""

    __test__ = False

    def __init__(self, target: str, refuse: int | None = None) -> None:
        self.target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self.asked: list[tuple[str, str, str | None]] = []
        proxy = self

        class Passing(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                proxy.note(self)
                length = int(self.headers["content-length"])
                path = self.path.removeprefix(f"http://{NAME}:4318")
                lines = [f"POST {path} HTTP/1.1"] + [f"{key}: {value}" for key, value in self.headers.items()]
                with socket.create_connection(proxy.target) as server:
                    server.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
                    server.sendall(self.rfile.read(length))
                    while data := server.recv(65536):
                        self.wfile.write(data)
                self.close_connection = True

            def do_CONNECT(self) -> None:
                proxy.note(self)
                if refuse is not None:
                    self.send_error(refuse)
                    return
                with socket.create_connection(proxy.target) as server:
                    self.send_response(200)
                    self.end_headers()
                    forth = threading.Thread(target=_pass, args=(self.connection, server), daemon=True)
                    forth.start()
                    _pass(server, self.connection)
                self.close_connection = True

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Its address, with a name and a password."""
        return f"http://me:p%40ss@127.0.0.1:{self._http.server_port}"

    def note(self, request: BaseHTTPRequestHandler) -> None:
        """Remember what was asked for."""
        self.asked.append((request.command, request.path, request.headers.get("proxy-authorization")))

    def stop(self) -> None:
        """End it."""
        self._http.shutdown()
        self._http.server_close()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy_to(server: Server, refuse: int | None = None) -> Iterator[TestProxy]:
    """A proxy for the length of a block."""
    made = TestProxy(server.url, refuse)
    try:
        yield made
    finally:
        made.stop()


BASIC = "Basic bWU6cEBzcw=="


def test_plain_requests_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain requests to a proxy have the full URL and the proxy's credentials."""
    with running() as server, proxy_to(server) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with closing(Otlp.read({"endpoint": f"http://{NAME}:4318"}, {}).open()) as sink:
            assert not sink.write(example_batches())
        assert server.steps() == list(range(10))
        assert proxy.asked[0] == ("POST", f"http://{NAME}:4318/v1/traces", BASIC)
        assert server.received[0].headers["host"] == f"{NAME}:4318"


def test_the_hub_sink_goes_through_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection serves all sinks that speak HTTP."""
    server = HubPeer()
    try:
        with proxy_to(server) as proxy:
            monkeypatch.setenv("all_proxy", proxy.url)
            with closing(Hub.read({"url": f"http://{NAME}:4318"}, {}).open()) as sink:
                assert not sink.write(example_batches())
            assert len(proxy.asked) == 1
            assert sorted(server.steps()) == list(range(10))
    finally:
        server.stop()


def test_tls_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy sees a name and no more, and the certificate is that of the server."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    files = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    line = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=DNS:{NAME}"
    subprocess.run([*line.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    server = Server(context)
    options = {"endpoint": f"https://{NAME}:4318", "timeout": 5}
    try:
        with proxy_to(server) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with closing(Otlp.read({**options, "certificate": files[0]}, {}).open()) as sink:
                assert not sink.write(example_batches())
            assert server.steps() == list(range(10))
            assert set(proxy.asked) == {("CONNECT", f"{NAME}:4318", BASIC)}
            assert "proxy-authorization" not in server.received[0].headers
            stranger = Otlp.read(options, {}).open()
            with closing(stranger), pytest.raises(Retry, match=r"through the proxy .* not trusted"):
                stranger.write(example_batches())
    finally:
        server.stop()


def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says so in the reason, and is tried again."""
    with running() as server, proxy_to(server, refuse=407) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        sink = Hub.read({"url": f"https://{NAME}:4318"}, {}).open()
        with closing(sink), pytest.raises(Retry, match=r"through the proxy 127\.0\.0\.1:\d+: refused: .*407"):
            sink.write(example_batches())


@pytest.mark.parametrize(
    ("host", "rules", "direct"),
    [
        ("hub.corp.example", "corp.example", True),
        ("hub.corp.example", ".corp.example", True),
        ("hub.corp.example", "*.corp.example", True),
        ("corp.example", "corp.example:4318", True),
        ("corp.example", "corp.example:80", False),
        ("evilcorp.example", "corp.example", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8,11.1.2.4", False),
        ("HUB", "a, hub ,b", True),
        ("anything", "*", True),
        ("127.0.0.1", "", True),
        ("localhost", "", True),
        ("::1", "", True),
    ],
)
def test_no_proxy(host: str, rules: str, direct: bool) -> None:
    """Names with what is below them, ports, networks, everything; this machine is never asked of a proxy."""
    found = find_proxy("http", host, 4318, {"http_proxy": "http://proxy:3128", "NO_PROXY": rules})
    assert (found is None) == direct


def test_which_variable() -> None:
    """Lower case overrides upper case, the scheme's variable overrides ALL_PROXY; HTTP_PROXY is ignored under CGI."""
    env = {"HTTP_PROXY": "up:1", "http_proxy": "low:2", "ALL_PROXY": "all:3"}
    assert str(find_proxy("http", "far", 80, env)) == "low:2"
    assert str(find_proxy("https", "far", 443, env)) == "all:3"
    assert find_proxy("http", "far", 80, {"HTTP_PROXY": "up:1", "REQUEST_METHOD": "GET"}) is None
    assert find_proxy("http", "far", 80, {}) is None
    with pytest.raises(ConfigError, match="only http://HOST:PORT") as caught:
        find_proxy("https", "far", 443, {"https_proxy": "socks5://me:secret@there:1"})
    assert "secret" not in str(caught.value)
