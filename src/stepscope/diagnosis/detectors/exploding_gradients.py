"""Exploding gradients: a gradient norm that rises far above its level and stays there."""

import math
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.detectors.gan import is_of_game
from stepscope.diagnosis.detectors.vanishing_gradients import usual_norm
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

EXPLODING = Kind(
    "exploding_gradients",
    "ERROR",
    "a learning rate that is too high, or missing clipping",
    "Clip the gradient norm and lower the learning rate; go back to a checkpoint before that step.",
    explains=("spike", "divergence", "level_shift", "accuracy_drop"),
    lasts=True,
    rules_out="a single bad batch: the norm has stayed high",
)
EXPLODED = 10.0
ROW = 6
HIGHER = 2.0
"""They are this many times higher than ever before: gradients as large as at the start do not explode."""
LEAST = 20
OF_GAME = 100.0
"""The gradients of two networks that play against each other swing by tens: theirs explode from so many times on."""


class ExplodingGradients:
    """Watches one gradient norm."""

    KINDS: ClassVar[tuple[Kind, ...]] = (EXPLODING,)
    ROLES: ClassVar[tuple[str, ...]] = ("grad_norm",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_blocks", "_limit", "_reported", "_row", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._reported = series, run, False
        self._row = self._blocks = 0
        self._limit = math.inf

    def usual(self, ahead: Values) -> int:
        """Count the next norms that are not high."""
        series, limit = self._series, self._limit
        if len(series.middles) != self._blocks:
            return 0
        return len(ahead.steps) if max(ahead.values) < limit else leading(value < limit for value in ahead.values)

    def learn(self, taken: Values) -> None:
        """Take norms that are not high."""
        self._row = 0

    def take(self) -> Finding | None:
        """Compare a run of high norms with the median of the first half of the run so far."""
        series = self._series
        if len(series.middles) != self._blocks:
            self._blocks = len(series.middles)
            self._limit = EXPLODED * usual_norm(series) or math.inf
        if series.value < self._limit or series.count < LEAST:
            self._row = 0
            return None
        self._row += 1
        if self._row < ROW or self._reported:
            return None
        before, limit = list(series.values)[:-ROW], self._limit
        if not before or sum(value > limit for value in before) > 0.1 * len(before) + ROW:
            return None
        begun, usual = _first_above(series, limit / 3), limit / EXPLODED
        earlier = [middle for middle, last in zip(series.middles, series.lasts, strict=True) if last < begun]
        if earlier and series.value < HIGHER * max(earlier):
            return None
        if is_of_game(series, self._run) and series.value < OF_GAME * usual:
            return None
        self._reported = True
        rose = f"{series.key} rose to {number(series.value)}, usually {number(usual)}, since step {begun}"
        weight = math.log(max(series.value / usual, 1.0))
        return EXPLODING.about(series, begun, f"{rose}: gradients explode", (usual / 10, usual * 10), weight=weight)


def _first_above(series: Series, limit: float) -> int:
    """Return the step at which the last unbroken run of values above a limit began."""
    begun = series.step
    for step, value in zip(reversed(series.steps), reversed(series.values), strict=True):
        if value < limit:
            break
        begun = step
    return begun
