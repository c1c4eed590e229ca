"""A run that a hub has from its own client is not imported from the client's files beside it."""

import json
from pathlib import Path

import pytest

from stepscope.cli.main import main
from tests.hub.conftest import RunningHub
from tests.imports.clients import run_client
from tests.waiting import wait_until

WANDB = """
import wandb
run = wandb.init(project="twice", id="both", name="named")
for step in range(20):
    run.log({"loss": step / 4})
run.finish()
"""


def test_a_run_that_was_sent_is_not_imported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """W&B's client keeps a file of what it sends: the hub has each value once, and the command says why."""
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    hub = RunningHub(home).start()
    try:
        run_client("wandb", WANDB, work, WANDB_BASE_URL=hub.url, WANDB_API_KEY="local-" + "0" * 40)
        wait_until(lambda: hub.request("GET", "/api/runs/both").status == 200)
        assert main(["import", str(work / "wandb"), "--home", str(home), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["runs"], list(said["left_out"].values())) == ([], [1])
        assert "from their own client" in next(iter(said["left_out"]))
    finally:
        hub.stop()
    assert main(["import", str(work / "wandb"), "--home", str(tmp_path / "other"), "--json"]) == 0
    assert [each["run"] for each in json.loads(capsys.readouterr().out)["runs"]] == ["both"]
