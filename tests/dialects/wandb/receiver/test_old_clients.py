"""Older lines of the W&B client: what they write arrives and can be read back with them."""

import json
import sys
from pathlib import Path

import pytest

from tests.dialects.wandb.receiver.conftest import points, run_wandb, wait_state
from tests.hub.conftest import RunningHub

SCRIPT = """
import json, math
from pathlib import Path
import wandb

run = wandb.init(project="old", id=ID, name="a name", config={"lr": 3e-4}, tags=["one"])
for i in range(20):
    run.log({"loss": 1 / (i + 1), "nan": math.nan, "low": -math.inf, "nest": {"a": i}})
Path("data.txt").write_text("text")
artifact = wandb.Artifact("model-" + ID, "model")
artifact.add_file("data.txt")
run.log_artifact(artifact, aliases=["best"]).wait()
assert Path(run.use_artifact(f"model-{ID}:best").download(), "data.txt").read_text() == "text"
run.alert("hot", "text")
run.finish()
run = wandb.init(project="old", id=ID, resume="must")
assert run.step == 20, run.step
run.log({"loss": 99.0})
run.finish()
run = wandb.Api().run("old/" + ID)
found = {"history": [(row["_step"], row["loss"]) for row in run.scan_history()], "state": run.state}
found["paged"] = [row["_step"] for row in run.scan_history(keys=["loss", "_step"], page_size=5)]
found |= {"config": run.config, "files": [file.name for file in run.files()]}
found["artifact"] = [file.name for file in wandb.Api().artifact(f"old/model-{ID}:best").files()]
print("FOUND", json.dumps(found))
"""


@pytest.mark.parametrize("line", ["0.18", "0.15"])
def test_an_older_client_writes_and_reads(hub: RunningHub, tmp_path: Path, line: str) -> None:
    """Values, configuration, artifacts, resuming and reading back work as with the newest client."""
    run = f"old-{line.replace('.', '-')}"
    python = Path(sys.prefix) / f"clients-wandb-{line}" / "bin" / "python"
    output = run_wandb(hub, tmp_path, f"ID = {run!r}\n{SCRIPT}", python=python)
    found = json.loads(next(each for each in output.splitlines() if each.startswith("FOUND "))[6:])
    expected = [[step, 1 / (step + 1)] for step in range(20)] + [[20, 99.0]]
    assert (found["history"], found["state"], found["config"]) == (expected, "finished", {"lr": 3e-4})
    assert found["paged"] == list(range(21))
    assert "config.yaml" in found["files"]
    assert found["artifact"] == ["data.txt"]
    described = wait_state(hub, run, "finished")
    assert (described["name"], described["attempts"], described["tags"]) == ("a name", 2, {"one": True})
    values = points(hub, run)
    assert (values["nan", "", 3], values["low", "", 3], values["nest/a", "", 3]) == ("nan", "-inf", 3)
