"""What one request or one client may take of a real hub: bytes, seconds, connections."""

import contextlib
import gzip
import http.client
import json
import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
import pytest
from starlette.routing import Route

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.limits import Limits
from stepscope.hub.questions.routes import mount
from stepscope.hub.security.guard import RequestHead
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from tests.hub.conftest import JSON, RunningHub
from tests.waiting import wait_until

PROGRAM = str(Path(__file__).with_name("short_limits.py"))
SHORT: dict[str, Any] = {
    "header_seconds": 1.0,
    "body_seconds": 2.0,
    "write_seconds": 2.0,
    "small_body": 64 * 1024,
    "body": 128 * 1024,
    "stream_body": 256 * 1024,
}
MEGA = 1024 * 1024
PIECE = 64 * 1024


class Answered(NamedTuple):
    """A route of the hub."""

    method: str
    path: str
    most: int
    """Bytes of its body."""


def limited(home: Path, limits: Mapping[str, Any]) -> RunningHub:
    """A hub with limits of its own."""
    return RunningHub(home, env={"STEPSCOPE_TEST_LIMITS": json.dumps(limits)}, program=(PROGRAM,))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with short limits."""
    pytest.importorskip("tests.chdb")
    running = limited(tmp_path_factory.mktemp("short") / "home", SHORT).start()
    yield running
    with contextlib.suppress(Exception):
        running.kill()


def connect(port: int, timeout: float = 300) -> socket.socket:
    """A connection of our own."""
    made = socket.create_connection(("127.0.0.1", port), timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def read_all(connection: socket.socket) -> bytes:
    """Everything until the hub closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def head(method: str, path: str, *lines: str) -> bytes:
    """The beginning of a request."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: localhost", *lines, "", "")).encode()


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Answered]:
    """Every method and path that the hub's application has a route for."""
    pytest.importorskip("tests.chdb")
    home = HubHome(tmp_path_factory.mktemp("routes") / "home")
    limits = replace(Limits(), **SHORT)
    hub = Hub(HubOptions(home=home.home, limits=limits), home, open_home_store(home), Tokens(home.tokens))
    try:
        outer = app = cast(Any, build_app(hub, mount(hub, "0")))
        while not hasattr(app, "routes"):
            app = app._app
        every = [each for route in app.routes for each in getattr(route, "routes", [route])]
        found = [route for route in every if isinstance(route, Route)]
        assert len(found) == len(every)
        heads = [
            (method, route.path.replace("{run:path}", "r").replace("{", "").replace("}", "").replace(":path", ""))
            for route in found
            for method in sorted(route.methods or ())
        ]
        rules = [outer._rule_of(RequestHead(method, path, {}, "")) for method, path in heads]
        return [
            Answered(*head, limits.stream_body if rule.stream else rule.body)
            for head, rule in zip(heads, rules, strict=True)
        ]
    finally:
        hub.close(0.1)


def rss(hub: RunningHub) -> int:
    """The hub's memory in bytes."""
    assert hub.process is not None
    pages = int(Path(f"/proc/{hub.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextlib.contextmanager
def watching_memory(hub: RunningHub) -> Iterator[Callable[[], int]]:
    """Give a function that tells by how many bytes the hub's memory grew at most since then."""
    assert hub.process is not None
    place = Path(f"/proc/{hub.process.pid}")
    (place / "clear_refs").write_text("5")  # the peak begins anew
    before = rss(hub)

    def growth() -> int:
        peak = (place / "status").read_text().partition("VmHWM:")[2].split()[0]
        return int(peak) * 1024 - before

    yield growth


BEFORE_READING = {200, 302, 307, 400, 401, 403, 404, 405, 415, 422, 501}
"""Statuses of routes that answer before they read a body (501: a call that a client falls back from), and of Tinker's
telemetry, which refuses nothing."""


def test_every_route_bounds_its_body(short: RunningHub, routes: list[Answered]) -> None:
    """An endless body is refused as soon as it is over the limit of its route, with a token or without."""
    statuses, before = {}, rss(short)
    for method, path, most in routes:
        with connect(short.port) as connection:
            sent, size = 0, "transfer-encoding: chunked" if most <= MEGA else f"content-length: {most + 1}"
            connection.sendall(head(method, path, f"content-type: {JSON}", size))
            with contextlib.suppress(ConnectionError):
                while sent <= most <= MEGA and not is_answered(connection, 0):
                    connection.sendall(b"10000\r\n" + bytes(PIECE) + b"\r\n")
                    sent += PIECE
            statuses[method, path] = int(connection.recv(12)[9:]) if is_answered(connection, 60) else None
    assert {("POST", "/api/session"), ("POST", "/graphql"), ("POST", "/v1/logs"), ("PUT", "/api/alerts/rules")} <= {
        route for route, status in statuses.items() if status == 413
    }
    assert {route: status for route, status in statuses.items() if status not in BEFORE_READING | {413}} == {}
    assert rss(short) - before < 150 * MEGA


def test_every_route_bounds_what_a_body_unpacks_to(short: RunningHub, routes: list[Answered]) -> None:
    """A small body that unpacks to more than the limit is refused, or not unpacked at all."""
    bomb = gzip.compress(b" " * MEGA) * 257
    statuses, before = {}, rss(short)
    for method, path, most in routes:
        if method not in ("GET", "HEAD", "DELETE"):
            body = bomb if most > MEGA else gzip.compress(b" " * (most + 1))
            answer = short.request(method, path, body, {"content-type": JSON, "content-encoding": "gzip"})
            statuses[method, path] = answer.status
    assert {("POST", "/api/sql"), ("POST", "/api/spans/import"), ("POST", "/graphql"), ("POST", "/v1/logs")} <= {
        route for route, status in statuses.items() if status == 413
    }
    assert {route: status for route, status in statuses.items() if status not in BEFORE_READING | {413}} == {}
    assert rss(short) - before < 150 * MEGA


@pytest.mark.parametrize("line", ["expect: 100-continue", "connection: close", "connection: keep-alive"])
def test_who_sends_on_can_read_the_refusal(short: RunningHub, line: str) -> None:
    """An announced body that is too large is refused at once; who sends it before reading gets the answer, too."""
    size = 3 * SHORT["body"]
    with connect(short.port) as connection:
        connection.sendall(head("POST", "/v1/logs", line, f"content-type: {JSON}", f"content-length: {size}"))
        assert is_answered(connection, 60)
        if not line.startswith("expect"):
            connection.sendall(bytes(size))
        assert read_all(connection).startswith(b"HTTP/1.1 413")


def is_answered(connection: socket.socket, seconds: float) -> bool:
    """Whether something can be read; wait for it."""
    return bool(select.select([connection], [], [], seconds)[0])


def test_every_route_bounds_the_time_of_its_body(short: RunningHub, routes: list[Answered]) -> None:
    """Every route has a timeout for the rest of a body."""
    waiting = []
    for method, path, _ in routes:
        connection = connect(short.port)
        connection.sendall(head(method, path, f"content-type: {JSON}", "content-length: 9") + b'{"to')
        waiting.append((method, path, connection))
    for method, path, connection in waiting:
        with connection:
            if (method, path) == ("GET", "/api/live"):
                continue  # a stream that is answered; it ends when its client leaves
            connection.settimeout(30)
            said = b""
            while b"\r\n\r\n" not in said:
                part = connection.recv(65536)
                assert part, f"{method} {path} was closed without an answer"
                said += part


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nx: "])
def test_headers_have_a_time_limit(short: RunningHub, start: bytes) -> None:
    """A connection whose headers do not end is closed with 408, also when they trickle."""
    with connect(short.port) as connection:
        connection.sendall(start)
        connection.settimeout(0.2)
        said, deadline = b"", time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                part = connection.recv(1000)
            except TimeoutError:
                if start:
                    connection.sendall(b"a")
                continue
            except ConnectionError:
                break
            said += part
            if not part:
                break
        assert time.monotonic() < deadline
        assert said.startswith(b"HTTP/1.1 408")


def test_body_after_the_answer(short: RunningHub) -> None:
    """An endless unread body does not keep a connection open."""
    with connect(short.port) as connection:
        connection.sendall(head("GET", "/healthz", "content-length: 1000000"))
        with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012
            for _ in range(300):
                connection.sendall(b"x")
                connection.settimeout(0.1)
                with contextlib.suppress(TimeoutError):
                    if connection.recv(1000) == b"":
                        raise ConnectionResetError


def test_answers_must_be_read(short: RunningHub) -> None:
    """A client that asks and does not read the answer is let go."""
    connections = []
    for _ in range(3):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", short.port))
        connection.sendall(head("GET", "/api/openapi.json") * 400)
        connections.append(connection)
    try:
        assert short.process is not None
        wait_for(lambda: established(short) == 0)
    finally:
        for connection in connections:
            connection.close()


def established(hub: RunningHub) -> int:
    """How many connections of a hub's HTTP port are open on its side."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(int(each[1].partition(":")[2], 16) == hub.port and each[3] == "01" for each in fields)


wait_for = wait_until
"""The name by which tests of receivers know it."""


def test_small_chunks_block_no_other_request(short: RunningHub) -> None:
    """A body in chunks of one byte is parsed in slices: others are answered in between."""
    with connect(short.port) as attack:
        attack.settimeout(0)
        attack.setblocking(True)
        attack.sendall(head("POST", "/v1/logs", f"content-type: {JSON}", "transfer-encoding: chunked"))
        attack.setblocking(False)
        data = b"1\r\nx\r\n" * 40_000
        answered = 0
        for _ in range(20):
            with contextlib.suppress(BlockingIOError, ConnectionError):
                attack.send(data)
            assert short.request("GET", "/healthz").status == 200
            answered += 1
        assert answered == 20


def test_half_open_connections(tmp_path: Path) -> None:
    """1,100 connections without a request, HTTP and gRPC, leave a hub of 1,024 files usable by others."""
    hub = limited(tmp_path / "home", {"header_seconds": 30.0})
    hub.program = ("-c", _FEW_FILES, PROGRAM)
    hub.start()
    silent: list[socket.socket] = []
    try:
        for port in (hub.port, hub.grpc_port):
            for _ in range(1100):
                with contextlib.suppress(OSError):
                    silent.append(connect(port, 5))
        for _ in range(5):
            assert hub.request("GET", "/api/health").json()["status"] == "ok"
            assert hub.post("/v1/logs", b"{}", JSON).status == 200
        files = len(os.listdir(f"/proc/{hub.process.pid}/fd")) if hub.process else 0
        assert files < 1000
    finally:
        for connection in silent:
            connection.close()
        hub.kill()


@pytest.mark.parametrize("path", ["/sdk/otel/v1/traces", "/api/session", "/v1/logs"])
def test_unfinished_bodies_without_a_token_lock_nobody_out(tmp_path: Path, path: str) -> None:
    """One address that keeps every connection busy with bodies it does not finish delays no client with a token."""
    hub = limited(tmp_path / "home", {"connections": 60, "body_seconds": 120.0}).start()
    token = Tokens(hub.home / "hub" / "tokens.json").create(["ingest"])[1]
    wait_for(lambda: hub.request("POST", "/v1/logs", b"{}", {"content-type": JSON}).status == 401)
    start = head("POST", path, f"content-type: {JSON}", "content-length: 4000") + b"{" * 100
    held: list[socket.socket] = []
    try:
        shown = {"content-type": JSON, "authorization": f"Bearer {token}"}
        kept = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=60)
        answers = []
        for _ in range(10):
            for _ in range(90 if not held else 4):
                connection = connect(hub.port, 60)
                with contextlib.suppress(OSError):
                    connection.sendall(start)
                held.append(connection)
            answers.append(hub.request("POST", "/v1/logs", b"{}", shown).status)
            kept.request("POST", "/v1/logs", b"{}", shown)
            response = kept.getresponse()
            response.read()
            answers.append(response.status)
        assert answers == [200] * 20
    finally:
        for connection in held:
            connection.close()
        hub.kill()


_FEW_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_silent_grpc_connections_are_closed(short: RunningHub) -> None:
    """A gRPC connection that says nothing is closed, and the next client is served."""
    silent = [connect(short.grpc_port) for _ in range(20)]
    for connection in silent:
        with connection:
            connection.settimeout(30)
            read_all(connection)
    with grpc.insecure_channel(f"127.0.0.1:{short.grpc_port}") as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        assert call(b"", timeout=300) == b""


def test_grpc_bombs_are_refused(short: RunningHub) -> None:
    """A small compressed message that grows beyond the limit is refused, and takes no memory."""
    before = rss(short)
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{short.grpc_port}", options) as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            call(bytes(64 * MEGA), timeout=300, compression=grpc.Compression.Gzip)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert rss(short) - before < 48 * MEGA


def test_bodies_are_bounded_together(tmp_path: Path) -> None:
    """Many bodies at once, none of them too large, are refused with a time to come again when they are too much."""
    hub = limited(tmp_path / "home", {"bodies": 4 * MEGA}).start()
    try:
        held = []
        for _ in range(3):
            connection = connect(hub.port)
            connection.sendall(head("POST", "/v1/logs", f"content-type: {JSON}", f"content-length: {2 * MEGA}"))
            connection.sendall(bytes(MEGA + 1000))
            held.append(connection)
        wait_for(lambda: hub.post("/v1/logs", b" " * (MEGA + 1000), JSON).status == 503)
        refused = hub.post("/v1/logs", b" " * (MEGA + 1000), JSON)
        assert refused.headers["retry-after"] == "1"
        for connection in held:
            connection.close()
        wait_for(lambda: hub.post("/v1/logs", b" " * (MEGA + 1000) + b"{}", JSON).status == 200)
    finally:
        hub.kill()


def test_upgrade_and_huge_headers(short: RunningHub) -> None:
    """An upgrade is answered as a plain request, and headers beyond 16 KiB are refused."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "a", "sec-websocket-version": "13"}
    assert short.request("GET", "/healthz", None, upgrade).status == 200
    with connect(short.port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head("GET", "/healthz", "x: " + "a" * MEGA))
        assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")
    assert short.request("GET", "/healthz").status == 200


def test_a_half_open_hub_still_stops(tmp_path: Path) -> None:
    """SIGTERM ends a hub that has silent connections and half a body, with 0."""
    hub = limited(tmp_path / "home", {"header_seconds": 60.0}).start()
    held = [connect(hub.port) for _ in range(20)]
    for connection in held[:10]:
        connection.sendall(head("POST", "/api/session", "content-length: 100") + b"{")
    try:
        assert hub.request("GET", "/healthz").status == 200
        assert hub.stop(300) == 0
    finally:
        for connection in held:
            connection.close()
