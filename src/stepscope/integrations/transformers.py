"""A callback for the Trainer of Hugging Face Transformers, and for TRL's trainers, which derive from it."""

import os
from typing import Any

from transformers import TrainerCallback

from stepscope.integrations.callback_run import CallbackRun, Categories, counted

PREFIXES = {"eval_": "evaluator", "test_": "evaluator"}


class StepscopeCallback(TrainerCallback):  # type: ignore[misc]
    """Records what the Trainer logs, under `trainer/` and `evaluator/`, and a span for each step and evaluation.

    Joins the current run, or starts one with the arguments of `stepscope.init` and ends it with the training, or with
    an evaluation or prediction outside of training. The step is the Trainer's `global_step`, which starts at 1. A run
    that is asked to stop saves a checkpoint and ends, if it has one rank. Raises only ConfigError, at the start of a
    run.
    """

    def __init__(self, **settings: Any) -> None:
        self._callback_run = CallbackRun(settings)
        self._categories = Categories(PREFIXES, kept=("test_",))

    @counted
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Join or start the run."""
        self._callback_run.begin({**_config(args, more.get("model")), "max_steps": state.max_steps})

    @counted
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Enter the step whose values will be logged after it."""
        self._callback_run.enter_step(state.global_step + 1)

    @counted
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Leave the step; save and end the training after it when the run is asked to stop."""
        self._callback_run.leave_step()
        if self._callback_run.is_asked_to_stop:
            control.should_save = control.should_training_stop = True

    @counted
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Record what the Trainer logs."""
        run = self._callback_run.current
        if run is not None and logs:
            for category, values in self._categories.sort(logs).items():
                run.log(values, state.global_step, category)

    @counted
    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Start the evaluation; the Trainer has no earlier callback."""
        self._callback_run.enter_evaluation(lambda: _config(args, more.get("model")))

    @counted
    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the evaluation."""
        self._callback_run.leave_evaluation()

    @counted
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:
        """Record the values of the prediction, which the Trainer does not log, and end it."""
        self.on_log(args, state, control, metrics)
        self._callback_run.leave_evaluation()

    @counted
    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Record a checkpoint."""
        if self._callback_run.current is not None:
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            self._callback_run.current.checkpoint(path, state.global_step)

    @counted
    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """End the run, if it was started here."""
        self._callback_run.end()


def _config(args: Any, model: Any) -> dict[str, Any]:
    config = {"args": args.to_sanitized_dict()}
    if hasattr(getattr(model, "config", None), "to_dict"):
        config["model"] = model.config.to_dict()
    return config
