"""The plain dialect against the real statsd daemon from npm."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.dialects.datadog.sink import Datadog
from stepscope.model import names
from stepscope.model.ports import Batch
from stepscope.model.records import Instrument, Metric, Record
from stepscope.testing.sinks import WRITERS
from tests.waiting import wait_until

CONFIG = """{{port: {port}, mgmt_port: {admin}, address: "127.0.0.1", mgmt_address: "127.0.0.1",
backends: ["./backends/console"], flushInterval: 600000}}"""


def find_daemon(node: str) -> Path | None:
    """The folder of the npm package: where `make setup` puts it in CI, else of NODE_PATH, else a global one."""
    listed = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False)
    named = os.environ.get("NODE_PATH", "").split(os.pathsep)
    roots = [f"{sys.prefix}/npm/node_modules", *named, listed.stdout.strip()]
    return next((Path(root) / "statsd" for root in roots if root and (Path(root) / "statsd/stats.js").exists()), None)


def free_port(kind: socket.SocketKind) -> int:
    """A free port."""
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Daemon:
    """A statsd daemon, and its administration port."""

    def __init__(self, port: int, admin: int) -> None:
        self.port, self._admin = port, admin

    def ask(self, command: str) -> str:
        """What the administration port says; it ends each answer with END."""
        with socket.create_connection(("127.0.0.1", self._admin), timeout=300) as connection:
            connection.sendall(f"{command}\n".encode())
            answer = b""
            while b"END" not in answer and (data := connection.recv(65536)):
                answer += data
        return answer.decode()

    def answers(self) -> bool:
        """Whether it listens already."""
        try:
            return bool(self.ask("counters"))
        except OSError:
            return False


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon; skips when it is not installed."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("node and npm, which run the statsd daemon, are not installed")
    folder = find_daemon(node)
    if folder is None:
        pytest.skip("the statsd daemon is not installed (npm install -g statsd)")
    made = Daemon(free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM))
    config = tmp_path / "config.js"
    config.write_text(CONFIG.format(port=made.port, admin=made._admin))
    process = subprocess.Popen([node, "stats.js", str(config)], cwd=folder, stdout=subprocess.DEVNULL)
    try:
        wait_until(made.answers)
        yield made
    finally:
        process.kill()
        process.wait()


def test_a_statsd_daemon_takes_it(daemon: Daemon) -> None:
    """Gauges, also negative ones, counts scaled by their rate, timings; no line is bad to it."""
    now = time.time_ns()
    delta = Instrument("sum", cumulative=False)
    records: list[Record] = [
        Metric(now, 7, None, "trainer", {"loss": 0.25, "entropy": -1.5}, {"a": "b"}),
        Metric(now, None, None, None, {"tokens": 3}, {names.ATTR_SAMPLE_RATE: 0.5}, delta),
        Metric(now, None, None, None, {"tokens": 4}, {}, delta),
        Metric(now, None, None, None, {"forward": 12.5}, {}, Instrument("timing", cumulative=False)),
    ]
    sink = Datadog.read({"host": "127.0.0.1", "port": daemon.port, "plain": True, "namespace": "ns"}, {}).open()
    assert not sink.write([Batch(WRITERS[0], 0, records)])
    sink.close()
    wait_until(lambda: "forward" in daemon.ask("timers"))
    gauges, counters, timers = daemon.ask("gauges"), daemon.ask("counters"), daemon.ask("timers")
    assert "'ns.trainer.loss': 0.25" in gauges
    assert "'ns.trainer.entropy': -1.5" in gauges
    assert "'ns.train.step': 7" in gauges
    assert "'ns.tokens': 10" in counters
    assert "'ns.forward': [ 12.5 ]" in timers
    assert "'statsd.bad_lines_seen': 0" in counters
