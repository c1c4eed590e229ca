"""An alias that was on its way from one version to another when the hub was killed."""

from pathlib import Path
from typing import Any

import msgspec

from stepscope.dialects.wandb.receiver.artifacts import COMMITTED, Artifact, Artifacts
from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRuns


def stored(runs: TrackedRuns, number: int, updated: int, aliases: list[str], collection: str = "model") -> None:
    """Write a committed version as a hub leaves it on disk."""
    artifact = Artifact(
        project="p", id=f"{collection}{number}", collection=collection, type="model", digest=f"d{number}",
        created=number, updated=updated, version=number, aliases=aliases, state=COMMITTED,
    )  # fmt: skip
    folder = runs.make(runs.folder("p", "artifacts", artifact.id))
    (folder / "artifact.json").write_bytes(msgspec.json.encode(artifact))


def test_the_version_that_got_an_alias_last_has_it(tmp_path: Path) -> None:
    """Both had it on disk; an alias may also move to an older version, and other collections have their own."""
    unused: Any = None
    runs = TrackedRuns(tmp_path, unused, unused)
    stored(runs, 0, 50, ["best", "first"])
    stored(runs, 1, 20, ["best", "latest"])
    stored(runs, 2, 40, ["latest"])
    stored(runs, 3, 10, ["best", "latest"], collection="data")
    found = {each.id: each.aliases for each in Artifacts(runs).committed("p")}
    assert found == {"model0": ["best", "first"], "model1": [], "model2": ["latest"], "data3": ["best", "latest"]}
