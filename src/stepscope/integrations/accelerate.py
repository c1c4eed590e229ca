"""A tracker for Hugging Face Accelerate: `Accelerator(log_with=StepscopeTracker())`."""

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker

import stepscope
from stepscope.integrations.callback_run import CallbackRun, Categories, counted
from stepscope.model.names import EVENT_CONFIG

PREFIXES = {"train_": "trainer", "eval_": "evaluator", "val_": "evaluator"}


class StepscopeTracker(GeneralTracker):  # type: ignore[misc]
    """Records the values of `accelerator.log` on every rank: `eval_*` and `val_*` as `evaluator/`, others `trainer/`.

    Joins the current run, or starts one with the arguments of `stepscope.init` and ends it in `end_training`.
    """

    name = "stepscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._callback_run = CallbackRun(settings)
        self._categories = Categories(PREFIXES)

    @property
    def tracker(self) -> stepscope.Run | None:
        """The run; None before `init_trackers`."""
        return self._callback_run.active

    @counted
    def start(self) -> None:
        """Join or start the run."""
        self._callback_run.begin({})

    @counted
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Record the configuration."""
        if self._callback_run.active is not None and values:
            self._callback_run.active.event(EVENT_CONFIG, values)

    @counted
    def log(self, values: Mapping[str, Any], step: int | None = None, **more: Any) -> None:
        """Record values at a step."""
        run = self._callback_run.current
        if run is not None:
            for category, some in self._categories.sort(values).items():
                run.log(some, step, category)

    @counted
    def finish(self) -> None:
        """End the run, if it was started here."""
        self._callback_run.end()
