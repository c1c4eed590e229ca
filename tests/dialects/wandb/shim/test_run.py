"""The life of a run that a script for wandb began, or joined."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.journal import layout
from stepscope.model.records import Event, Metric, Record
from stepscope.testing import read_run, series
from tests.conftest import Python
from tests.dialects.wandb.shim.conftest import Read

LOGGED = """
    import stepscope.compat.wandb as wandb
    wandb.init()
    wandb.log({"loss": 1.0})
    wandb.summary["best"] = 7
"""


def attrs(events: list[Any], name: str) -> list[Any]:
    """What the events of a name say."""
    return [each.attrs for each in events if each.name == name]


@pytest.mark.parametrize("end", ["", "raise ValueError", "import sys; sys.exit(3)", "wandb.finish()"])
def test_the_summary_is_recorded_however_the_run_ends(
    python: Python, records: Callable[..., list[Record]], end: str
) -> None:
    """The summary is recorded once, before the run's exit record."""
    python(LOGGED + f"    {end}")
    events = [each for each in records(Event) if isinstance(each, Event)]
    assert attrs(events, "train.summary") == [{"loss": 1.0, "best": 7}]
    assert [each.name for each in events][-2:] == ["train.summary", "train.run.finished"]


def test_a_forked_child_begins_a_run_of_its_own(python: Python, home: Path) -> None:
    """As in wandb, a forked child starts its own run; only the parent records its summary."""
    done = python(
        LOGGED
        + """
    import os
    for trial in range(2):
        child = os.fork()
        if not child:
            wandb.init(project="child")
            wandb.log({"trial": trial})
            wandb.finish()
            os._exit(0)
        os.waitpid(child, 0)
    wandb.log({"loss": 2.0})
    """,
        env={"STEPSCOPE_RUN_ID": None},
    )
    assert done.returncode == 0, done.stderr
    runs = [read_run(home, run) for run in layout.list_runs(home)]
    assert sorted(series(run, "trial") for run in runs) == [[], [(0, 0)], [(0, 1)]]
    assert [series(run, "loss") for run in runs if series(run, "loss")] == [[(0, 1.0), (1, 2.0)]]
    summaries = [attrs([each for each in run if isinstance(each, Event)], "train.summary") for run in runs]
    assert sorted(map(len, summaries)) == [1, 1, 1]


@pytest.mark.parametrize("way", ["run", "module", "block", "stepscope"])
def test_three_trials_are_three_runs(place: Path, way: str) -> None:
    """After the end of a run, however it ended, `wandb.run` is None."""
    for trial in range(3):
        assert wandb.run is None
        run = wandb.init()
        if way == "block":
            with run:
                run.log({"trial": trial})
        else:
            wandb.log({"trial": trial})
            {"run": run.finish, "module": wandb.finish, "stepscope": stepscope.finish}[way]()
    found = [series(read_run(place, run), "trial") for run in layout.list_runs(place)]
    assert sorted(found) == [[(0, 0)], [(0, 1)], [(0, 2)]]


def test_what_is_said_anew(read: Read) -> None:
    """A name, tags and notes given after the beginning are recorded."""
    run = wandb.init(name="old")
    wandb.run.name = "new"
    wandb.run.tags += ("x",)
    run.notes = "hello"
    assert (run.name, run.tags, run.notes) == ("new", ("x",), "hello")
    run.tags = ("y", "k=v")
    wanted = [{"name": "new"}, {"tags": {"x": True}}, {"notes": "hello"}]
    wanted += [{"tags": {"x": None}}, {"tags": {"y": True, "k": "v"}}]
    assert attrs(read(Event), "train.run.edited") == wanted


def test_a_joined_run_is_described(read: Read) -> None:
    """Tags and notes of a script go to the run that it joins."""
    with stepscope.init(tags=["before"]):
        wandb.init(tags=["later"], notes="n", group="g")
        wandb.finish()
        assert attrs(read(Event), "train.run.edited") == [{"notes": "n"}, {"tags": {"later": True}}]


def test_what_scripts_build_from_a_run(place: Path) -> None:
    """Its name is a text, its folder is there, and no reader of journals is confused by it."""
    run = wandb.init(id="mine", entity="me")
    assert run.name + "-x" == "mine-x"
    assert run.path == "me/default/mine"
    assert run.start_time > 1e9
    with open(os.path.join(run.dir, "m.pt"), "w") as file:
        file.write("weights")
    wandb.finish()
    assert (place / "runs" / "mine" / "files" / "m.pt").read_text() == "weights"
    assert len(layout.list_writers(place, "mine")) == 1
    assert not wandb.init(id="mine").step


def test_a_folder_that_cannot_be_made(place: Path, ignored: Callable[[], set[str]]) -> None:
    """If the folder cannot be created, a temporary one is used, and counted."""
    run = wandb.init(id="mine")
    stepscope.flush(10)
    (place / "runs" / "mine" / "files").write_text("in the way")
    assert os.path.isdir(run.dir)
    assert ignored() == {"run.dir"}


def test_a_run_of_stepscope_is_joined(read: Read, ignored: Callable[[], set[str]]) -> None:
    """A joined run records the values and continues after wandb's `finish`."""
    outer = stepscope.init(project="outer", run_id="outer")
    for value in (1, 2):
        run = wandb.init(project="inner", id="other", config={"lr": value})
        assert wandb.init(id="other") is run
        wandb.log({"loss": value})
        wandb.finish(exit_code=value - 1)
        assert wandb.run is None
    assert (outer.status, stepscope.current_run() is outer, run.id) == ("running", True, "outer")
    assert ignored() == {"init.project", "init.id", "finish.exit_code"}
    events = read(Event)
    assert attrs(events, "train.config") == [{"lr": 1}, {"lr": 2}]
    assert attrs(events, "train.summary") == [{"loss": 1}, {"loss": 2}]
    assert [each.values for each in read(Metric)] == [{"loss": 1}, {"loss": 2}]


def test_a_run_that_was_joined_ends_first(read: Read) -> None:
    """When the joined run ends, its summary is recorded and wandb's run ends too."""
    outer = stepscope.init(run_id="outer")
    wandb.init()
    wandb.log({"loss": 1})
    outer.finish()
    assert wandb.run is None
    wandb.finish()
    assert attrs(read(Event), "train.summary") == [{"loss": 1}]


def test_disabled_beside_a_run_of_stepscope(read: Read) -> None:
    """The other run is not affected, and continues."""
    outer = stepscope.init(run_id="outer")
    wandb.init(mode="disabled")
    wandb.log({"leak": 1})
    wandb.finish()
    assert (outer.status, stepscope.current_run() is outer) == ("running", True)
    assert read(Metric) == []


def test_an_error_in_a_block_of_a_joined_run(read: Read) -> None:
    """The exception is recorded; the code that started the run decides its status."""
    with stepscope.init(run_id="outer"), pytest.raises(ArithmeticError), wandb.init():
        raise ArithmeticError("diverged")
    events = read(Event)
    assert [each["exception.message"] for each in attrs(events, "exception")] == ["diverged"]
    assert attrs(events, "train.run.finished") == [{"status": "finished"}]
