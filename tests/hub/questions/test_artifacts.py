"""The artifacts of a run: versions by content, and who made and used what."""

from typing import Any

import pytest

from stepscope.hub.questions.checkpoints import artifacts
from stepscope.hub.service import Hub
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event
from tests.hub.questions.conftest import Get
from tests.hub.questions.test_checkpoints import S, store


def made(id: str, at: int, name: str = "model", **attrs: Any) -> Event:
    """The record of an artifact."""
    return Event(at * S, at, None, None, None, 9, names.EVENT_ARTIFACT, {"id": id, "name": name, **attrs})


def sized(id: str, at: int, content: str) -> Event:
    """Its measurement."""
    about = {
        "copied_files": 1,
        "failed_files": 1,
        "id": id,
        "bytes": 10,
        "files": 2,
        "manifest": f"m{id}",
        "content": content,
        "complete": True,
    }
    return Event(at * S, at, None, None, None, 9, names.EVENT_ARTIFACT_MEASURED, about)


def used(at: int, **attrs: Any) -> Event:
    """The record of a use."""
    return Event(at * S, at, None, None, None, 9, names.EVENT_ARTIFACT_USED, attrs)


def test_versions_and_lineage(hub: Hub, get: Get) -> None:
    """Equal content is one version; uses are resolved at their time, by id, name, alias and path."""
    first = [
        made("a", 1, aliases=["best"], kind="model"),
        sized("a", 2, "x"),
        made("b", 3, path="/m"),
        sized("b", 4, "y"),
    ]
    store(hub, "trains", [*first, made("c", 5, "data", path="s3://d", rows=3), made("d", 20), sized("d", 21, "z")])
    uses = [
        used(6, name="model:latest"),
        used(7, name="team/project/model:best"),
        used(8, artifact="c"),
        used(9, path="/m"),
        used(10, name="model:v9"),
        used(11, name="nothing"),
    ]
    store(hub, "uses", [*uses, made("e", 15), sized("e", 15, "x")])
    found = get("/api/runs/trains/artifacts")
    assert found["used"] == []
    by_name = {f"{each['name']}:{each['version']}": each for each in found["made"]}
    assert list(by_name) == ["model:v2", "data:v0", "model:v1", "model:v0"]
    assert {name: each["used_by"] for name, each in by_name.items()} == {
        "model:v2": [], "data:v0": ["uses"], "model:v1": ["uses"], "model:v0": ["uses"],
    }  # fmt: skip
    one = by_name["model:v0"]
    assert (one["kind"], one["aliases"]) == ("model", ["best"])
    assert (one["bytes"], one["files"], one["complete"]) == (10, 2, True)
    assert (one["copied_files"], one["failed_files"]) == (1, 1)
    assert by_name["data:v0"]["copied_files"] is None
    assert (by_name["data:v0"]["attrs"], by_name["data:v0"]["bytes"]) == ({"rows": 3}, None)
    other = get("/api/runs/uses/artifacts")
    assert [(each["name"], each["version"], each["made_by"]) for each in reversed(other["used"])] == [
        ("model", "v1", "trains"),
        ("model", "v0", "trains"),
        ("data", "v0", "trains"),
        ("model", "v1", "trains"),
        ("model:v9", "", None),
        ("nothing", "", None),
    ]
    assert [(each["name"], each["version"]) for each in other["made"]] == [("model", "v0")]
    assert get("/api/runs/none/artifacts", expect=404)["error"]["code"] == "not_found"


def test_a_run_without_any(hub: Hub, get: Get) -> None:
    """Nothing is listed."""
    store(hub, "bare", [])
    assert get("/api/runs/bare/artifacts") == {"made": [], "used": [], "more": False}


def test_another_project_does_not_renumber(hub: Hub, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the artifacts of the project, and of no other, the oldest are read; that there are more is said."""

    def write(run: str, project: str, records: list[Event]) -> None:
        hub.store.write(Batch(Writer(id=run, run=run, project=project, wall_ns=S), 1, list(records)))

    write("ours", "few", [made("o1", 50), sized("o1", 50, "a"), made("o2", 51), sized("o2", 51, "b")])
    write("theirs", "many", [made(f"t{at}", 60 + at) for at in range(6)])
    monkeypatch.setattr(artifacts, "MAX_EVENTS", 4)
    ours = get("/api/runs/ours/artifacts")
    assert ([each["version"] for each in ours["made"]], ours["more"]) == (["v1", "v0"], False)
    theirs = get("/api/runs/theirs/artifacts")
    assert ([each["version"] for each in theirs["made"]], theirs["more"]) == (["v3", "v2", "v1", "v0"], True)
