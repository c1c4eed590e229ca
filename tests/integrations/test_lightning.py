"""Lightning really training: the logger's values, the callback's steps, and how the run ends."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lightning", reason="needs lightning")
pytest.importorskip("torch", reason="needs torch")

import stepscope
from examples import lightning_trainer
from stepscope.integrations.lightning import StepscopeLogger
from stepscope.model.records import Event, Metric, Span

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Values and spans of a step have the same step; validation is a span; the run ends."""
    lightning_trainer.main(steps=4)
    metrics, spans = read(Metric), read(Span)
    losses = [each.step for each in metrics if each.category == "trainer" and "loss" in each.values]
    assert losses == [0, 1, 2, 3]
    assert [each.step for each in spans if each.name == "train.step"] == losses
    assert [each.step for each in metrics if each.category == "evaluator" and "loss" in each.values] == [3]
    assert [each.attrs["train.bucket"] for each in spans if each.name == "train.evaluate"] == ["overhead"]
    configs = [each.attrs.get("config", each.attrs) for each in read(Event) if each.name != "train.run.finished"]
    assert any(config.get("lr") == 0.1 for config in configs)
    assert status() == "finished"


def test_a_failure(read: Read, status: Callable[[], str | None]) -> None:
    """An exception in a step fails the run and is recorded."""

    class Broken(lightning_trainer.Line):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2:
                raise ArithmeticError("diverged")
            return super().training_step(batch, index)

    with pytest.raises(ArithmeticError, match="diverged"):
        lightning_trainer.main(steps=4, module=Broken())
    assert status() == "failed"
    assert [each.step for each in read(Span) if each.name == "train.step"] == [0, 1, 2]
    assert any(each.attrs.get("exception.message") == "diverged" for each in read(Event))


def test_in_a_run_of_the_user(read: Read, status: Callable[[], str | None]) -> None:
    """Logger and callback join a run and do not end it."""
    run = stepscope.init(project="mine")
    lightning_trainer.main(steps=2)
    assert stepscope.current_run() is run
    assert status() is None


def test_the_logger_alone(read: Read) -> None:
    """A logger tells what Lightning asks; what is no number is counted, the rest is kept."""
    logger = StepscopeLogger(project="mine")
    assert logger.name == "mine"
    assert logger.version == logger.experiment.id
    logger.log_metrics({"train/loss": 1.0, "val/words": "none"}, step=5)
    logger.log_metrics(None, step=5)  # type: ignore[arg-type]
    counts = logger.experiment.outcomes.snapshot()
    assert counts["rejected/value/string"] == 1
    assert counts["failed/callback/AttributeError"] == 1
    logger.finalize("success")
    (metric,) = read(Metric)
    assert (metric.category, metric.step, metric.values) == ("trainer", 5, {"loss": 1.0})
