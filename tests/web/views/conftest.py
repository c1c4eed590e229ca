"""A hub that holds what `recorded.py` makes, for all tests of these views."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import RunningHub
from tests.shared import shared
from tests.waiting import wait_until
from tests.web.views import recorded


@dataclass
class World:
    """The hub, and the id of the large trace in it."""

    hub: RunningHub
    big: str

    def send(self, batches: list[Any]) -> None:
        """Send batches by the native protocol, and wait until their runs can be asked for."""
        answer = self.hub.post("/v1/stepscope", recorded.native(batches), "application/octet-stream")
        assert answer.status == 200, answer.body
        for run in {batch.writer.run for batch in batches}:
            wait_until(lambda run=run: self.hub.request("GET", f"/api/runs/{run}").status == 200)

    def ask(self, path: str) -> Any:
        """Ask the API."""
        answer = self.hub.request("GET", path)
        assert answer.status == 200, answer.body
        return answer.json()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The hub with an RL run, a service and a trace of 100,000 spans, all stored."""
    return shared("views", lambda: _world(tmp_path_factory.mktemp("views") / "home"))


@contextmanager
def _world(home: Path) -> Iterator[World]:
    hub = RunningHub(home).start()
    made = World(hub, "")
    now = time.time_ns()
    made.send([*recorded.rl_run(now), *recorded.service_run(now)])
    answer = hub.post(f"/api/spans/import?run={recorded.BIG}", recorded.big_trace(), "application/json")
    assert answer.status == 200, answer.body
    brought = json.loads(answer.body)
    made.big = brought["traces"][0]
    hub.wait_stored("import", brought["spans"], 60)
    hub.wait_stored("native", 1)
    yield made
    with suppress(Exception):
        hub.kill()
