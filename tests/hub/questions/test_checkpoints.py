"""The checkpoints of a run: with metrics at their steps, the best one, and what attempts loaded."""

import math
from typing import Any

from stepscope.hub.service import Hub
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.questions.conftest import Get

S = 10**9


def store(hub: Hub, run: str, records: list[Record], *, rank: int = 0, attempt: int = 1, **attrs: Any) -> None:
    """Store the records of a process."""
    writer = Writer(id=f"{run}-{rank}-{attempt}", run=run, project="p", rank=rank, attempt=attempt, wall_ns=S)
    hub.store.write(Batch(writer, 1, [Event(S, None, None, None, None, 9, names.EVENT_STARTED, attrs), *records]))


def saved(step: int | None, at: int, path: str = "", **attrs: Any) -> Event:
    """The record of a checkpoint."""
    about = {"id": f"{step}-{at}", "path": path or f"/ckpt/{step}", **({} if step is None else {"step": step}), **attrs}
    return Event(at * S, step, None, None, None, 9, names.EVENT_CHECKPOINT, about)


def sized(step: int, at: int, size: int) -> Event:
    """The measurement of a checkpoint."""
    about = {"id": f"{step}-{at}", "path": f"/ckpt/{step}", "step": step, "bytes": size, "files": 2, "manifest": "ab"}
    return Event((at + 1) * S, step, None, None, None, 9, names.EVENT_CHECKPOINT_MEASURED, {**about, "complete": True})


def values(step: int, loss: float, **more: float) -> Metric:
    """Metrics of the evaluation at a step."""
    return Metric(step * S, step, None, None, {"val/loss": loss, **more})


def test_the_best_checkpoint_is_found(hub: Hub, get: Get) -> None:
    """By the lowest loss, or the highest accuracy; a value of an earlier step is told with that step."""
    losses = {10: 3.0, 20: 1.0, 28: 2.0, 40: math.nan}
    for rank, shift in ((0, 0.0), (1, 0.5)):
        records: list[Record] = [values(step, loss + shift, accuracy=step / 100) for step, loss in losses.items()]
        records += [saved(step, step, seconds=1.5 + rank, kind="full") for step in (10, 20, 30, 40)]
        records += [sized(step, step, 100 * step + rank) for step in (10, 20, 30)]
        store(hub, "kept", [*records, saved(None, 50, "s3://b/last")], rank=rank)
    found = get("/api/runs/kept/checkpoints", best="val/loss")
    assert [each["step"] for each in found["checkpoints"]] == [None, 40, 30, 20, 10]
    by_step = {each["step"]: each for each in found["checkpoints"]}
    assert by_step[30]["values"]["val/loss"] == {"step": 28, "value": 2.25}
    assert by_step[40]["values"]["val/loss"] == {"step": 40, "value": "NaN"}
    assert by_step[None]["values"] == {}
    one = by_step[20]
    assert (one["bytes"], one["files"], one["seconds"], one["ranks"], one["complete"]) == (2001, 2, 2.5, 2, True)
    assert (one["attrs"], one["path"], by_step[40]["bytes"]) == ({"kind": "full"}, "/ckpt/20", None)
    best = found["best"]
    assert (best["step"], best["value"], best["higher"], best["id"]) == (20, 1.25, False, one["id"])
    best = get("/api/runs/kept/checkpoints", best="accuracy", key="val/loss")["best"]
    assert (best["step"], best["higher"]) == (40, True)
    few = get("/api/runs/kept/checkpoints", limit=2, key=["val/loss"])
    assert (len(few["checkpoints"]), few["total"], few["keys"]) == (2, 5, ["val/loss"])
    assert get("/api/runs/kept/checkpoints", expect=404, best="nothing")["error"]["code"] == "not_found"
    get("/api/runs/kept/checkpoints", expect=400, limit=201)


def test_attempts_and_what_they_loaded(hub: Hub, get: Get) -> None:
    """A checkpoint has the values of its own attempt; one that was loaded is named where it is of this run."""
    loaded = Event(35 * S, None, None, None, None, 9, names.EVENT_CHECKPOINT_LOADED, {"path": "/ckpt/10"})
    foreign = Event(36 * S, None, None, None, None, 9, names.EVENT_CHECKPOINT_LOADED, {"path": "/other", "step": 7})
    store(hub, "tried", [values(10, 1.0), values(20, 9.0), saved(10, 10), saved(20, 20)])
    store(hub, "tried", [loaded, foreign, values(20, 2.0), saved(20, 40), saved(30, 41)], attempt=2)
    found = get("/api/runs/tried/checkpoints")
    told = [(each["attempt"], each["step"], each["values"]["val/loss"]["value"]) for each in found["checkpoints"]]
    assert told == [(2, 30, 2.0), (2, 20, 2.0), (1, 20, 9.0), (1, 10, 1.0)]
    assert [(each["step"], each["checkpoint"]) for each in found["loaded"]] == [(7, None), (10, "10-10")]


def test_a_path_that_is_written_again_has_one_checkpoint_with_versions(hub: Hub, get: Get) -> None:
    """The newest version is there; older ones are replaced, never the best, and never push out what is there."""
    records: list[Record] = [values(step, abs(step - 3.0)) for step in range(1, 7)]
    records += [saved(step, step, "/ckpt/last") for step in range(1, 6)]
    store(hub, "again", [*records, saved(2, 2, "/ckpt/2"), saved(6, 6, "/ckpt/6")])
    found = get("/api/runs/again/checkpoints", best="val/loss")
    told = [(each["step"], each["path"], each["version"], each["replaced"]) for each in found["checkpoints"]]
    assert told[:2] == [(6, "/ckpt/6", 1, False), (5, "/ckpt/last", 5, False)]
    assert [each for each in told if each[1] == "/ckpt/last"][1:] == [
        (step, "/ckpt/last", step, True) for step in (4, 3, 2, 1)
    ]
    assert (found["total"], found["replaced"]) == (7, 4)
    assert (found["best"]["step"], found["best"]["path"]) == (2, "/ckpt/2")
    few = get("/api/runs/again/checkpoints", limit=3)["checkpoints"]
    assert [(each["step"], each["replaced"]) for each in few] == [(6, False), (5, False), (2, False)]


def test_a_run_without_checkpoints(get: Get) -> None:
    """An empty list, and no best one."""
    found = get("/api/runs/big/checkpoints")
    assert (found["checkpoints"], found["best"], found["loaded"], found["total"]) == ([], None, [], 0)


def test_parents_and_children(hub: Hub, get: Get) -> None:
    """A run tells its parent and the step; its children are found by a filter."""
    for name, step in (("left", 3), ("right", 0)):
        store(hub, name, [values(1, 1.0)], parent="kept", from_step=step)
    run = get("/api/runs/left")
    assert (run["parent"], run["from_step"], "parent" in run["environment"]) == ("kept", 3, False)
    found = get("/api/runs", filter="parent = kept", sort="name")["runs"]
    assert {(each["id"], each["from_step"]) for each in found} == {("left", 3), ("right", 0)}
    assert (get("/api/runs/big")["parent"], get("/api/runs/big")["from_step"]) == (None, None)
