"""A logger for Lightning, which records values, and a callback, which records steps, validation and failures."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger

import stepscope
from stepscope.integrations.callback_run import EVALUATE, CallbackRun, Categories, counted
from stepscope.model.names import EVENT_CONFIG

TEST = ("test_", "test/")
PREFIXES = {
    **dict.fromkeys(("train_", "train/"), "trainer"),
    **dict.fromkeys(("val_", "val/", *TEST), "evaluator"),
}


class StepscopeLogger(Logger):  # type: ignore[misc]
    """Records logged values on every rank: `val_*` and `test_*` under `evaluator/`, others under `trainer/`.

    Joins the current run, or starts one with the arguments of `stepscope.init` on first use. A started run contains
    everything that the trainer does: it fails with an exception, else ends with the process or when another logger or
    callback begins.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._callback_run = CallbackRun(settings)
        self._categories = Categories(PREFIXES, kept=TEST)

    @property
    def experiment(self) -> stepscope.Run:
        """The run."""
        return self._callback_run.active or self._callback_run.begin({})

    @property
    def name(self) -> str:
        """The project."""
        return self.experiment.project

    @property
    def version(self) -> str:
        """The run's id."""
        return self.experiment.id

    @counted
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record values at a step."""
        for category, values in self._categories.sort(metrics).items():
            self.experiment.log(values, step, category)

    @counted
    def log_hyperparams(self, params: Any, *more: Any, **named: Any) -> None:
        """Record hyperparameters as the configuration of a run that starts here, else as an event."""
        config = vars(params) if isinstance(params, argparse.Namespace) else dict(params or {})
        run = self._callback_run.active
        if run is None:
            self._callback_run.begin(config)
        elif config:
            run.event(EVENT_CONFIG, config)

    @counted
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Record the checkpoint that a `ModelCheckpoint` saved last."""
        path = getattr(checkpoint_callback, "_last_checkpoint_saved", "") or checkpoint_callback.best_model_path
        if path:
            self.experiment.checkpoint(path, getattr(checkpoint_callback, "_last_global_step_saved", None))

    @counted
    def finalize(self, status: str) -> None:
        """End the run after an exception, if it was started here; else keep it open, since `test` may follow `fit`."""
        if status == "failed":
            self._callback_run.end("failed")
        else:
            self._callback_run.pause()


class StepscopeCallback(Callback):  # type: ignore[misc]
    """Records each batch as a step with a span, each validation and test as a span, and exceptions.

    Works with any logger, and uses the same steps as Lightning's loggers. The run is joined or started, and ends, as
    with `StepscopeLogger`. A run that is asked to stop saves a checkpoint `stopped-step=N.ckpt`, where the trainer
    saves checkpoints at all, and ends, if it has one rank.
    """

    def __init__(self, **settings: Any) -> None:
        self._callback_run = CallbackRun(settings)

    @counted
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Join or start the run, through a `StepscopeLogger` if there is one."""
        for logger in trainer.loggers:
            if isinstance(logger, StepscopeLogger):
                logger.experiment  # noqa: B018
        self._callback_run.begin({})

    @counted
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Enter the step."""
        loop = getattr(trainer.fit_loop, "epoch_loop", None)
        self._callback_run.enter_step(getattr(loop, "_batches_that_stepped", trainer.global_step))

    @counted
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Leave the step; save and end the training after it when the run is asked to stop."""
        self._callback_run.leave_step()
        if self._callback_run.is_asked_to_stop and not trainer.should_stop:
            trainer.should_stop = True
            saver = trainer.checkpoint_callback
            if saver is not None:
                folder = getattr(saver, "dirpath", None) or trainer.default_root_dir
                path = os.path.join(folder, f"stopped-step={trainer.global_step}.ckpt")
                trainer.save_checkpoint(path)
                if self._callback_run.current is not None:
                    self._callback_run.current.checkpoint(path, trainer.global_step)

    @counted
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the validation."""
        self._callback_run.enter(EVALUATE, "overhead")

    @counted
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the validation."""
        self._callback_run.leave_phase(EVALUATE)

    @counted
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the test."""
        self._callback_run.enter(EVALUATE, "overhead")

    @counted
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """End the test."""
        self._callback_run.leave_phase(EVALUATE)

    @counted
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Record the exception."""
        self._callback_run.end("failed", exception)

    @counted
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Pause the run; one that this callback started stays open, since `test` may follow `fit`."""
        self._callback_run.pause()
