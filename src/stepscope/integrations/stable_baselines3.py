"""A callback for Stable-Baselines3: logged values, and spans of sampling and training."""

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

import stepscope
from stepscope.integrations.callback_run import CallbackRun, Categories, counted

AXIS = "timesteps"
PREFIXES = {"train/": "trainer", "rollout/": "actor", "eval/": "evaluator"}
SAMPLE, TRAIN = "rl.sample", "rl.train"
_SAID = ("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "ent_coef", "vf_coef", "seed",
         "buffer_size", "learning_starts", "tau", "train_freq", "gradient_steps", "n_envs", "policy_class")  # fmt: skip


class _Writer(KVWriter):  # type: ignore[misc]
    """Receives the values of the algorithm's logger."""

    def __init__(self, run: stepscope.Run) -> None:
        self._run = run
        self._categories = Categories(PREFIXES, "misc")

    @counted
    def write(self, key_values: Mapping[str, Any], key_excluded: Mapping[str, Any], step: int = 0) -> None:
        """Record values; the step is the number of timesteps."""
        for category, values in self._categories.sort(key_values).items():
            self._run.log(values, step, category, axis=AXIS)

    def close(self) -> None:
        """Do nothing."""


class StepscopeCallback(BaseCallback):  # type: ignore[misc]
    """Records `train/*` under `trainer/`, `rollout/*` under `actor/`, `eval/*` under `evaluator/`, the rest `misc/`.

    The step is the number of timesteps, on the axis `timesteps`. Joins the current run, or starts one with the
    arguments of `stepscope.init` and ends it with `learn`, which returns early when the run is asked to stop.
    """

    def __init__(self, *, verbose: int = 0, **settings: Any) -> None:
        super().__init__(verbose)
        self._callback_run = CallbackRun(settings)

    @counted
    def _on_training_start(self) -> None:
        parameters = {key: getattr(self.model, key) for key in _SAID if hasattr(self.model, key)}
        run = self._callback_run.begin({"algorithm": type(self.model).__name__, **parameters})
        self._remove_writers()  # one may be left after an exception
        self.logger.output_formats.append(_Writer(run))

    @counted
    def _on_rollout_start(self) -> None:
        self._callback_run.leave_phase(TRAIN)
        self._callback_run.enter(SAMPLE, "productive")

    @counted
    def _on_rollout_end(self) -> None:
        self._callback_run.leave_phase(SAMPLE)
        self._callback_run.enter(TRAIN, "productive")

    def _on_step(self) -> bool:
        return not self._callback_run.is_asked_to_stop

    @counted
    def _on_training_end(self) -> None:
        self._remove_writers()
        self._callback_run.end()

    def _remove_writers(self) -> None:
        formats = self.logger.output_formats
        formats[:] = [each for each in formats if not isinstance(each, _Writer)]
