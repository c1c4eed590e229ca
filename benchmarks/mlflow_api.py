"""The MLflow API of a hub beside MLflow's own server, asked in turn: `python -m benchmarks.mlflow_api`."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.dialects.mlflow.receiver.experiments import create_default
from stepscope.dialects.mlflow.receiver.names_and_limits import Point
from stepscope.dialects.mlflow.receiver.run_table import MlflowRun, create_run, set_latest, set_params, set_tags
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.hub.home import HubHome

RUNS, METRICS = 5_000, 100
ROUNDS, SEARCHES = 100, 3
T = 1_700_000_000_000
API = "/api/2.0/mlflow/"
SEARCH = {"experiment_ids": ["0"], "filter": "metrics.m0 < 0.5 AND params.p0 = 'adam'", "order_by": ["metrics.m0 DESC"]}


def main() -> None:
    """Fill both, start both, and print the medians and their ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill_theirs(folder)
        fill_ours(folder)
        servers = {"mlflow": Server(_mlflow(folder), folder), "hub": Server(_hub(folder), folder)}
        try:
            for server in servers.values():
                server.wait()
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, one connection")
            compare(f"log-batch of {METRICS} metrics", servers, ROUNDS, log_batches)
            compare(f"search over {RUNS} runs, 1,000 in the answer", servers, SEARCHES, searches)
        finally:
            for server in servers.values():
                server.close()


def compare(title: str, servers: dict[str, Server], rounds: int, make: Callable[[Server], Callable[[], None]]) -> None:
    """Time both in turn, so that a busy machine is busy for both."""
    calls = {name: make(server) for name, server in servers.items()}
    times: dict[str, list[float]] = {name: [] for name in servers}
    before = {name: server.cpu() for name, server in servers.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    waited = {name: statistics.median(each) * 1000 for name, each in times.items()}
    used = {name: (server.cpu() - before[name]) / rounds * 1000 for name, server in servers.items()}
    for what, found in (("median", waited), ("CPU", used)):
        ratio = found["mlflow"] / found["hub"]
        print(f"{title}, {what}: mlflow {found['mlflow']:.1f} ms, hub {found['hub']:.1f} ms, {ratio:.1f} times")


def log_batches(server: Server) -> Callable[[], None]:
    """Log batches of fresh values to one run."""
    made = server.post("runs/create", {"experiment_id": "0", "start_time": T})
    run, step = made["run"]["info"]["run_id"], 0

    def call() -> None:
        nonlocal step
        step += 1
        points = [{"key": f"m{at}", "value": at / step, "timestamp": T + step, "step": step} for at in range(METRICS)]
        server.post("runs/log-batch", {"run_id": run, "metrics": points})

    return call


def searches(server: Server) -> Callable[[], None]:
    """Search with a filter and an order, and check that there is an answer."""

    def call() -> None:
        assert len(server.post("runs/search", SEARCH)["runs"]) == 1000

    return call


class Server:
    """A process and one connection to it."""

    def __init__(self, started: tuple[list[str], int], folder: Path) -> None:
        line, self._port = started
        self._log = (folder / f"{self._port}.log").open("wb")
        env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._process = subprocess.Popen(line, stdout=self._log, stderr=self._log, env=env, start_new_session=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + 300
        while True:
            try:
                self.post("runs/search", {"experiment_ids": ["0"], "max_results": 1})
                return
            except OSError:
                self._connection.close()
                assert time.monotonic() < deadline
                assert self._process.poll() is None
                time.sleep(0.2)

    def post(self, path: str, body: Any) -> Any:
        """Send JSON, read JSON."""
        data = json.dumps(body).encode()
        self._connection.request("POST", API + path, data, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        found = answer.read()
        assert answer.status == 200, (path, answer.status, found[:300])
        return json.loads(found)

    def cpu(self) -> float:
        """Seconds of CPU that it and its children have used."""
        total = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12]) if int(fields[2]) == self._process.pid else 0
        return total / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def _mlflow(folder: Path) -> tuple[list[str], int]:
    port = _free_port()
    line = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    return [*line, "--port", str(port), "--workers", "1"], port


def _hub(folder: Path) -> tuple[list[str], int]:
    port = _free_port()
    line = [sys.executable, "-m", "stepscope", "hub", "--home", str(folder / "home"), "--port", str(port)]
    return [*line, "--grpc-port", str(_free_port())], port


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _values(at: int) -> tuple[dict[str, str], dict[str, str], list[Point]]:
    params = {f"p{key}": "adam" if key == 0 and at % 2 else str(at * key) for key in range(10)}
    tags = {f"t{key}": str(at) for key in range(5)}
    return params, tags, [Point(f"m{key}", (at * 7919 % 10_007) / 10_007, T + at, at) for key in range(10)]


def fill_ours(folder: Path) -> None:
    """Write runs into the hub's database."""
    home = HubHome(folder / "home")
    database = TrackingDatabase(home.folder / "files" / "mlflow" / "tracking.db")
    with database.write() as db:
        create_default(db, T)
        for at in range(RUNS):
            wanted = MlflowRun(0, f"{at:032x}", 0, f"r{at}", "me", "FINISHED", T + at, T + at, "active", "", "")
            params, tags, points = _values(at)
            run = create_run(db, wanted, {}, None)
            set_params(db, run, params)
            set_tags(db, run, tags)
            set_latest(db, run, points)
    database.close()
    home.close()


def fill_theirs(folder: Path) -> None:
    """Let MLflow make its tables, and add the same runs to them."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    make: Any = SqlAlchemyStore
    make(f"sqlite:///{folder}/mlflow.db", str(folder / "files"))
    with sqlite3.connect(folder / "mlflow.db") as base:
        for at in range(RUNS):
            run, (params, tags, points) = f"{at:032x}", _values(at)
            fields = (
                "run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, end_time, "
            )
            row = (run, f"r{at}", "UNKNOWN", "", "", "me", "FINISHED", T + at, T + at, "", "active", f"f/{run}", 0)
            base.execute(
                f"INSERT INTO runs ({fields} source_version, lifecycle_stage, artifact_uri, experiment_id) "
                f"VALUES ({', '.join('?' * len(row))})",
                row,
            )
            named = {**tags, "mlflow.runName": f"r{at}"}
            base.executemany("INSERT INTO params (run_uuid, key, value) VALUES (?, ?, ?)", _rows(run, params))
            base.executemany("INSERT INTO tags (run_uuid, key, value) VALUES (?, ?, ?)", _rows(run, named))
            base.executemany(
                "INSERT INTO latest_metrics (run_uuid, key, value, timestamp, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)",
                [(run, point.key, point.value, point.timestamp, point.step) for point in points],
            )


def _rows(run: str, pairs: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(run, key, value) for key, value in pairs.items()]


if __name__ == "__main__":
    main()
