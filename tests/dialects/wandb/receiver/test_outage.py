"""A hub that is killed and started again while the real W&B client trains."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.dialects.wandb.receiver.conftest import KEY, points, sql, wait_state
from tests.hub.conftest import StartHub
from tests.hub.test_connections import wait_for
from tests.imports.clients import PYTHON

SCRIPT = """
import sys, wandb
new = {"x_file_stream_transmit_interval": 0.2, "x_file_stream_retry_wait_min_seconds": 0.2}
run = wandb.init(project="p", id="outage", settings=wandb.Settings(**new if wandb.__version__ > "0.19" else {}))
for line in sys.stdin:
    for i in range(int(line), int(line) + 50):
        run.log({"loss": i / 3})
run.finish()
"""


@pytest.mark.parametrize("line", os.environ.get("STEPSCOPE_TEST_WANDB_LINES", "0.31").split(","))
def test_a_killed_hub_loses_and_doubles_nothing(start_hub: StartHub, tmp_path: Path, line: str) -> None:
    """Values logged before and during outages, and while lines flow, are stored once, and the run finishes.

    STEPSCOPE_TEST_WANDB_LINES=0.31,0.18,0.15 tries older clients too, which send less often and wait longer.
    """
    python = PYTHON if line == "0.31" else PYTHON.parents[2] / f"clients-wandb-{line}" / "bin" / "python"
    if not python.exists():
        pytest.skip("wandb is not installed (make setup CI=true)")
    hub = start_hub()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WANDB_BASE_URL": hub.url, "WANDB_API_KEY": KEY}
    script = subprocess.Popen(
        [python, "-c", SCRIPT], cwd=tmp_path, env=env, stdin=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    )
    assert script.stdin is not None

    def log(first: int) -> None:
        assert script.stdin is not None
        script.stdin.write(f"{first}\n")
        script.stdin.flush()

    def has(least: int) -> bool:
        return hub.request("GET", "/api/runs/outage").status == 200 and len(points(hub, "outage")) >= least

    try:
        log(0)
        wait_for(lambda: has(50))
        hub.kill()
        log(50)
        hub.start()
        for first in range(100, 400, 50):
            log(first)
        wait_for(lambda: has(51))  # more lines are on their way, or journaled and not stored
        hub.kill()
        hub.start()
        log(400)
        script.stdin.close()
        assert script.wait(120) == 0
    finally:
        script.kill()
    wait_state(hub, "outage", "finished")
    assert points(hub, "outage") == {("loss", "", step): step / 3 for step in range(450)}
    joined = "FROM metrics AS m INNER JOIN series AS s ON s.series = m.series WHERE s.key = 'loss'"
    assert sql(hub, f"SELECT count() {joined}") == [[450]]
