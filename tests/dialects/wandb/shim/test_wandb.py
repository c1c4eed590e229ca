"""A script written for wandb runs with its import changed, and its values are in the journal."""

import argparse
import math
from pathlib import Path

import numpy as np
import pytest

import stepscope
import stepscope.compat.wandb as wandb
from examples import wandb_script
from stepscope.model.records import Alert, Event, Histogram, Metric
from tests.dialects.wandb.shim.conftest import Read


def ending(read: Read) -> str | None:
    """How the run ended."""
    return next((each.attrs["status"] for each in read(Event) if each.name == "train.run.finished"), None)


def test_the_example(read: Read) -> None:
    """Each log is a step, keys stay as they are, `define_metric` names the axis."""
    wandb_script.main(steps=3)
    metrics = read(Metric)
    losses = [(each.step, each.values["train/loss"]) for each in metrics if "train/loss" in each.values]
    assert losses == [(0, 0.1), (1, 0.05), (2, pytest.approx(0.1 / 3))]
    (validation,) = [each for each in metrics if "val/loss" in each.values]
    assert (validation.step, validation.axis) == (1, "epoch")
    events = {each.name: each.attrs for each in read(Event)}
    assert events["train.run.started"]["config"] == {"lr": 0.1, "epochs": 1}
    assert events["train.run.started"]["tags"] == {"demo": True}
    assert events["train.summary"]["val/loss"] == 0.5
    assert ending(read) == "finished"


def test_steps(read: Read) -> None:
    """`commit=False` stays at the step, a step that is named is that step, and they may go back."""
    run = wandb.init()
    run.log({"a": 1}, commit=False)
    run.log({"b": 1})
    run.log({"a": 2})
    run.log({"a": 3}, step=10)
    run.log({"b": 3}, step=10)
    run.log({"a": 4}, step=5)
    wandb.log({"a": 5}, commit=True)
    assert wandb.run is run
    wandb.finish()
    assert [(each.step, each.values) for each in read(Metric)] == [
        (0, {"a": 1}), (0, {"b": 1}), (1, {"a": 2}), (10, {"a": 3}), (10, {"b": 3}), (5, {"a": 4}), (5, {"a": 5}),
    ]  # fmt: skip


def test_config(read: Read) -> None:
    """A configuration is read by item or attribute, may be changed, and changes are recorded."""
    wandb.init(config=argparse.Namespace(lr=0.1))
    assert wandb.config.lr == wandb.config["lr"] == wandb.config.get("lr") == 0.1
    wandb.config.update({"depth": 3}, allow_val_change=True)
    wandb.config.width = 4
    wandb.config.setdefaults({"lr": 1.0, "seed": 7})
    assert wandb.config.as_dict() == {"lr": 0.1, "depth": 3, "width": 4, "seed": 7}
    assert "depth" in wandb.config
    with pytest.raises(AttributeError):
        _ = wandb.config.no_such_key
    wandb.finish()
    events = [each.attrs for each in read(Event) if each.name == "train.config"]
    assert events == [{"depth": 3}, {"width": 4}, {"seed": 7}]


def test_summary(read: Read) -> None:
    """The summary has the last value, or what was asked for, or what was set by hand."""
    run = wandb.init()
    run.define_metric("loss", summary="min")
    run.define_metric("*_acc", summary="max")
    run.define_metric("noise", summary="none")
    for value in (2.0, 1.0, 3.0):
        run.log({"loss": value, "val_acc": value, "noise": value, "other": value})
    wandb.summary["best"] = "epoch 2"
    assert wandb.summary == {"loss": 1.0, "val_acc": 3.0, "other": 3.0, "best": "epoch 2"}
    assert run.summary.loss == 1.0
    wandb.finish()
    assert next(each.attrs for each in read(Event) if each.name == "train.summary")["best"] == "epoch 2"


def test_what_has_no_meaning_is_counted(read: Read) -> None:
    """Unsupported arguments and calls are counted; numbers and media in the same call are kept."""
    run = wandb.init(
        id="a/b c", settings=wandb.Settings(start_method="fork"), resume="never", dir="/x", config="file.yaml"
    )
    assert run.id == "a-b-c"
    run.log({"loss": 1.0, "picture": wandb.Image([[0]]), "text": "hello"}, sync=True)
    run.log([1, 2])
    run.log({"loss": 2.0}, step="many")
    run.define_metric("loss", summary="mean", goal="minimize")
    run.log_code(".")
    wandb.watch(None, log="all")
    wandb.save("model.pt")
    assert wandb.login(key="x")
    inner = stepscope.current_run()
    assert inner is not None
    counts = inner.outcomes.snapshot()
    ignored = {name.removeprefix("ignored/wandb/") for name in counts if name.startswith("ignored/wandb/")}
    assert ignored == {
        "init.settings", "init.resume", "init.dir", "init.config", "log.sync", "log.step", "watch",
        "define_metric.goal", "define_metric.summary=mean", "run.log_code",
    }  # fmt: skip
    assert sum(count for name, count in counts.items() if name.startswith("rejected/value")) == 1
    assert inner.flush(300)
    wandb.finish()
    assert [each.values for each in read(Metric)] == [{"loss": 1.0}, {"loss": 2.0}]
    assert [each.attrs["key"] for each in read(Event) if each.name == "stepscope.media"] == ["picture"]
    assert [each.attrs for each in read(Event) if each.name == "wandb.values"] == [{"text": "hello"}]


@pytest.mark.parametrize("way", ["code", "block"])
def test_a_failure(read: Read, way: str) -> None:
    """An exit code, or an exception in the block of a run, fails it."""
    if way == "code":
        wandb.init()
        wandb.finish(exit_code=1)
    else:
        with pytest.raises(ArithmeticError), wandb.init():
            raise ArithmeticError("diverged")
    assert ending(read) == "failed"


def test_an_alert(read: Read) -> None:
    """An alert is an alert."""
    wandb.init()
    wandb.alert(title="Low accuracy", text="below 0.1", level="WARN", wait_duration=300)
    (alert,) = read(Alert)
    assert (alert.name, alert.message, alert.severity) == ("Low accuracy", "below 0.1", 13)


def test_before_init_after_finish_and_disabled(place: Path) -> None:
    """Calls without a run do nothing; a disabled one takes everything and records nothing."""
    wandb.log({"a": 1})
    wandb.define_metric("a")
    wandb.alert("a")
    assert wandb.run is None
    assert len(wandb.config) == 0
    wandb.finish()
    run = wandb.init(mode="disabled", config={"lr": 1}, reinit=True)
    run.log({"a": 1})
    run.watch(None)
    assert wandb.config.lr == 1
    wandb.finish()
    assert not place.exists()
    with pytest.raises(AttributeError, match="_no_such_name"):
        _ = wandb._no_such_name


def test_steps_and_axes_of_numpy(read: Read) -> None:
    """A step is an integer of any type; any other value is counted, and the steps go on by themselves."""
    run = wandb.init()
    run.define_metric("val", step_metric="epoch")
    for step in (np.int64(3), np.uint8(4), 5.0):
        run.log({"a": 1}, step=step)
    run.log({"val": 2.0, "epoch": np.int32(7)}, step=6)
    for odd in ("many", 1.5, math.nan, 2**70):
        run.log({"b": 1}, step=odd)
    wandb.finish()
    found = [(each.step, each.axis, list(each.values)) for each in read(Metric)]
    assert found[:3] == [(3, None, ["a"]), (4, None, ["a"]), (5, None, ["a"])]
    assert (7, "epoch", ["val"]) in found
    assert [each for each in found if each[2] == ["b"]] == [(step, None, ["b"]) for step in (6, 7, 8, 9)]


def test_what_a_run_says_of_itself(read: Read) -> None:
    """Tags are a tuple of texts, also where one was given; a new run is neither resumed nor offline."""
    run = wandb.init(id="again", tags="baseline", group="g", notes="n")
    assert run.tags == ("baseline",)
    assert (run.group, run.notes, run.entity, run.sweep_id) == ("g", "n", None, None)
    assert not run.resumed
    assert not run.offline
    assert (run.disabled, bool(run.no_such_thing), list(run.logged_artifacts())) == (False, False, [])
    wandb.finish()
    assert wandb.init(id="again", tags=5).resumed
    said = [each.attrs for each in read(Event) if each.name == "train.run.started"]
    assert [each.get("tags") for each in said] == [{"baseline": True}, {"5": True}]
    assert [(each.get("group"), each.get("notes")) for each in said] == [("g", "n"), (None, None)]


def test_what_wandb_has_beside_is_counted() -> None:
    """The public interface does nothing and fails nowhere; alerts have their levels."""
    run = wandb.init()
    assert list(wandb.Api().runs("me/project")) == []
    run.log({"curve": wandb.plot.violin([1]), "loss": 1.0})
    wandb.alert("low", level=wandb.AlertLevel.ERROR)
    wandb.config.update(5)
    wandb.config.setdefaults("file.yaml")
    wandb.config.update([("lr", 0.5)])
    assert wandb.config.as_dict() == {"lr": 0.5}
    inner = stepscope.current_run()
    assert inner is not None
    counts = inner.outcomes.snapshot()
    ignored = {name: count for name, count in counts.items() if name.startswith("ignored/wandb/")}
    counted = {name.removeprefix("ignored/wandb/"): count for name, count in ignored.items()}
    assert counted == {"Api": 1, "plot.violin": 1, "config.update": 2}


def test_a_summary_gets_over_nan_and_takes_attributes(read: Read) -> None:
    """The least and greatest are of numbers; what was set as an attribute is there as an item."""
    run = wandb.init()
    run.define_metric("low", summary="min")
    run.define_metric("high", summary="max")
    run.summary.best = "epoch 2"
    run.define_metric("best", summary="max")
    for value in (math.nan, np.float32(2.0), math.nan, 1.0, 3.0):
        run.log({"low": value, "high": value, "best": value})
    wandb.finish()
    (said,) = [each.attrs for each in read(Event) if each.name == "train.summary"]
    assert said == {"low": 1.0, "high": 3.0, "best": "epoch 2"}


def test_histograms_are_recorded_as_histograms(read: Read) -> None:
    """Of values, of counts made before, of arrays and tensors, nested too; numbers beside them stay in their row."""
    wandb.init()
    made = wandb.Histogram([0.0, 1.0, 1.0, float("nan")], num_bins=2)
    wandb.log({"loss": 1.0, "grad": made, "layers": {"w": wandb.Histogram(np.array([[-1.0, 3.0]]))}})
    wandb.log({"counted": wandb.Histogram(np_histogram=([3, 1], [0.0, 0.5, 2.0]))})
    wandb.log({"wrong": wandb.Histogram(5j), "edges": wandb.Histogram(np_histogram=([1], [2.0, 1.0])), "kept": 1})
    inner = stepscope.current_run()
    assert inner is not None
    assert inner.flush(300)
    wandb.finish()
    rejected = inner.outcomes.rejected_keys()
    found = {key: (metric.step, value) for metric in read(Metric) for key, value in metric.values.items()}
    assert (made.histogram, made.bins) == ([1, 2], [0.0, 0.5, 1.0])
    assert found["loss"] == (0, 1.0)
    assert found["grad"] == (0, Histogram(3, 2.0, 0.0, 1.0, (0.0, 0.5, 1.0), (0, 1, 2, 0)))
    assert (found["layers/w"][0], found["layers/w"][1].count, found["layers/w"][1].total) == (0, 2, None)
    assert found["counted"] == (1, Histogram(4, None, 0.0, 2.0, (0.0, 0.5, 2.0), (0, 3, 1, 0)))
    assert found["kept"] == (2, 1)
    assert not found.keys() & {"wrong", "edges"}
    assert rejected == {"wrong": "type complex", "edges": "no distribution"}


def test_join_is_finish(read: Read) -> None:
    """Scripts of old wandb end their run by `join`."""
    wandb.init()
    wandb.join(exit_code=1)
    assert [each.attrs["status"] for each in read(Event) if each.name == "train.run.finished"] == ["failed"]


def test_what_is_absent_says_so_once_and_ends_no_script(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a script calls, enters, indexes or decorates with, of wandb or of one of its objects."""
    run = wandb.init()

    @wandb.some_decorator
    def decorated() -> int:
        return 5

    for _ in range(3):
        with wandb.some_context("x") as inside:
            inside.update(1)
        assert not wandb.Api().run("a/b").history()["loss"]
        assert run.some_method(1) is not None
        wandb.Image([[0]]).to_data_array()
        wandb.Table(columns=["a"]).some_method()
        wandb.util.some_function()
    assert decorated() == 5
    inner = stepscope.current_run()
    assert inner is not None
    counts = {key: n for key, n in inner.outcomes.snapshot().items() if key.startswith("ignored/wandb/")}
    assert counts == {
        f"ignored/wandb/{name}": 1 if name == "some_decorator" else 3
        for name in (
            "some_decorator", "some_context", "Api", "run.some_method", "Image.to_data_array", "Table.some_method",
            "util.some_function",
        )
    }  # fmt: skip
    notices = inner.outcomes.take_notices()
    assert sum("some_context" in each for each in notices) <= 1
    assert sum("wandb" in each for each in (*notices, *caplog.messages)) >= 1
