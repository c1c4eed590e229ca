"""Artifacts of the shim: their files are copied beside the journal when they are logged, and can be used again."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim import artifacts
from stepscope.journal.blobs import find_blob
from stepscope.model import names
from stepscope.model.records import Event
from stepscope.sdk import checkpoints
from tests.dialects.wandb.shim.conftest import Read
from tests.waiting import wait_until


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
    used_ids = [each.attrs["artifact"] for each in read(Event) if each.name == names.EVENT_ARTIFACT_USED]
    assert [found[each]["name"] for each in used_ids] == ["model"]
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


def test_versions_are_left_to_the_hub(read: Read) -> None:
    """What this process logged is used by its id; a version is used by name, as the hub may count others before."""
    with wandb.init(id="one") as run:
        made = [run.log_artifact(wandb.Artifact("model", "model"), aliases=[alias]) for alias in ("best", "last")]
        assert [each.version for each in made] == ["v0", "v1"]
        assert [run.use_artifact(f"model:{alias}") for alias in ("best", "latest")] == made
        assert run.use_artifact("model:v0") not in made
    uses = [each.attrs for each in read(Event, "one") if each.name == names.EVENT_ARTIFACT_USED]
    assert [each.get("artifact") for each in uses] == [made[0].made.id, made[1].made.id, None]
    assert uses[2]["name"] == "model:v0"


def test_large_files_are_not_copied_by_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the room is linked, one that is too large to be recorded stays where it is, as on a full disk."""
    monkeypatch.setattr(artifacts, "MAX_STAGED", 5)
    monkeypatch.setattr(artifacts, "MAX_LINKED", 9)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    artifact = wandb.Artifact("model", type="model")
    for name in ("small", "larger", "much larger"):
        (tmp_path / name).write_text(name)
        artifact.add_file(tmp_path / name)
    assert [(tmp_path / name).stat().st_nlink for name in ("small", "larger", "much larger")] == [1, 2, 1]
    (tmp_path / "small").write_text("new")
    folder = artifact.download(tmp_path / "here")
    assert [Path(folder, name).read_text() for name in ("small", "larger", "much larger")] == [
        *("small", "larger", "much larger")
    ]

    def full(*arguments: Any, **named: Any) -> Any:
        raise OSError("No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    unlucky = wandb.Artifact("model", type="model")
    unlucky.add_file(tmp_path / "small")
    unlucky.add(wandb.Table(columns=["a"], data=[[1]]), "table")
    with unlucky.new_file("notes") as file:
        file.write("hello")
    assert Path(unlucky.download(tmp_path / "there"), "small").read_text() == "new"


def test_folders_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Read) -> None:
    """Only the newest of a name keeps its files for another use; the others are removed once they are copied."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(checkpoints, "COPY_SECONDS", 300.0)
    (tmp_path / "model.pt").write_text("weights")
    with stepscope.init(exit_timeout=600), wandb.init() as run:
        for _ in range(5):
            run.log_artifact(str(tmp_path / "model.pt"), "model", "model")
    wait_until(lambda: len(list(tmp_path.glob("stepscope-artifact-*"))) == 1)
    assert len([each for each in read(Event) if each.name == names.EVENT_MEDIA]) == 5
    artifacts._logged.clear()
    wait_until(lambda: not list(tmp_path.glob("stepscope-artifact-*")))


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
