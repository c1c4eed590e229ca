"""Artifacts hold what was said of them; their files are not kept."""

import os
from collections.abc import Callable
from typing import Any

import pytest

import stepscope.compat.wandb as wandb


@pytest.mark.parametrize("by_run", [True, False])
def test_what_a_script_does_with_one(by_run: bool, ignored: Callable[[], set[str]]) -> None:
    """It is made, filled, logged and waited for, used and downloaded; both are counted."""
    run = wandb.init()
    who: Any = run if by_run else wandb
    artifact = wandb.Artifact("model", type="model", metadata={"epoch": 3})
    artifact.add(wandb.Table(), "table")
    artifact.add_file("model.pt", name="m")
    with artifact.new_file("notes.txt") as file:
        file.write("hello")
    with artifact.new_file("raw", mode="wb") as file:
        file.write(b"hello")
    artifact.metadata["loss"] = 0.1
    assert (artifact.name, artifact.type, artifact.metadata) == ("model", "model", {"epoch": 3, "loss": 0.1})
    assert who.log_artifact(artifact, aliases=["best"]).wait() is artifact
    assert who.log_artifact("out/model.pt", type="model").wait().name == "model.pt"
    used = who.use_artifact("model:latest")
    assert os.path.join(used.download(), "m") == "artifacts/model:latest/m"
    assert used.download(root="here") == "here"
    assert who.use_artifact(artifact) is artifact
    assert ignored() == {"log_artifact", "use_artifact"}
