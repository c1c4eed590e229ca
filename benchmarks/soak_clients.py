"""The clients of a soak: what each dialect sends for a hundred items, and how the items are found in the store."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.hub_client import GRPC, HTTP, Send, item, post
from benchmarks.hub_process import HubProcess

BATCH = 100
Bodies = Callable[[int], bytes]
"""Makes the request that begins with an item of a number."""
Opened = tuple[str, Bodies, Send]
"""The id of the run, what makes requests, and what sends them."""


@dataclass(frozen=True, slots=True)
class Items:
    """Where the items of a run are: rows of a table, by key or name, told apart by `each`."""

    table: str
    key: str = "%"
    each: str = "step"

    def stored(self, hub: HubProcess, run: str) -> tuple[int, int]:
        """How many are stored, and how many different ones."""
        number = f"(SELECT max(run) FROM runs WHERE id = '{run}')"
        where = f"run = {number} AND name LIKE '{self.key}'"
        if self.table == "metrics":
            where = f"series IN (SELECT series FROM series WHERE run = {number} AND key LIKE '{self.key}')"
        both = f"concat(toString(count()), ' ', toString(uniqExact({self.each})))"  # of one moment
        stored, different = map(int, hub.sql(f"SELECT {both} FROM {self.table} WHERE {where}").split())
        return stored, different


@dataclass(frozen=True, slots=True)
class Kind:
    """A dialect and a signal: `open` takes the name of a run; the items of its requests are numbered."""

    name: str
    items: Items
    open: Callable[[HubProcess, str], Opened]


def _otlp(protocol: str, signal: str) -> Callable[[HubProcess, str], Opened]:
    def open_it(hub: HubProcess, run: str) -> Opened:
        from stepscope.model.ports import Writer
        from stepscope.wire.otlp.encode.encode_request import encode

        writer = Writer(id="soak", run=run, project="soak", resource={"service.name": run})

        def bodies(first: int) -> bytes:
            (request,) = encode([(writer, [item(signal, number) for number in range(first, first + BATCH)])]).requests
            return request.body

        return run, bodies, HTTP(hub.port, signal) if protocol == "http" else GRPC(hub.grpc_port, signal)

    return open_it


def _mlflow(hub: HubProcess, run: str) -> Opened:
    made = json.dumps({"experiment_id": "0", "run_name": run, "start_time": int(time.time() * 1000)}).encode()
    answer = json.loads(hub.request("POST", "/api/2.0/mlflow/runs/create", made, {"content-type": "application/json"}))
    run_id = answer["run"]["info"]["run_id"]

    def bodies(first: int) -> bytes:
        at = int(time.time() * 1000)
        values = [{"key": "soak", "value": n, "step": n, "timestamp": at} for n in range(first, first + BATCH)]
        return json.dumps({"run_id": run_id, "metrics": values}).encode()

    return run_id, bodies, post(hub.port, "/api/2.0/mlflow/runs/log-batch")


def _wandb(hub: HubProcess, run: str) -> Opened:
    def bodies(first: int) -> bytes:
        at = time.time()
        lines = [json.dumps({"soak": n, "_step": n, "_timestamp": at}) for n in range(first, first + BATCH)]
        return json.dumps({"files": {"wandb-history.jsonl": {"offset": first, "content": lines}}}).encode()

    return run, bodies, post(hub.port, f"/files/team/soak/{run}/file_stream")


def _datadog(hub: HubProcess, run: str) -> Opened:
    def bodies(first: int) -> bytes:
        points = [{"timestamp": int(time.time()), "value": number} for number in range(first, first + BATCH)]
        tags = [f"run_id:{run}", "project:soak"]
        return json.dumps({"series": [{"metric": "soak", "type": 3, "points": points, "tags": tags}]}).encode()

    return run, bodies, post(hub.port, "/api/v2/series", {"dd-api-key": "any"})


def _dogstatsd(hub: HubProcess, run: str) -> Opened:
    """A Unix stream has no answers: what was written into it counts as sent."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(hub.dogstatsd))

    def bodies(first: int) -> bytes:
        tags = f"#run_id:{run},project:soak"
        return "\n".join(f"soak:{number}|g|{tags}" for number in range(first, first + BATCH)).encode()

    def send(body: bytes) -> bool:
        made.sendall(struct.pack("<I", len(body)) + body)
        return True

    return run, bodies, send


def _tinker(hub: HubProcess, run: str) -> Opened:
    def bodies(first: int) -> bytes:
        at = datetime.now(UTC).isoformat()
        events: list[dict[str, Any]] = [
            {"event": "GENERIC_EVENT", "event_id": f"{run}-{number}", "event_session_index": number, "severity": "INFO",
             "timestamp": at, "event_name": "soak", "event_data": {"step": number, "status": "ok"}}
            for number in range(first, first + BATCH)
        ]  # fmt: skip
        said = {"platform": "Linux", "sdk_version": "0.36.0", "session_id": run, "events": events}
        return json.dumps(said).encode()

    return run, bodies, post(hub.port, "/api/v1/telemetry", {"x-api-key": "tml-any"})


SPANS, LOGS, POINTS = Items("spans"), Items("logs"), Items("metrics", "soak", "value")
KINDS = (
    Kind("http-traces", SPANS, _otlp("http", "traces")),
    Kind("grpc-metrics", Items("metrics", "load", "value"), _otlp("grpc", "metrics")),
    Kind("http-logs", LOGS, _otlp("http", "logs")),
    Kind("grpc-traces", SPANS, _otlp("grpc", "traces")),
    Kind("mlflow", POINTS, _mlflow),
    Kind("wandb", POINTS, _wandb),
    Kind("datadog", POINTS, _datadog),
    Kind("dogstatsd", POINTS, _dogstatsd),
    Kind("tinker", Items("logs", "soak"), _tinker),
)
TRAINED = {
    "points": Items("metrics", "trainer/%", "(series, step)"),
    "spans": Items("spans", "soak.inner"),
    "events": Items("logs", "soak.event", "time"),
}
"""What a trainer of `soak_load` records."""
