"""Bad resume: a loss that does not continue from the level of the checkpoint."""

import itertools
import math
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, exp, spread

BAD_RESUME = Kind(
    "bad_resume",
    "ERROR",
    "the checkpoint lacks a part of the state (optimizer, schedule, data position), or the wrong one was loaded",
    "Check what the checkpoint restores: weights, optimizer, learning rate schedule, data order, random state.",
    explains=("spike", "level_shift", "divergence", "exploding_gradients", "accuracy_drop", "duplicate_steps"),
    lasts=True,
)
VALUES = 8
"""The number of values compared after a restart."""
WORSE = math.log(1.25)


class Resume:
    """Watches one loss across a restart."""

    KINDS: ClassVar[tuple[Kind, ...]] = (BAD_RESUME,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_after", "_attempt", "_before", "_begun", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._attempt = series, run, run.attempt
        self._before: list[tuple[int, float]] = []
        self._after: list[float] = []
        self._begun = 0

    def usual(self, ahead: Values) -> int:
        """Count all values while no restart is judged."""
        return 0 if self._before or self._run.attempt != self._attempt else len(ahead.steps)

    def learn(self, taken: Values) -> None:
        """Do nothing: only the values around a restart matter."""

    def take(self) -> Finding | None:
        """Compare the first values of an attempt with the previous attempt, at the same steps or the last ones."""
        series = self._series
        if self._run.attempt != self._attempt:
            self._attempt, self._after, self._begun = self._run.attempt, [], series.step
            self._before = list(zip(series.steps, series.values, strict=True))[:-1]
        if not self._before:
            return None
        self._after.append(series.value)
        if len(self._after) < VALUES:
            return None
        found = self._judge() if series.positive else None
        self._before = []
        return found

    def _judge(self) -> Finding | None:
        series = self._series
        near = [value for step, value in self._before if abs(step - self._begun) <= 30 * max(series.spacing, 1)]
        before = series.on_scale(near or [value for _, value in self._before[-30:]])
        if len(before) < 8:
            return None
        after, noise, usual = series.on_scale(self._after), max(spread(before), 0.01), median(before)
        worse = median(after[2:]) - usual
        if worse < max(WORSE, 5 * noise) or min(after[2:]) < usual + 2 * noise:
            return None
        became = exp(median(after))
        text = (
            f"{series.key} was {number(exp(usual))} before the restart and {number(became)} after it, "
            f"at step {self._begun}"
        )
        return BAD_RESUME.about(
            series,
            self._begun,
            text,
            series.band(usual, 5 * noise),
            value=became,
            attempt=self._run.attempt,
            weight=worse / noise,
        )


def judge_exploration(series: Series, run: RunState) -> Finding | None:
    """Find a share of actions by chance that had decayed and begins again."""
    values = list(series.values)
    if len(values) < DECAYED or series.value < AGAIN * series.highest or min(values[-3:-1]) > LEFT * series.highest:
        return None
    if any(b > a for a, b in itertools.pairwise(values[-DECAYED:-1])):
        return None
    text = f"{series.key} begins again at step {series.step}: {number(series.value)}, {number(series.before)} before"
    limits = (0.0, values[-2])
    return BAD_RESUME.about(series, series.step, text, limits, severity="WARN", cause=_SCHEDULE, advice=_RESTORE)


DECAYED, AGAIN, LEFT = 10, 0.7, 0.3
"""In so many values it fell below the last share of its highest one, and is above the other one value later."""
_SCHEDULE = "a restart did not restore the count of steps, by which the exploration decays, and perhaps the memory"
_RESTORE = "Save and load the number of steps and the replay memory with the weights."
ExplorationAgain = judged_once("ExplorationAgain", BAD_RESUME, ("exploration",), judge_exploration, each="value")
"""Watches one share of actions by chance."""
