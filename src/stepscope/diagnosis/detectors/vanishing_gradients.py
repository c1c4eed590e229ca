"""Vanishing gradients: a gradient norm that falls to almost zero while the loss does not."""

import math
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

VANISHING = Kind(
    "vanishing_gradients",
    "ERROR",
    "saturated or dead units, or a detached part of the graph",
    "Look for dead activations, detached tensors and frozen parameters from that step on.",
    explains=("plateau", "constant", "clip_zero"),
    lasts=True,
)
VANISHED = 1e-3
"""Gradients have vanished below this share of their median norm..."""
ROW = 20
"""... for this many values."""
LEAST = 20


class VanishingGradients:
    """Watches one gradient norm."""

    KINDS: ClassVar[tuple[Kind, ...]] = (VANISHING,)
    ROLES: ClassVar[tuple[str, ...]] = ("grad_norm",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_blocks", "_limit", "_low", "_reported", "_run", "_series", "_since")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._reported = series, run, False
        self._low = self._since = self._blocks = 0
        self._limit = 0.0

    def usual(self, ahead: Values) -> int:
        """Count the next norms that are not low."""
        series, limit = self._series, self._limit
        if len(series.middles) != self._blocks:
            return 0
        return len(ahead.steps) if min(ahead.values) >= limit else leading(value >= limit for value in ahead.values)

    def learn(self, taken: Values) -> None:
        """Take norms that are not low."""
        self._low = 0

    def take(self) -> Finding | None:
        """Compare a norm with the median of the first half of the run so far."""
        series = self._series
        if series.value >= self._limit and len(series.middles) == self._blocks:
            self._low = 0
            return None
        if len(series.middles) != self._blocks:
            self._blocks, self._limit = len(series.middles), VANISHED * usual_norm(series)
        if series.count < LEAST or series.value >= self._limit:
            self._low = 0
            return None
        self._low += 1
        if self._low == 1:
            self._since = series.step
        if self._low < ROW or self._reported or has_learnt(series, self._run):
            return None
        self._reported = True
        usual = self._limit / VANISHED
        text = (
            f"{series.key} fell to {number(series.value)} at step {self._since}, usually {number(usual)}: "
            f"gradients vanish"
        )
        weight = math.log(usual / max(series.value, 1e-300))
        return VANISHING.about(series, self._since, text, (usual / 10, usual * 10), weight=weight)


def has_learnt(series: Series, run: RunState) -> bool:
    """Return whether the loss is small enough to explain small gradients."""
    losses = [each for each in run.of_role("loss", series.rank, held_out=False) if each.count]
    return bool(losses) and all(abs(each.value) < 0.05 * abs(each.first_value) for each in losses)


def usual_norm(series: Series) -> float:
    """Return the median of the first half of the run so far; 0 while unknown."""
    count = len(series.middles)
    return max(median(series.middles[: max(count // 2, 2)]), 0.0) if count >= 3 else 0.0
