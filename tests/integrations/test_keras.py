"""Keras really fitting: batches are steps, epochs and validation have their values."""

import os
from collections.abc import Callable
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
pytest.importorskip("keras", reason="needs keras")

import stepscope
from examples import keras_fit
from stepscope.integrations.keras import StepscopeCallback
from stepscope.model.records import Event, Metric, Span

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Two epochs of three batches are six steps, with a validation at the last of each epoch."""
    keras_fit.main(epochs=2)
    metrics, spans = read(Metric), read(Span)
    assert [each.step for each in metrics if each.category == "trainer" and "loss" in each.values] == [0, 1, 2, 3, 4, 5]
    assert [each.step for each in metrics if "epoch/loss" in each.values] == [2, 5]
    assert [each.step for each in metrics if each.category == "evaluator" and "loss" in each.values] == [2, 5]
    assert [each.step for each in spans if each.name == "train.step"] == [0, 1, 2, 3, 4, 5]
    assert [each.attrs["train.bucket"] for each in spans if each.name == "train.evaluate"] == ["overhead"] * 2
    assert next(each for each in read(Event) if each.name == "train.run.started").attrs["config"]["fit"]["epochs"] == 2
    assert status() == "finished"


def test_a_failure(read: Read, status: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a batch fails the user's run; the step it was in is recorded."""

    def explode(self: Any, batch: int, logs: Any = None) -> None:
        raise ArithmeticError("diverged")

    import keras

    monkeypatch.setattr(keras.optimizers.SGD, "apply", explode)
    with pytest.raises(ArithmeticError), stepscope.init():
        keras_fit.main(epochs=1)
    assert status() == "failed"


def test_without_a_model_it_is_counted() -> None:
    """A callback that Keras did not prepare does not raise."""
    run = stepscope.init()
    callback = StepscopeCallback()
    callback.on_train_begin()
    callback.on_train_batch_end(0, {"loss": 1.0})
    assert sum(count for name, count in run.outcomes.snapshot().items() if name.startswith("failed/callback")) == 1
