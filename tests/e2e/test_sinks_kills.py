"""Twenty trainers and their shippers die at random points: each record of their journals ends at every destination."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.model.records import Metric
from tests.conftest import PACKAGE, Start
from tests.e2e.test_sinks_delivery import shippers
from tests.hub.conftest import StartHub, start_hub, stored_columns
from tests.repeats import repeats
from tests.sinks.servers import running

pytest.importorskip("opentelemetry.proto")

__all__ = ["start_hub"]

LIVES = repeats(6, 20)
FAR = 1_000_000
"""The steps of a life begin so far after those of the one before."""
TRAIN = """
    import sys, time, stepscope
    run = stepscope.init(capture_logs=False, otel=False)
    step = int(sys.argv[1])
    while True:
        run.log({"loss": 0.5}, step=step, category="trainer")
        step += 1
        time.sleep(0.0003)
"""


def kill(pid: int) -> None:
    """Send SIGKILL; the process may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_kills_of_trainers_and_shippers(
    start: Start,
    home: Path,
    tmp_path: Path,
    start_hub: StartHub,
    until: Callable[..., None],
    records: Callable[..., list[Metric]],
) -> None:
    """The hub, which has a key to tell, has each record once; the OTLP server, which has none, at least once."""
    chance = random.Random(20)
    hub = start_hub(home=tmp_path / "hub")

    def lives() -> set[int]:
        return {(record.step or 0) // FAR for record in records(Metric) if record.category == "trainer"}

    with running() as otlp:
        setting = json.dumps([{"hub": {"url": hub.url}}, {"otlp": {"endpoint": otlp.url}}])
        for life in range(LIVES):
            trainer = start(TRAIN, life * FAR, env={"STEPSCOPE_SINKS": setting})
            until(lambda at=life: at in lives())
            until(lambda: shippers(home))
            time.sleep(chance.random() * 0.5)
            victims = [trainer.pid, *shippers(home)]
            chance.shuffle(victims)
            for pid in victims[: 1 + chance.randrange(len(victims))]:
                kill(pid)
                time.sleep(chance.random() * 0.05)
            kill(trainer.pid)
            trainer.process.wait()
        until(lambda: not shippers(home), seconds=60)
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "STEPSCOPE_SINKS": setting}
        line = [sys.executable, "-m", "stepscope", "ship", "--home", str(home), "--json"]
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["delivered"] is True
        written = Counter(record.step for record in records(Metric) if record.category == "trainer")
        assert lives() == set(range(LIVES))
        assert set(written.values()) == {1}
        assert set(otlp.steps()) == set(written)
    until(lambda: not hub.health()["lag"]["seconds"])
    assert hub.stop() == 0
    wanted = "SELECT series FROM series WHERE key = 'trainer/loss'"
    found = stored_columns(hub.home, f"SELECT step FROM metrics WHERE series IN ({wanted})")
    assert Counter(map(int, found["step"])) == written
