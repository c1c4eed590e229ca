"""MLflow's server, asked for a long series as its page asks."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.timing import asked

SHOWN = 320
"""What its page asks for."""


def child(params: dict[str, Any]) -> dict[str, float]:
    """Put points into a fresh database, start the server, and ask."""
    folder = Path.cwd()
    run = _fill(folder, params["points"], params["spike"])
    port = _free_port()
    line = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    with (folder / "server-said").open("w") as said:
        server = subprocess.Popen([*line, "--port", str(port), "--workers", "1"], stdout=said, stderr=said)
        try:
            _wait(port, server)
            path = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
            ask = f"{path}?run_ids={run}&metric_key=loss&max_results={SHOWN}"
            stats, answer = asked(params["rounds"], lambda: _get(port, ask))
        finally:
            server.terminate()
            server.wait(30)
    values = [metric["value"] for metric in answer["metrics"]]
    lost = float(params["spike"] not in values)
    return stats | {"of": float(params["points"]), "shown": float(len(values)), "spikes_lost": lost}


def _fill(folder: Path, points: int, spike: float) -> str:
    """Let MLflow make its tables and one point, and add the others to its table."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 0.0, step=0)
    name = run.info.run_id
    rows = ((name, "loss", spike if n == points // 3 else n % 97 / 97, n, n, 0) for n in range(1, points))
    with sqlite3.connect(folder / "mlflow.db") as base:
        base.executemany(
            "INSERT INTO metrics (run_uuid, key, value, timestamp, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)", rows
        )
    return str(name)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the MLflow server did not start")


def _get(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise RuntimeError(f"{response.status} {body[:200]!r}")
    return json.loads(body)
