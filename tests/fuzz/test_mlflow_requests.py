"""Noise at MLflow's API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Compared
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.fuzz.mlflow_requests import Noise
from tests.hub.conftest import RunningHub
from tests.repeats import repeats

REQUESTS = repeats(300, 10_000)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub that dies with the test."""
    pytest.importorskip("tests.chdb")
    made = RunningHub(tmp_path / "home").start()
    yield made
    made.kill()


def test_noise_is_refused_and_blocks_nothing(hub: RunningHub, compared: Compared) -> None:
    """No request is answered with a 5xx, the hub's memory is bounded, and what is good after it is taken."""
    server = RestCalls(hub.port)
    runs = [server.create_run(run_name=f"r{at}") for at in range(3)]
    noise = Noise(7, runs)
    memory = 0
    compared(REQUESTS)
    for number in range(REQUESTS):
        status = noise.send(server)
        assert status < 500, (number, status)
        if number == REQUESTS // 3:
            memory = resident(hub.process.pid if hub.process else 0)
    assert resident(hub.process.pid if hub.process else 0) < memory * 1.5 + 50_000
    fresh = server.create_run()
    assert server.post("runs/log-metric", {"run_id": fresh, "key": "k", "value": 1, "timestamp": 1}).status == 200
    found = server.get("metrics/get-history", run_id=fresh, metric_key="k").body
    assert found == {"metrics": [{"key": "k", "value": 1.0, "timestamp": 1, "step": 0}]}


def resident(pid: int) -> int:
    """Kilobytes of a process in memory."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
