"""A tracker for Hugging Face Accelerate: `Accelerator(log_with=StepscopeTracker())`."""

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker

import stepscope
from stepscope.integrations.joining import CONFIG, Joined, counted, sort_by_prefix

CATEGORIES = {"train_": "trainer", "eval_": "evaluator", "val_": "evaluator"}


class StepscopeTracker(GeneralTracker):  # type: ignore[misc]
    """Records what `accelerator.log` is given, on every rank: `eval_*` and `val_*` under `evaluator/`, else `trainer/`.

    Joins the current run, or starts one with the arguments of `stepscope.init` and ends it in `end_training`.
    """

    name = "stepscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._joined = Joined(settings)

    @property
    def tracker(self) -> stepscope.Run | None:
        """The run; None before `init_trackers`."""
        return self._joined.current

    @counted
    def start(self) -> None:
        """Join or start the run."""
        self._joined.begin({})

    @counted
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Record the configuration."""
        if self._joined.current is not None and values:
            self._joined.current.event(CONFIG, values)

    @counted
    def log(self, values: Mapping[str, Any], step: int | None = None, **more: Any) -> None:
        """Record values at a step."""
        if self._joined.current is None:
            return
        for category, some in sort_by_prefix(values, CATEGORIES).items():
            self._joined.current.log(some, step, category)

    @counted
    def finish(self) -> None:
        """End the run, if it was started here."""
        self._joined.end()
