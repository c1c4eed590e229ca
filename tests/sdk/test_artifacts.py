"""Artifacts: recorded by reference or copied, measured later, and used by name, path or object."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal.blobs import find_blob
from stepscope.model import names
from stepscope.model.records import Event
from stepscope.sdk import checkpoints
from stepscope.sdk.media_values import writer
from tests.sdk.conftest import Records
from tests.waiting import wait_until


def events(records: Records, name: str) -> list[dict[str, Any]]:
    """The attributes of the events of one name."""
    return [each.attrs for each in records(Event) if isinstance(each, Event) and each.name == name]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waits for its artifacts, however slow the machine is."""
    monkeypatch.setattr(checkpoints, "LEAVE_SECONDS", 300.0)
    monkeypatch.setattr(checkpoints, "COPY_SECONDS", 300.0)


def test_by_reference(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """A file is named, measured and not copied; a reference is taken as it is; both at the step."""
    path = tmp_path / "model.pt"
    path.write_bytes(b"weights")
    with run.step(7):
        made = run.artifact(path, kind="model", epoch=3)
    run.artifact("s3://bucket/data", name="dataset", kind="data", step=9)
    run.finish(timeout=600)
    first, second = events(records, names.EVENT_ARTIFACT)
    assert made is not None
    assert first == {
        "id": made.id,
        "name": "model.pt",
        "kind": "model",
        "path": str(path),
        "step": 7,
        "epoch": 3,
    }
    assert (second["name"], second["kind"], second["path"], second["step"]) == (
        "dataset",
        "data",
        "s3://bucket/data",
        9,
    )
    (measured,) = events(records, names.EVENT_ARTIFACT_MEASURED)
    assert (measured["id"], measured["bytes"], measured["files"], measured["complete"]) == (made.id, 7, 1, True)
    assert measured["content"]
    assert events(records, names.EVENT_MEDIA) == []


def test_copied(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """The files of a folder, and files by name, are kept beside the journal under their names in the artifact."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    whole = run.artifact(folder, copy=True)
    some = run.artifact({"one.txt": folder / "a.txt", "all": folder, "far": "s3://x"}, "picked", copy=True)
    run.finish(timeout=600)
    assert whole is not None
    assert some is not None
    found: dict[str, dict[str, str]] = {whole.id: {}, some.id: {}}
    for each in events(records, names.EVENT_MEDIA):
        path = find_blob(run.home, run.id, each["sha256"])
        assert path is not None
        found[each["artifact"]][each["name"]] = path.read_text()
    assert found[whole.id] == {"a.txt": "a", "sub/b.txt": "b"}
    assert found[some.id] == {"one.txt": "a", "all/a.txt": "a", "all/sub/b.txt": "b"}
    assert all(each["copied"] for each in events(records, names.EVENT_ARTIFACT))
    measured = events(records, names.EVENT_ARTIFACT_MEASURED)
    assert [(each["copied_files"], each["failed_files"]) for each in measured] == [(2, 0), (3, 0)]


def test_many_files_leave_room_for_other_media(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """More files than can wait at a time are all copied, and an image that is logged meanwhile is kept."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(600):
            (tmp_path / name / str(number)).write_text(name)
        run.artifact(tmp_path / name, copy=True)
    run.log({"image": stepscope.File(b"pixels", name="image.png")}, step=0)
    run.finish(timeout=600)
    media = events(records, names.EVENT_MEDIA)
    assert len([each for each in media if "artifact" in each]) == 1200
    assert [each["key"] for each in media if "artifact" not in each] == ["image"]
    for name in ("one", "two"):
        assert sorted(each.get("index", 0) for each in media if each["key"] == name) == list(range(600))
    measured = events(records, names.EVENT_ARTIFACT_MEASURED)
    assert [(each["copied_files"], each["failed_files"]) for each in measured] == [(600, 0)] * 2


def test_files_that_cannot_be_copied_are_counted(
    run: stepscope.Run, records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement tells how many files were copied, and how many were too large or too many."""
    monkeypatch.setattr(writer, "MAX_FILE", 4)
    monkeypatch.setattr(checkpoints, "MAX_COPIED", 3)
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(5):
        (folder / str(number)).write_text("small")
    (tmp_path / "a").write_text("a")
    run.artifact(folder, copy=True)
    run.artifact({"a": tmp_path / "a", "b": folder / "0"}, "picked", copy=True)
    run.finish(timeout=600)
    measured = events(records, names.EVENT_ARTIFACT_MEASURED)
    assert [(each["files"], each["copied_files"], each["failed_files"]) for each in measured] == [(5, 0, 5), (2, 1, 1)]


def test_without_files(run: stepscope.Run, records: Records) -> None:
    """An artifact that is no more than what is said of it is recorded, and has nothing to measure."""
    made = run.artifact({}, "scores", "metadata", copy=True, accuracy=0.5)
    run.finish(timeout=600)
    assert made is not None
    (found,) = events(records, names.EVENT_ARTIFACT)
    assert (found["name"], found["accuracy"]) == ("scores", 0.5)
    assert events(records, names.EVENT_ARTIFACT_MEASURED) == []
    assert not [key for key in run.outcomes.snapshot() if key.startswith(("rejected", "dropped"))]


def test_used(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """What is used is noted by its id, its name, or its path."""
    made = run.artifact(tmp_path, "folder")
    run.use(made)
    run.use("model:v2", kind="model")
    run.use(tmp_path / "x")
    run.use("s3://bucket/data")
    run.finish()
    assert made is not None
    assert events(records, names.EVENT_ARTIFACT_USED) == [
        {"artifact": made.id, "name": "folder", "path": str(tmp_path)},
        {"name": "model:v2", "kind": "model"},
        {"path": str(tmp_path / "x")},
        {"path": "s3://bucket/data"},
    ]


def test_nothing_raises(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """Paths that are none, that do not exist, and objects that raise are counted or recorded as incomplete."""

    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no")

    run.artifact(tmp_path / "none", copy=True)
    run.artifact(None)
    assert run.artifact(Hostile()) is None
    run.artifact(tmp_path / "no", step="x")  # type: ignore[arg-type]
    run.use(object())
    run.finish(timeout=600)
    assert {each["complete"] for each in events(records, names.EVENT_ARTIFACT_MEASURED)} == {False}
    assert sum(count for key, count in run.outcomes.snapshot().items() if key.startswith("rejected")) == 3


def test_the_end_does_not_wait_for_a_slow_disk(
    run: stepscope.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at by then is counted, and nothing is recorded after the end."""
    (tmp_path / "a").write_text("a")
    goes_on = threading.Event()

    def slow(path: str, **how: Any) -> Any:
        goes_on.wait(300)
        return checkpoints.Measured(0, 0, "", "", complete=False)

    monkeypatch.setattr(checkpoints, "measure", slow)
    run.artifact(tmp_path / "a", copy=True)
    begun = time.monotonic()
    run.finish(timeout=0.2)
    assert time.monotonic() - begun < 100
    goes_on.set()
    wait_until(lambda: "dropped/event/artifact not copied in time" in run.outcomes.snapshot())
