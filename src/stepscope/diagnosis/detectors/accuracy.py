"""Accuracy drop: an accuracy that falls and stays low."""

import math
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.roles import is_of_one_task
from stepscope.diagnosis.series_history import Series, jitter

DROP = Kind(
    "accuracy_drop",
    "ERROR",
    "the data or labels changed, or weights were damaged",
    "Compare inputs and checkpoint before and after that step.",
    explains=("spike",),
    rules_out="noise of one evaluation: it has lasted",
)
LOST = 0.05
"""An accuracy has dropped when it lost at least this much, absolutely..."""
SIGMAS = 7.0
"""... and this many standard deviations..."""
ROW = 4
"""... for this many values, or three times as many when there is one at every step."""
FORGET = 48
"""After this many low values the level is estimated anew."""


class Accuracy:
    """Watches one accuracy, where higher is better."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DROP,)
    ROLES: ClassVar[tuple[str, ...]] = ("accuracy", "preference_accuracy")
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_blocks", "_floor", "_low", "_reported", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._reported = series, run, False
        self._low = self._blocks = 0
        self._floor = 0.0

    def usual(self, ahead: Values) -> int:
        """Count the next values that are not low."""
        series, floor = self._series, self._floor
        if self._low or len(series.middles) != self._blocks:
            return 0
        return len(ahead.steps) if min(ahead.values) > floor else leading(value > floor for value in ahead.values)

    def learn(self, taken: Values) -> None:
        """Do nothing: they are not low."""

    def take(self) -> Finding | None:
        """Compare a run of low values with the values before it."""
        series = self._series
        if len(series.middles) != self._blocks and not self._low:
            self._blocks = len(series.middles)
            self._floor = max(series.middles[-4:]) - LOST / 2
        if series.value > self._floor:
            self._low = 0
            return None
        self._low += 1
        row = ROW if series.role.held_out or series.spacing > 5 else 3 * ROW
        if self._low < row or self._reported or series.count < 10 + row:
            return None
        if self._low > FORGET:
            self._low = 0
        return self._judge(row)

    def _judge(self, row: int) -> Finding | None:
        series = self._series
        values, steps = list(series.values), list(series.steps)
        before, after = values[-48 - row : -row], values[-row:]
        level, noise = median(before[-8:]), max(jitter(before[-16:]), 0.004)
        least = min(level - noise * SIGMAS / 2, level - LOST, min(before[-8:]) - 2 * noise)
        lost = math.log(max(level, 1e-9) / max(median(after), 1e-9))
        low, forgot = median(after), self._is_forgotten(steps[-row - 3], level, median(after))
        if max(after) > least or (self._run.raised(steps[-row - 3], series.step, lost) and not forgot):
            return None
        self._reported = True
        text = f"{series.key} dropped from {number(level)} to {number(low)} at step {steps[-row]}"
        band = (level - SIGMAS * noise, level + SIGMAS * noise)
        cause, advice = (_FORGOTTEN, _REHEARSE) if forgot else ("", "")
        weight = (level - low) / noise
        return DROP.about(series, steps[-row], text, band, value=low, weight=weight, cause=cause, advice=advice)

    def _is_forgotten(self, since: int, level: float, low: float) -> bool:
        """Return whether this is of one task, and most of it was lost when the next one began."""
        began = any(change.is_task for change in self._run.changed(since, self._series.step))
        return began and is_of_one_task(self._series.key) and low < FORGOTTEN * level


FORGOTTEN = 0.6
"""Below this share of what it was the next task does not explain an accuracy on an earlier one: it was destroyed."""
_FORGOTTEN = "what was learnt for an earlier task was overwritten by the next one"
_REHEARSE = "Mix examples of the earlier tasks in, hold the weights near those that solved them, or lower the rate."
