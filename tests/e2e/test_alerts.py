"""Alerts are sent once, with their reason: a real trainer, a real hub that is killed, a real server."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from tests.hub.conftest import PACKAGE, RunningHub
from tests.sinks.servers import Reply, Server
from tests.waiting import wait_until

TRAINER = """
import math, sys, stepscope
run = stepscope.init(project="gpt", name="baseline", probes=False, quiet=True)
step = 0
for line in sys.stdin:
    for value in line.split():
        run.log({"loss": float(value)}, step=step, category="trainer")
        step += 1
    run.flush()
    print("flushed", flush=True)
"""
RULES = """
rules:
  - {name: high loss, key: trainer/loss, when: '> 50', notify: [ops]}
notifiers:
  ops: {webhook: {url: 'URL/hook/S3CRET'}}
"""


class Trainer:
    """A training process that logs the losses it is sent."""

    def __init__(self, home: Path) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER],
            env={**kept, "PYTHONPATH": str(PACKAGE), "STEPSCOPE_HOME": str(home), "STEPSCOPE_RUN_ID": "r1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def log(self, *values: float) -> None:
        """Log losses, and wait until they are in the journal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*values, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "flushed\n"

    def end(self) -> None:
        """End it."""
        self.process.communicate(timeout=300)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that takes notifications."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def home(tmp_path: Path, server: Server) -> Path:
    """A home with rules."""
    made = tmp_path / "home"
    made.mkdir()
    (made / "alerts.yaml").write_text(RULES.replace("URL", server.url))
    return made


def states(hub: RunningHub) -> dict[str, Any]:
    """The alerts, by what they are about."""
    found = hub.request("GET", "/api/alerts/states").json()["alerts"]
    return {each["finding"] or each["rule"]: each for each in found}


def told(server: Server) -> list[tuple[str, str]]:
    """What the server received: status and rule or finding."""
    bodies = [json.loads(got.body) for got in server.received]
    return [(body["status"], each["finding"] or each["rule"]) for body in bodies for each in body["alerts"]]


def test_a_killed_hub_neither_forgets_nor_repeats(home: Path, server: Server) -> None:
    """An alert fires once, survives SIGKILL of the hub, and is resolved by the hub that comes next."""
    hub, trainer = RunningHub(home).start(), Trainer(home)
    trainer.log(1, 1, 90)
    wait_until(lambda: ("firing", "high loss") in told(server))
    wait_until(lambda: states(hub)["high loss"]["delivered"])
    before = states(hub)["high loss"]
    hub.kill()
    trainer.log(91)
    hub.start()
    wait_until(lambda: states(hub)["high loss"]["last_step"] == 3)
    after = states(hub)["high loss"]
    assert (after["id"], after["state"], after["count"]) == (before["id"], "firing", 1)
    trainer.log(1)
    wait_until(lambda: ("resolved", "high loss") in told(server))
    assert [each for each in told(server) if each[1] == "high loss"].count(("firing", "high loss")) == 1
    assert "S3CRET" not in hub.request("GET", "/api/alerts/rules").body.decode()
    trainer.end()
    assert hub.stop() == 0


def test_a_finding_is_pushed_and_a_dead_server_is_waited_for(home: Path, server: Server) -> None:
    """NaN is found, pushed with its severity, and delivered by retries when the server is away at first."""
    server.replies += [Reply(503), Reply(503)]
    hub, trainer = RunningHub(home).start(), Trainer(home)
    trainer.log(*(1 + 0.01 * (step % 3) for step in range(30)), math.nan, math.nan)
    wait_until(lambda: any(name == "not_finite" for _, name in told(server)))
    found = states(hub)["not_finite"]
    assert found["severity"] in ("ERROR", "FATAL")
    assert found["key"] == "trainer/loss"
    assert hub.request("GET", f"/api/alerts/states/{found['id']}").json()["snapshot"]["values"]["value"][-1] == "NaN"
    (ops,) = [each for each in hub.request("GET", "/api/alerts/rules").json()["notifiers"] if each["name"] == "ops"]
    assert ops["retried"] >= 1
    trainer.end()
    assert hub.stop() == 0
