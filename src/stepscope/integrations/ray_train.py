"""Callbacks for Ray Train, which runs in its controller process, and for Ray Tune, which runs in the driver."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from ray import cloudpickle
from ray.train import UserCallback
from ray.tune import Callback

import stepscope
from stepscope.extend import Refused, join_as_member, step_number
from stepscope.integrations.callback_run import CallbackRun, counted
from stepscope.model.names import EVENT_CONFIG, STEP_FIELDS

REPORTS = "report"
"""The axis of values without a step: the number of the report."""
ITERATIONS = "training_iteration"
STEP_KEYS = (*STEP_FIELDS, ITERATIONS)
TRIAL = "tune.trial"
_NO_METRICS = frozenset((
    "pid", "timestamp", "done", "iterations_since_restore", "time_since_restore", "training_iteration",
    "time_total_s",
))  # fmt: skip
FLUSH_SECONDS = 1.0


class StepscopeTrainCallback(UserCallback):  # type: ignore[misc]
    """Records the reports of workers: those of the first under `trainer/`, of others under `trainer/worker_N/`.

    The step is the first integer among the report's `STEP_KEYS`, by priority, else the number of the report. The run is
    the one that was current where the callback was created, and that process ends it; without one, the controller
    starts a run with the arguments of `stepscope.init`.
    """

    def __init__(self, **settings: Any) -> None:
        run = stepscope.current_run()
        self._another = None if run is None else {"run_id": run.id, "project": run.project, "home": str(run.home)}
        self._settings = settings
        self._callback_run: CallbackRun | None = None
        self._reports = 0

    def _run(self, context: Any) -> stepscope.Run | None:
        if self._callback_run is None:
            self._callback_run = CallbackRun({"probes": False, **self._settings, **(self._another or {})})
            run = self._callback_run.begin({"ray": str(getattr(context.run_config, "name", ""))})
            if self._another is not None:
                join_as_member(run)
        return self._callback_run.current

    @counted
    def after_report(self, run_context: Any, metrics: Sequence[Mapping[str, Any]], checkpoint: Any) -> None:
        """Record a report of all workers."""
        run = self._run(run_context)
        if run is None:
            return
        step, axis = _step(metrics[0], self._reports)
        self._reports += 1
        for rank, values in enumerate(metrics):
            run.log({f"worker_{rank}": values} if rank else values, step, "trainer", axis=axis)
        if checkpoint is not None:
            run.event("train.checkpoint", {"path": str(checkpoint.path)}, step=step)
        run.flush(FLUSH_SECONDS)  # this process is not notified of its end

    @counted
    def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, BaseException]) -> None:
        """Record the workers' exceptions; workers that Ray restarts continue the same run."""
        run = self._run(run_context)
        if run is not None:
            for rank, error in worker_exceptions.items():
                attrs: dict[str, Any] = {"ray.worker": rank}
                run.exception(error, **attrs)
            run.flush(FLUSH_SECONDS)


class StepscopeTuneCallback(Callback):  # type: ignore[misc]
    """Records the results of each trial under `trainer/TRIAL/`, by training iteration, and a span for each trial.

    Joins the current run, or starts one with the arguments of `stepscope.init` and ends it with the experiment, as
    failed if all trials failed.
    """

    def __init__(self, **settings: Any) -> None:
        self._callback_run = CallbackRun(settings)
        self._spans: dict[str, Any] = {}
        self._failed: set[str] = set()

    @counted
    def setup(self, *arguments: Any, **info: Any) -> None:
        """Join or start the run."""
        self._callback_run.begin({})

    @counted
    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """Start a trial's span and record its configuration."""
        run = self._callback_run.current
        if run is not None and trial.trial_id not in self._spans:
            self._spans[trial.trial_id] = run.span(TRIAL, **{"tune.trial.id": trial.trial_id})
            run.event(EVENT_CONFIG, {"tune.trial.id": trial.trial_id, **trial.config})

    @counted
    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Mapping[str, Any], **info: Any) -> None:
        """Record a result."""
        run = self._callback_run.current
        values = {key: value for key, value in result.items() if key not in _NO_METRICS and _is_number(value)}
        if run is not None and values:
            run.log({trial.trial_id: values}, result.get(ITERATIONS), "trainer", axis=ITERATIONS)

    @counted
    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """End a trial's span."""
        span = self._spans.pop(trial.trial_id, None)
        if span is not None:
            span.end()

    @counted
    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """End a trial's span with its error."""
        self._failed.add(trial.trial_id)
        error = _error(trial)
        span = self._spans.pop(trial.trial_id, None)
        if span is not None:
            span.fail(error)
            span.end()
        if self._callback_run.current is not None:
            self._callback_run.current.exception(error, **{"tune.trial.id": trial.trial_id})

    @counted
    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """End the run, if it was started here."""
        for span in self._spans.values():
            span.end()
        self._spans.clear()
        failed = bool(trials) and all(trial.trial_id in self._failed for trial in trials)
        self._callback_run.end("failed" if failed else "finished")


def _step(metrics: Mapping[str, Any], reports: int) -> tuple[int, str | None]:
    for key in STEP_KEYS:
        value = metrics.get(key)
        if isinstance(value, bool):
            continue
        try:
            return step_number(value), None if key == "step" else key
        except Refused:
            continue
    return reports, REPORTS


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _error(trial: Any) -> BaseException:
    """The exception of a trial, which Ray stores in a file on the driver."""
    try:
        with open(trial.pickled_error_file, "rb") as file:
            error = cloudpickle.load(file)
    except Exception as unreadable:
        return RuntimeError(f"the trial failed, and its error cannot be read ({type(unreadable).__name__})")
    return error if isinstance(error, BaseException) else RuntimeError(str(error))
