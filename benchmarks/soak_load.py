"""The load of a soak: trainers, OTLP clients, readers and watchers of one hub, each counting what it did."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.hub_client import Unknown
from benchmarks.hub_process import HubProcess
from benchmarks.soak_clients import BATCH, Kind

TRAINER_STEPS = 20
"""Steps a second of a trainer: five metrics in one record, two spans and now and then a log."""
READS = (
    "/api/runs?limit=50&metric=loss",
    "/api/runs/{run}",
    "/api/runs/{run}/keys",
    "/api/runs/{run}/series?key=trainer/loss&points=500",
    "/api/runs/{run}/series?key=trainer/loss&x=relative&from=0&to=60",
    "/api/runs/{run}/steps/{step}",
    "/api/spans?run={run}&limit=50",
    "/api/logs?limit=50",
    "/api/health",
    "/metrics",
)


def child(params: dict[str, Any]) -> dict[str, int]:
    """Be a trainer for so many seconds and return what was logged."""
    import stepscope

    stop = Path(params["stop"])
    sinks = [{"hub": {"url": params["url"]}}] if params["url"] else []
    run = stepscope.init(project="soak", run_id=params["run"], home=params["home"], probes=True, sinks=sinks)
    deadline = time.monotonic() + params["seconds"]
    begun, step = time.monotonic(), 0
    while time.monotonic() < deadline and not (step % TRAINER_STEPS == 0 and stop.exists()):
        with run.step(step), run.span("soak.inner", batch=32):
            run.log({f"soak_{key}": random.random() for key in range(4)} | {"loss": 1 / (step + 1)}, category="trainer")
        if step % 10 == 0:
            run.event("soak.event", {"step": step})
        step += 1
        time.sleep(max(0.0, begun + step / TRAINER_STEPS - time.monotonic()))
    run.finish()
    return {"points": 5 * step, "spans": step, "events": -(-step // 10)}


class Sender(threading.Thread):
    """A client of a dialect: requests of 100 items, one after another, at a rate. It repeats what was not acknowledged,
    as exporters do: `again` counts refusals, `unknown` the requests whose answer did not come in time.
    """

    def __init__(self, hub: HubProcess, kind: Kind, rate: float, done: threading.Event) -> None:
        super().__init__(name=kind.name, daemon=True)
        self.kind = kind
        self.sent = self.again = self.unknown = 0
        self.error = ""
        self._rate, self._done = rate, done
        self.run_id, self._bodies, self._send = kind.open(hub, f"soak-{kind.name}")

    def run(self) -> None:
        """Send until told to stop; the last request until it is acknowledged, too."""
        begun = time.monotonic()
        try:
            while not self._done.is_set():
                body = self._bodies(self.sent)
                while not self._is_acknowledged(body):
                    time.sleep(0.2)
                self.sent += BATCH
                self._done.wait(max(0.0, begun + self.sent / self._rate - time.monotonic()))
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    def _is_acknowledged(self, body: bytes) -> bool:
        try:
            done = self._send(body)
        except Unknown:
            self.unknown += 1
            return False
        self.again += not done
        return done


class Reader(threading.Thread):
    """Asks the JSON API one question after another and counts the answers by status."""

    def __init__(self, port: int, runs: list[str], pause_s: float, done: threading.Event) -> None:
        super().__init__(name="reader", daemon=True)
        self.statuses: Counter[int] = Counter()
        self._port, self._runs, self._pause_s, self._done = port, runs, pause_s, done
        self._begun = time.monotonic()

    def run(self) -> None:
        """Ask until told to stop."""
        dice = random.Random(5)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        for path in itertools.cycle(READS):
            if self._done.wait(self._pause_s):
                return
            latest = int((time.monotonic() - self._begun) * TRAINER_STEPS * 0.8)
            question = path.format(run=dice.choice(self._runs), step=dice.randint(0, max(latest, 1)))
            try:
                connection.request("GET", question)
                response = connection.getresponse()
                response.read()
                self.statuses[response.status] += 1
            except (OSError, http.client.HTTPException):
                connection.close()
                self.statuses[0] += 1


class Watcher(threading.Thread):
    """Follows the live stream and counts its events; comes back when it ends."""

    def __init__(self, port: int, query: str, done: threading.Event) -> None:
        super().__init__(name="watcher", daemon=True)
        self.events: Counter[str] = Counter()
        self._port, self._query, self._done = port, query, done

    def run(self) -> None:
        """Read events until told to stop."""
        while not self._done.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.request("GET", f"/api/live{self._query}")
                self._follow(connection.getresponse())
            except (OSError, http.client.HTTPException):
                self.events["broken off"] += 1
                time.sleep(0.5)
            finally:
                connection.close()

    def _follow(self, response: http.client.HTTPResponse) -> None:
        if response.status != 200:
            raise http.client.HTTPException(json.dumps(response.status))
        while not self._done.is_set() and (line := response.readline()):
            if line.startswith(b"event:"):
                self.events[line[6:].strip().decode()] += 1
