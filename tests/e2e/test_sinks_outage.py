"""A long outage: a server that was away for half an hour gets two million records, all of them, once and in order."""

import threading
from array import array
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from stepscope.journal.following import Following
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from stepscope.pump import Pump
from stepscope.sinks.hub import Hub
from stepscope.wire import frames
from tests.sinks.faults import refused

COUNT = 2_000_000
PER_BATCH = 5000
AWAY_SECONDS = 1800.0


class Counting:
    """A server of the native protocol that keeps the steps it was sent."""

    def __init__(self, port: int) -> None:
        self.steps = array("q")
        counting = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                counting.take(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                body = b'{"safe": [], "written": 0, "rejected": {}}'
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Answering)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, body: bytes) -> None:
        """Read a body."""
        for frame in frames.scan(body, final=True):
            assert isinstance(frame, frames.Frame)
            if not frames.is_head(frame.payload):
                self.steps.extend(record.step or 0 for record in frames.unpack_batch(frame.payload)[1])

    def stop(self) -> None:
        """End it."""
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def port() -> Iterator[int]:
    """A free port."""
    with refused() as found:
        yield found


def write_journal(home: Path) -> None:
    """What a trainer recorded meanwhile."""
    name = "r0-a1-host-1-abc"
    encode = msgspec.msgpack.Encoder().encode
    journal = Journal(home / "runs" / "run" / name, Writer(id=name, run="run", project="p"))
    for first in range(0, COUNT, PER_BATCH):
        steps = range(first, first + PER_BATCH)
        journal.append([encode(Metric(step, step, None, "trainer", {"loss": 0.5})) for step in steps])
    journal.close()


def test_half_an_hour_away_then_two_million_records(tmp_path: Path, port: int) -> None:
    """While it is away it is asked a few times a minute; when it is back everything follows."""
    write_journal(tmp_path)
    now = 0.0
    following = Following(tmp_path, "s", unpack=frames.unpack_raw_batch)
    sink = Hub.read({"url": f"http://127.0.0.1:{port}"}, {}).open()
    pump = Pump(sink, following, Quarantine(tmp_path, "s"), clock=lambda: now)
    while now < AWAY_SECONDS:
        now += pump.step().wait
    assert pump.is_stuck
    assert 30 <= pump.counts["retried"] < 80
    server = Counting(port)
    try:
        while not pump.at_end:
            now += pump.step().wait
    finally:
        pump.close()
        server.stop()
    assert server.steps == array("q", range(COUNT))
    assert (pump.counts["written"], pump.counts["rejected"], pump.counts["dropped"]) == (COUNT, 0, 0)
