"""From a trainer to a hub on another machine: each record stored once, though shippers and hub are killed."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.conftest import PACKAGE, Python
from tests.hub.conftest import StartHub, start_hub, stored_columns

__all__ = ["start_hub"]

COUNT = 60_000
TRAIN = """
    import sys, stepscope
    run = stepscope.init(capture_logs=False, otel=False, shipper="none")
    for step in range(int(sys.argv[1])):
        run.log({"loss": float(step)}, step=step, category="trainer")
    run.finish()
"""


def test_once_whoever_is_killed(
    python: Python, home: Path, tmp_path: Path, start_hub: StartHub, until: Callable[..., None]
) -> None:
    """Four shippers and two hubs die at random moments; the store ends with every record once."""
    python(TRAIN, COUNT)
    hub = start_hub(home=tmp_path / "hub")
    chance = random.Random(5)
    sink = json.dumps([{"hub": {"url": hub.url}}])
    line = [sys.executable, "-m", "stepscope", "ship", "--home", str(home), "--sink", sink]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    cursors = home / "cursors"
    for life in range(4):
        shipper = subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL)
        if life == 0:
            until(cursors.exists)
        else:
            time.sleep(0.3 + chance.random() * 0.2)
        if life in (1, 2):
            hub.kill()
            hub.start()
        shipper.kill()
        shipper.wait()
    done = subprocess.run([*line, "--json"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["delivered"] is True
    until(lambda: not hub.health()["lag"]["seconds"])
    assert hub.stop() == 0
    wanted = "SELECT series FROM series WHERE key = 'trainer/loss'"
    sql = f"SELECT count() AS n, uniqExact(step) AS steps FROM metrics WHERE series IN ({wanted})"
    found = stored_columns(hub.home, sql)
    assert (int(found["n"][0]), int(found["steps"][0])) == (COUNT, COUNT)


def test_a_hub_takes_what_is_meant_for_a_tinker_service(
    python: Python, home: Path, tmp_path: Path, start_hub: StartHub
) -> None:
    """Events for a Tinker service at a hub's address are delivered: the hub has them, nothing waits or is refused."""
    hub = start_hub(home=tmp_path / "hub")
    code = """
        import stepscope
        from stepscope.training.events.telemetry import Telemetry
        telemetry = Telemetry("s1")
        telemetry.log("request.start", event_data={"model_id": "m1"})
        left = stepscope.finish(wait=300)
        print(bool(left), left.undelivered > 0)
    """
    done = python(code, env={"TINKER_BASE_URL": hub.url, "STEPSCOPE_SHIPPER": "thread"})
    assert (done.returncode, done.stdout.strip()) == (0, "True False"), done.stderr
    assert not [path for path in (home / "quarantine").rglob("*") if path.is_file()]
    hub.wait_stored("tinker", 1)
    assert "request.start" in json.dumps(hub.request("GET", "/api/logs?limit=100").json())
    assert hub.stop() == 0
