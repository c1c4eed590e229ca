"""Keras really fitting: batches are steps, epochs and validation have their values."""

from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Metric, Span
from tests.late import late

integration = late("stepscope.integrations.keras", "keras")
keras_fit = late("examples.keras_fit")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place", "torch_backend")


@pytest.fixture
def torch_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras on torch, which the tests have anyway; it asks when it is imported."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")


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


def test_a_run_that_is_asked_to_stop(
    read: Read, status: Callable[[], str | None], ask_to_stop: Callable[[], None]
) -> None:
    """`fit` ends after the batch, and its epoch ends with it."""
    import keras
    import numpy

    class User(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                ask_to_stop()

    inputs = numpy.ones((12, 4), "float32")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    recording = integration.StepscopeCallback(project="test")
    model.fit(inputs, inputs.sum(1), batch_size=4, epochs=2, verbose=0, callbacks=[recording, User()])
    assert status() == "finished"
    metrics = read(Metric)
    assert [each.step for each in metrics if each.category == "trainer" and "loss" in each.values] == [0, 1]
    assert [each.step for each in metrics if "epoch/loss" in each.values] == [1]


def test_a_failure(read: Read, status: Callable[[], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in a batch fails the user's run; the step it was in is recorded."""

    def explode(self: Any, batch: int, logs: Any = None) -> None:
        raise ArithmeticError("diverged")

    import keras

    monkeypatch.setattr(keras.optimizers.SGD, "apply", explode)
    with pytest.raises(ArithmeticError), stepscope.init():
        keras_fit.main(epochs=1)
    assert status() == "failed"


def fitted(callback: Any, *, fit: bool = True) -> None:
    """Fit a model with a validation if asked to, and then evaluate it."""
    import keras
    import numpy

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    data = numpy.ones((8, 4)), numpy.ones((8, 1))
    if fit:
        model.fit(*data, batch_size=4, epochs=2, validation_data=data, verbose=0, callbacks=[callback])
    model.evaluate(*data, verbose=0, callbacks=[callback])


def test_an_evaluation_after_fit(read: Read) -> None:
    """Its values are at the last step, and those of a validation are recorded once."""
    run = stepscope.init()
    fitted(integration.StepscopeCallback())
    run.finish()
    values = [each.step for each in read(Metric) if each.category == "evaluator" and "loss" in each.values]
    assert values == [1, 3, 3]
    assert [each.name for each in read(Span)].count("train.evaluate") == 3


def test_an_evaluation_after_a_fit_that_failed(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation after a failed fit is not treated as its validation."""

    def explode(*arguments: Any, **named: Any) -> None:
        raise ArithmeticError("diverged")

    import keras

    stepscope.init()
    callback = integration.StepscopeCallback()
    with monkeypatch.context() as patch:
        patch.setattr(keras.optimizers.SGD, "apply", explode)
        with pytest.raises(ArithmeticError):
            fitted(callback)
    fitted(callback, fit=False)
    assert [each.step for each in read(Metric) if each.category == "evaluator" and "loss" in each.values] == [0]


def test_an_evaluation_alone(read: Read, status: Callable[[], str | None]) -> None:
    """Without a current run, an evaluation has its own run, which ends with it."""
    fitted(integration.StepscopeCallback(first_step=7), fit=False)
    assert stepscope.current_run() is None
    assert [each.step for each in read(Metric) if each.category == "evaluator" and "loss" in each.values] == [7]
    assert status() == "finished"


def test_without_a_model_it_is_counted() -> None:
    """A callback that Keras did not prepare does not raise."""
    run = stepscope.init()
    callback = integration.StepscopeCallback()
    callback.on_train_begin()
    callback.on_train_batch_end(0, {"loss": 1.0})
    assert sum(count for name, count in run.outcomes.snapshot().items() if name.startswith("failed/callback")) == 1
