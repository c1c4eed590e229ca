"""Artifacts: recorded by reference or copied, measured later, and used by name, path or object."""

import threading
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal.blobs import find_blob
from stepscope.model import names
from stepscope.model.records import Event
from stepscope.sdk import checkpoints
from tests.sdk.conftest import Records
from tests.waiting import wait_until


def events(records: Records, name: str) -> list[dict[str, Any]]:
    """The attributes of the events of one name."""
    return [each.attrs for each in records(Event) if isinstance(each, Event) and each.name == name]


def test_by_reference(run: stepscope.Run, records: Records, tmp_path: Path) -> None:
    """A file is named, measured and not copied; a reference is taken as it is; both at the step."""
    path = tmp_path / "model.pt"
    path.write_bytes(b"weights")
    with run.step(7):
        made = run.artifact(path, kind="model", epoch=3)
    run.artifact("s3://bucket/data", name="dataset", kind="data", step=9)
    run.finish()
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
    run.finish()
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
    run.finish()
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
    monkeypatch.setattr(checkpoints, "COPY_SECONDS", 0.01)
    run.artifact(tmp_path / "a", copy=True)
    run.finish()
    goes_on.set()
    wait_until(lambda: "dropped/event/artifact not copied in time" in run.outcomes.snapshot())
