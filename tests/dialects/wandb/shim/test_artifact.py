"""Artifacts of the shim: their files are copied beside the journal when they are logged, and can be used again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.journal.blobs import find_blob
from stepscope.model import names
from stepscope.model.records import Event
from tests.dialects.wandb.shim.conftest import Read


@pytest.mark.parametrize("by_run", [True, False])
def test_what_a_script_does_with_one(
    by_run: bool, ignored: Callable[[], set[str]], read: Read, place: Path, tmp_path: Path
) -> None:
    """It is made, filled, logged, linked, used and downloaded; its files are those of the moment they were added."""
    (tmp_path / "out").mkdir()
    model = tmp_path / "out" / "model.pt"
    model.write_text("first")
    run = wandb.init()
    who: Any = run if by_run else wandb
    artifact = wandb.Artifact("model", type="model", metadata={"epoch": 3})
    artifact.add(wandb.Table(columns=["a"], data=[[1]]), "table")
    artifact.add_file(str(model), name="m")
    artifact.add_reference("s3://bucket/data", name="far")
    with artifact.new_file("sub/notes.txt") as file:
        file.write("hello")
    model.write_text("second")
    assert who.log_artifact(artifact, aliases=["best"]).wait() is artifact
    assert who.log_artifact(str(model), type="model").wait().name == "model.pt"
    artifact.link("team/registry/zoo", aliases=["prod"])
    used = who.use_artifact("model:best")
    assert used is artifact
    folder = used.download()
    assert folder == "artifacts/model:v0"
    assert Path(folder, "m").read_text() == "first"
    assert used.download(root="here") == "here"
    assert ignored() == set()
    inner = stepscope.current_run()
    assert inner is not None
    id = inner.id
    wandb.finish()
    found = {each.attrs["id"]: each.attrs for each in read(Event) if each.name == names.EVENT_ARTIFACT}
    files: dict[str, dict[str, str]] = {}
    for each in read(Event):
        if each.name == names.EVENT_MEDIA:
            path = find_blob(place, id, each.attrs["sha256"])
            assert path is not None
            of_name = files.setdefault(found[each.attrs["artifact"]]["name"], {})
            of_name[each.attrs["name"]] = path.read_text()
    first = {"m": "first", "sub/notes.txt": "hello", "table.table.json": '{"columns": ["a"], "data": [[1]]}'}
    assert files == {"model": first, "model.pt": {"model.pt": "second"}, "zoo": first}
    assert [each.attrs["name"] for each in read(Event) if each.name == names.EVENT_ARTIFACT_USED] == ["model:v0"]
    metadata = [each for each in found.values() if each["name"] == "model"]
    assert (metadata[0]["metadata"], metadata[0]["aliases"], metadata[0]["kind"]) == ({"epoch": 3}, ["best"], "model")


def test_models_and_saved_files(read: Read, tmp_path: Path) -> None:
    """`log_model`, `use_model`, `link_model` and `save` record files."""
    model = tmp_path / "model.pt"
    model.write_text("weights")
    with wandb.init(id="one") as run:
        run.log_model(str(model), "net")
        assert Path(run.use_model("net:latest")).read_text() == "weights"
        run.link_model(str(model), "zoo", "other")
        assert run.save(str(tmp_path / "*.pt")) == [str(model)]
    made = [each.attrs["name"] for each in read(Event, "one") if each.name == names.EVENT_ARTIFACT]
    assert made == ["net", "other", "zoo"]
    media = [
        each.attrs for each in read(Event, "one") if each.name == names.EVENT_MEDIA and "artifact" not in each.attrs
    ]
    assert [(each["key"], each["name"]) for each in media] == [("files/model.pt", "model.pt")]


def test_what_another_process_logged(ignored: Callable[[], set[str]]) -> None:
    """It is noted as used, has no files here, and that is counted; files that do not exist are refused as by wandb."""
    wandb.init()
    found = wandb.use_artifact("team/project/elsewhere:v3")
    assert (found.name, found.has_one_file) == ("elsewhere", False)
    assert ignored() == {"use_artifact of another process"}
    with pytest.raises(ValueError, match="not a file"):
        wandb.Artifact("a", type="b").add_file("none")


def test_sweeps_are_refused_in_words() -> None:
    """A script that would search is told with what it can."""
    for call in (wandb.sweep, wandb.agent):
        with pytest.raises(wandb.UsageError, match="Optuna"):
            call({"method": "random"})
