"""A callback for Keras 3 with any backend."""

from collections.abc import Mapping
from typing import Any

from keras.callbacks import Callback

from stepscope.integrations.callback_run import CallbackRun, Categories, counted

PREFIXES = {"val_": "evaluator"}


class StepscopeCallback(Callback):  # type: ignore[misc]
    """Records the values of each batch under `trainer/`, of each epoch under `trainer/epoch/` and `evaluator/`.

    Keras's values of a batch are means since the start of the epoch. Steps are batches, counted across epochs from
    `first_step`; the values of `evaluate` are at the last step. Joins the current run, or starts one with the
    arguments of `stepscope.init` and ends it with `fit`, or with a separate `evaluate`. A run that is asked to stop
    ends after the batch, and its epoch with it, so that a `ModelCheckpoint` of each epoch saves.
    """

    def __init__(self, *, first_step: int = 0, **settings: Any) -> None:
        super().__init__()
        self._callback_run = CallbackRun(settings)
        self._before = first_step
        self._first = first_step
        self._batch = -1
        self._fits = False
        self._categories = Categories(PREFIXES)

    @property
    def _step(self) -> int:
        return self._before + max(self._batch, 0)

    def set_params(self, params: Any) -> None:
        """Store the parameters of `fit`, `evaluate` or `predict`; a validation inside `fit` has none."""
        super().set_params(params)
        self._fits = False

    @counted
    def on_train_begin(self, logs: Any = None) -> None:
        """Join or start the run."""
        self._fits = True
        self._callback_run.begin({"fit": self.params or {}, "model": self.model.name})

    @counted
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Enter the step of the batch."""
        self._batch = batch
        self._callback_run.enter_step(self._step)

    @counted
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the values and leave the step."""
        self._batch = batch
        self._callback_run.leave_step()
        run = self._callback_run.current
        if run is not None and logs:
            run.log(logs, self._step, "trainer")
        if self._callback_run.is_asked_to_stop:
            self.model.stop_training = True

    @counted
    def on_test_begin(self, logs: Any = None) -> None:
        """Start the evaluation."""
        self._callback_run.enter_evaluation(lambda: {"evaluate": self.params or {}, "model": self.model.name})

    @counted
    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """End the evaluation; the values of a validation are also recorded for the epoch."""
        run = self._callback_run.current
        if run is not None and logs and not self._fits:
            run.log(logs, max(self._before + self._batch, self._first), "evaluator")
        self._callback_run.leave_evaluation()

    @counted
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Record the values of the epoch at its last step."""
        run = self._callback_run.current
        found = self._categories.sort(logs or {})
        epoch_values = {f"epoch/{key}": value for key, value in found.pop("trainer", {}).items()}
        if run is not None:
            for category, values in {**found, "trainer": {**epoch_values, "epoch": epoch}}.items():
                run.log(values, self._step, category)
        self._before += self._batch + 1
        self._batch = -1

    @counted
    def on_train_end(self, logs: Any = None) -> None:
        """End the run, if it was started here."""
        self._fits = False
        self._callback_run.end()
