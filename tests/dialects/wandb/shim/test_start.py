"""The arguments of `init`, with defaults from wandb's variables."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim import start as wandb_start
from stepscope.model.records import Event
from tests.dialects.wandb.shim.conftest import Read


def test_the_environment_says_what_init_does_not(monkeypatch: pytest.MonkeyPatch, read: Read) -> None:
    """Arguments are stronger than wandb's variables, and so are Stepscope's own."""
    said = {"PROJECT": "p", "NAME": "n", "RUN_ID": "fixed", "TAGS": "a,b", "NOTES": "hi", "RUN_GROUP": "g"}
    for name, value in said.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = wandb.init(notes="mine")
    assert (run.project, run.name, run.id) == ("p", "n", "fixed")
    assert (run.tags, run.notes, run.group) == (("a", "b"), "mine", "g")
    (event,) = [each.attrs for each in read(Event) if each.name == "train.run.started"]
    assert (event["tags"], event["notes"], event["group"]) == ({"a": True, "b": True}, "mine", "g")
    wandb.finish()
    monkeypatch.setenv("STEPSCOPE_PROJECT", "ours")
    assert wandb.init().project == "ours"
    wandb.finish()
    assert wandb.init(project="q", name="m", id="other").path == "q/other"


def test_disabled_by_the_environment(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """In disabled mode all calls work and nothing is recorded; the argument overrides the variable."""
    monkeypatch.setenv("WANDB_MODE", "disabled")
    run = wandb.init(config={"lr": 1}, id="x")
    run.log({"a": 1})
    run.name += "-x"
    wandb.summary["best"] = 7
    assert Path(run.dir).is_dir()
    assert wandb.init(id="x") is run
    assert (run.disabled, wandb.config.lr, run.name) == (True, 1, "disabled-x")
    wandb.finish()
    assert wandb.run is None
    assert not place.exists()
    assert not wandb.init(mode="online").disabled


def test_a_fork_has_a_parent(read: Read, ignored: Callable[[], set[str]]) -> None:
    """`fork_from` names the parent and its step; what cannot be read is counted as ignored."""
    wandb.init(project="p", fork_from="abc123?_step=200")
    (event,) = [each.attrs for each in read(Event) if each.name == "train.run.started"]
    assert (event["parent"], event["from_step"]) == ("abc123", 200)
    assert "init.fork_from" not in ignored()


def test_a_fork_from_nowhere_is_ignored(ignored: Callable[[], set[str]]) -> None:
    """A run without a step is no place to fork from."""
    wandb.init(project="p", fork_from="abc123")
    assert "init.fork_from" in ignored()


def test_what_reinit_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` starts a new run only on request, and in notebooks, where cells are rerun."""
    assert [wandb_start.starts_new_run(each) for each in (True, "finish_previous", "create_new")] == [True] * 3
    assert [wandb_start.starts_new_run(each) for each in (None, False, "default", "return_previous")] == [False] * 4
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", ModuleType("ipykernel.kernelapp"))
    assert [wandb_start.starts_new_run(each) for each in (None, "default", False)] == [True, True, False]


def test_a_second_init(ignored: Callable[[], set[str]]) -> None:
    """A second `init` returns the active run and counts different arguments, unless a new run is requested."""
    first = wandb.init(project="p", id="one", config={"lr": 1})
    assert wandb.init() is first
    assert wandb.init(project="p", id="one") is first
    assert ignored() == set()
    assert wandb.init(project="other", tags=["x"], config={"lr": 2}, reinit=False) is first
    assert ignored() == {"init.project", "init.tags", "init.config"}
    assert wandb.config.lr == 1
    second = wandb.init(reinit=True)
    assert (second.id != "one", first.ended, wandb.run is second) == (True, True, True)
    third = wandb.init(id="three")
    assert (third.id, second.ended) == ("three", True)
    wandb.init(reinit="create_new")
    assert third.ended
    assert ignored() == {"init.reinit"}


def test_what_was_ignored_before_init_is_counted_then(ignored: Callable[[], set[str]]) -> None:
    """Nothing is silent because there was no run yet."""
    wandb.require("core")
    wandb.watch(None)
    wandb.init(resume=True)
    assert ignored() == {"require", "watch", "init.resume"}
