"""Deleting runs with the real W&B client."""

import json
from pathlib import Path

from stepscope.hub.security.tokens import Tokens
from tests.dialects.wandb.receiver.conftest import points, run_wandb, wait_state
from tests.hub.conftest import RunningHub, StartHub

DELETE = """
import json
from pathlib import Path
import wandb


def refused(call):
    try:
        call()
    except Exception as error:
        return str(error)


found = {}
run = wandb.init(project="gone", id="r1")
run.log({"loss": 1.0, "old": 1.0})
Path("data.txt").write_text("data")
artifact = wandb.Artifact("model", "model")
artifact.add_file("data.txt")
run.log_artifact(artifact)
artifact.wait()
found["running"] = refused(lambda: wandb.Api().run("gone/r1").delete())
run.finish()
found["listed"] = [each.id for each in wandb.Api().runs("gone")]
wandb.Api().run("gone/r1").delete(delete_artifacts=True)
found["left"] = [each.id for each in wandb.Api().runs("gone")]
found["run"] = refused(lambda: wandb.Api().run("gone/r1"))
found["artifact"] = refused(lambda: wandb.Api().artifact("gone/model:latest"))
run = wandb.init(project="gone", id="r1")
run.log({"loss": 2.0})
run.finish()
found["again"] = [row["loss"] for row in wandb.Api().run("gone/r1").scan_history()]
print("FOUND", json.dumps(found))
"""
WITHOUT_ADMIN = """
import wandb

run = wandb.init(project="kept", id="r2")
run.log({"loss": 1.0})
run.finish()
try:
    wandb.Api().run("kept/r2").delete()
except Exception as error:
    print("REFUSED", error)
"""


def test_a_run_is_deleted(hub: RunningHub, tmp_path: Path) -> None:
    """`run.delete()` deletes a run that has ended, with its artifacts if so asked; its id can be used again."""
    output = run_wandb(hub, tmp_path, DELETE)
    found = json.loads(output.partition("FOUND ")[2])
    assert "the run r1 is running: end it before you delete it" in found["running"]
    assert (found["listed"], found["left"]) == (["r1"], [])
    assert "Could not find run" in found["run"]
    assert "not found" in found["artifact"]
    assert found["again"] == [2.0]
    wait_state(hub, "r1", "finished")
    assert points(hub, "r1") == {("loss", "", 0): 2.0}


def test_a_key_without_admin(start_hub: StartHub, tmp_path: Path) -> None:
    """Deleting needs the scope `admin`, as `stepscope delete` does; the client prints what is missing."""
    home = tmp_path / "home"
    (home / "hub").mkdir(parents=True)
    token = Tokens(home / "hub" / "tokens.json").create(["ingest", "read"])[1]
    hub = start_hub(home=home)
    output = run_wandb(hub, tmp_path / "client", WITHOUT_ADMIN, key=token)
    assert "needs a key with the scope 'admin'" in output.partition("REFUSED ")[2]
    answer = hub.request("GET", "/api/runs/r2", headers={"authorization": f"Bearer {token}"})
    assert answer.json()["status"] == "finished"
