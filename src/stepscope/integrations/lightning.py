"""A logger and a callback for Lightning: the one records values, the other steps, validation and failure."""

import argparse
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger

import stepscope
from stepscope.integrations.joining import EVALUATE, Categories, Joined, counted
from stepscope.model.names import EVENT_CONFIG

TEST = ("test_", "test/")
PREFIXES = {
    **dict.fromkeys(("train_", "train/"), "trainer"),
    **dict.fromkeys(("val_", "val/", *TEST), "evaluator"),
}


class StepscopeLogger(Logger):  # type: ignore[misc]
    """Records what a module logs: `val_*` and `test_*` under `evaluator/`, the rest under `trainer/`, on every rank.

    Joins the current run, or starts one with the arguments of `stepscope.init` at the first use. All that a trainer
    does is in that run: it ends as failed with an exception, else with the process or when another logger or callback
    begins.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._joined = Joined(settings)
        self._categories = Categories(PREFIXES, kept=TEST)

    @property
    def experiment(self) -> stepscope.Run:
        """The run."""
        return self._joined.begun or self._joined.begin({})

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
        """Record hyperparameters: with the run if it begins here, else as an event."""
        config = vars(params) if isinstance(params, argparse.Namespace) else dict(params or {})
        run = self._joined.begun
        if run is None:
            self._joined.begin(config)
        elif config:
            run.event(EVENT_CONFIG, config)

    @counted
    def finalize(self, status: str) -> None:
        """End the run after an exception, if it was started here; else `test` may follow `fit`."""
        if status == "failed":
            self._joined.end("failed")
        else:
            self._joined.pause()


class StepscopeCallback(Callback):  # type: ignore[misc]
    """Makes each batch a step with a span, each validation and test a span, and records exceptions.

    Works with any logger. The step is the one that Lightning's loggers are given. A run is joined or started, and
    ends, as with `StepscopeLogger`.
    """

    def __init__(self, **settings: Any) -> None:
        self._joined = Joined(settings)

    @counted
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Join or start the run, through a logger of ours where there is one."""
        for logger in trainer.loggers:
            if isinstance(logger, StepscopeLogger):
                logger.experiment  # noqa: B018
        self._joined.begin({})

    @counted
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Go to the step."""
        loop = getattr(trainer.fit_loop, "epoch_loop", None)
        self._joined.enter_step(getattr(loop, "_batches_that_stepped", trainer.global_step))

    @counted
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Leave the step."""
        self._joined.leave_step()

    @counted
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the validation."""
        self._joined.enter(EVALUATE, "overhead")

    @counted
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the validation."""
        self._joined.leave_phase(EVALUATE)

    @counted
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the test."""
        self._joined.enter(EVALUATE, "overhead")

    @counted
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """End the test."""
        self._joined.leave_phase(EVALUATE)

    @counted
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Record the exception."""
        self._joined.end("failed", exception)

    @counted
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the run; one that this callback started continues, for `test` may follow `fit`."""
        self._joined.pause()
