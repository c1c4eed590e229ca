"""A hub of few open files under every attack at once: it keeps what it acknowledges, answers, and stays small."""

import contextlib
import gzip
import json
import socket
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, PROTOBUF, RunningHub
from tests.hub.test_connections import _FEW_FILES, PROGRAM, connect, head, watching_memory
from tests.hub.test_sql_limits import SLOW
from tests.repeats import repeats

pytest.importorskip("tests.chdb")

MEGA = 1024 * 1024
REQUESTS, POINTS = repeats(12, 60), 20
GROWTH = 1168 * MEGA
"""What requests can take as a whole (docs/hub.md)."""


def bomb(piece: bytes, size: int) -> bytes:
    """Much of one piece, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    part = piece * (MEGA // len(piece))
    return b"".join([*(packer.compress(part) for _ in range(size // MEGA)), packer.flush()])


def attacks() -> dict[str, tuple[str, bytes, dict[str, str]]]:
    """Requests that are small, or cheap to send, and try to cost much."""
    packed = {"content-encoding": "gzip"}
    deep = b'{"resourceLogs":[' + b'{"scopeLogs":[' * 5000
    return {
        "resources": ("/v1/logs", bomb(b"\n\0", 18 * MEGA), {"content-type": PROTOBUF, **packed}),
        "a small bomb": ("/v1/logs", gzip.compress(b"\n\0" * 261_120), {"content-type": PROTOBUF, **packed}),
        "objects": ("/v1/logs", b'{"resourceLogs":[' + b"{}," * 160_000 + b"{}]}", {"content-type": JSON}),
        "members": ("/v1/logs", gzip.compress(b"") * 500_000, {"content-type": PROTOBUF, **packed}),
        "zeros": ("/v1/metrics", bomb(b"\0", 200 * MEGA), {"content-type": PROTOBUF, **packed}),
        "depth": ("/v1/logs", deep, {"content-type": JSON}),
        "frames": ("/v1/stepscope", bomb(b"\x93\0\0", 18 * MEGA), packed),
        "a session": ("/api/session", b'{"token": "' + b"a" * 900_000 + b'"}', {}),
        "yaml": ("/api/dashboards", json.dumps({"yaml": "[" * 60_000}).encode(), {"content-type": JSON}),
        "sql": ("/api/sql", json.dumps({"sql": SLOW, "seconds": 5}).encode(), {"content-type": JSON}),
        "an import": (
            "/api/spans/import",
            b'{"resourceSpans":[' + b"{}," * 6_000_000 + b"{}]}",
            {"content-type": JSON},
        ),
    }


class Attackers:
    """Threads that send one request after the other until stopped, and count the responses."""

    def __init__(self, hub: RunningHub) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.stop = threading.Event()
        self._hub = hub
        self._threads = [self._thread(name, *each) for name, each in attacks().items()]

    def _thread(self, name: str, path: str, body: bytes, headers: dict[str, str]) -> threading.Thread:
        def send() -> None:
            while not self.stop.is_set():
                with contextlib.suppress(OSError):
                    self.answers[name, self._hub.request("POST", path, body, headers).status] += 1

        return threading.Thread(target=send, name=name, daemon=True)

    def __enter__(self) -> "Attackers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(120)


@contextlib.contextmanager
def held(make: Callable[[], socket.socket], count: int) -> Iterator[list[socket.socket]]:
    """Connections that are kept open."""
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                made.append(make())
        yield made
    finally:
        for connection in made:
            connection.close()


def test_a_hub_under_attack(tmp_path: Path) -> None:
    """Half-open and slow connections, bombs and costly statements: every client in good faith is served meanwhile."""
    env = {"STEPSCOPE_TEST_LIMITS": json.dumps({})}
    hub = RunningHub(tmp_path / "home", env=env, program=("-c", _FEW_FILES, PROGRAM)).start()

    def silent() -> socket.socket:
        return connect(hub.port, 10)

    def slow() -> socket.socket:
        made = connect(hub.port, 10)
        made.sendall(head("POST", "/v1/logs", f"content-type: {JSON}", "content-length: 1000") + b"{")
        return made

    try:
        hub.post("/v1/metrics", bodies.points(1, key="warm"))
        assert hub.post("/api/sql", json.dumps({"sql": "SELECT 1"}).encode(), JSON).status == 200
        with watching_memory(hub) as growth, held(silent, 1100), held(slow, 100), Attackers(hub) as attackers:
            for number in range(REQUESTS):
                sent = _sent(hub, bodies.points(POINTS, key="loss", first=number * POINTS))
                assert sent == 200
                assert hub.request("GET", "/healthz").status == 200
        assert growth() < GROWTH, f"{growth() // MEGA} MiB more"
        assert {name for name, _ in attackers.answers} >= {"a small bomb", "objects", "depth", "a session", "yaml"}
        refused = {status for (name, status) in attackers.answers if name not in ("sql", "a session")}
        assert refused <= {200, 400, 408, 413, 503}
        hub.wait_stored("otlp_http", REQUESTS * POINTS + 1, 120)
        assert hub.health()["status"] == "ok"
        assert hub.stop(300) == 0
    finally:
        hub.kill()


def _sent(hub: RunningHub, body: bytes) -> int:
    """Send records as an exporter does: retryable responses and lost connections are retried."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            status = hub.post("/v1/metrics", body).status
            if status != 503:
                return status
    return 503
