"""Accelerate really training: what its log is given is in the journal."""

from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Metric
from tests.late import late

integration = late("stepscope.integrations.accelerate", "accelerate", "torch")
accelerate_loop = late("examples.accelerate_loop")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Values have their steps and categories; the configuration is there; the run ends."""
    accelerate_loop.main(steps=3)
    metrics = read(Metric)
    assert [(each.step, *each.values) for each in metrics if each.category == "trainer"] == [
        (0, "loss"), (1, "loss"), (2, "loss"),
    ]  # fmt: skip
    assert [(each.step, *each.values) for each in metrics if each.category == "evaluator"] == [
        (0, "error"), (1, "error"), (2, "error"),
    ]  # fmt: skip
    assert any(each.attrs.get("lr") == 0.1 for each in read(Event))
    assert status() == "finished"


def test_a_failure(status: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that fails in a run of the user's fails that run."""
    import torch

    def explode(*arguments: Any, **named: Any) -> None:
        raise ArithmeticError("diverged")

    monkeypatch.setattr(torch.optim.SGD, "step", explode)
    with pytest.raises(ArithmeticError), stepscope.init():
        accelerate_loop.main(steps=3)
    assert status() == "failed"


def test_before_its_start_a_tracker_does_nothing(read: Read) -> None:
    """Calls before the start, or with what is no dict, do not raise."""
    tracker = integration.StepscopeTracker()
    tracker.log({"loss": 1.0}, step=1)
    tracker.start()
    tracker.log([1.0], step=1)  # type: ignore[arg-type]
    assert tracker.tracker is not None
    assert tracker.tracker.outcomes.snapshot()["failed/callback/AttributeError"] == 1
    tracker.finish()
    assert read(Metric) == []


def test_names_that_differ_by_their_prefix(read: Read) -> None:
    """Keys that differ only by their prefix do not overwrite each other."""
    from accelerate import Accelerator

    accelerator = Accelerator(log_with=integration.StepscopeTracker(), cpu=True)
    accelerator.init_trackers("mine")
    accelerator.log({"train_loss": 1.0, "loss": 2.0, "val_loss": 4.0, "eval_loss": 3.0}, step=0)
    accelerator.end_training()
    assert {each.category: each.values for each in read(Metric)} == {
        "trainer": {"loss": 2.0, "train_loss": 1.0},
        "evaluator": {"loss": 3.0, "val_loss": 4.0},
    }
