"""Gradient norms that fall to almost zero while the loss does not, or rise far above their level and stay there."""

import math
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.detectors.gan import is_of_game
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
EXPLODING = Kind(
    "exploding_gradients",
    "ERROR",
    "a learning rate that is too high, or missing clipping",
    "Clip the gradient norm and lower the learning rate; go back to a checkpoint before that step.",
    explains=("spike", "divergence", "level_shift", "accuracy_drop"),
    lasts=True,
    rules_out="a single bad batch: the norm has stayed high",
)
VANISHED, EXPLODED = 1e-3, 10.0
"""Gradients have vanished below this share of their median norm, and exploded above this many times it..."""
LOW_ROW, HIGH_ROW = 20, 6
"""... for this many values."""
HIGHER = 2.0
"""They are this many times higher than ever before: gradients as large as at the start do not explode."""
LEAST = 20
OF_GAME = 100.0
"""The gradients of two networks that play against each other swing by tens: theirs explode from so many times on."""


class GradientNorms:
    """Watches one gradient norm."""

    KINDS: ClassVar[tuple[Kind, ...]] = (VANISHING, EXPLODING)
    ROLES: ClassVar[tuple[str, ...]] = ("grad_norm",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_blocks", "_high", "_low", "_reported", "_run", "_series", "_usual")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._low = self._high = self._blocks = 0
        """How many of the last norms were low, and how many high."""
        self._usual = 0.0
        self._reported: set[Kind] = set()

    def _limits(self) -> tuple[float, float]:
        return VANISHED * self._usual, EXPLODED * self._usual or math.inf

    def usual(self, ahead: Values) -> int:
        """Count the next norms that are neither low nor high."""
        if len(self._series.middles) != self._blocks:
            return 0
        (low, high), values = self._limits(), ahead.values
        if min(values) >= low and max(values) < high:
            return len(values)
        return leading(low <= value < high for value in values)

    def learn(self, taken: Values) -> None:
        """Take norms that are neither low nor high."""
        self._low = self._high = 0

    def take(self) -> Finding | None:
        """Compare a norm with the median of the first half of the run so far."""
        series = self._series
        if len(series.middles) != self._blocks:
            self._blocks, self._usual = len(series.middles), usual_norm(series)
        low, high = self._limits()
        enough, value = series.count >= LEAST, series.value
        self._low = self._low + 1 if value < low and enough else 0
        self._high = self._high + 1 if value >= high and enough else 0
        found = None
        if self._low >= LOW_ROW and VANISHING not in self._reported:
            found = self._vanished()
        elif self._high >= HIGH_ROW and EXPLODING not in self._reported:
            found = self._exploded(high)
        return found

    def _vanished(self) -> Finding | None:
        series, usual = self._series, self._usual
        if has_learnt(series, self._run):
            return None
        self._reported.add(VANISHING)
        begun = series.steps[-min(self._low, len(series.steps))]
        text = f"{series.key} fell to {number(series.value)} at step {begun}, usually {number(usual)}: gradients vanish"
        weight = math.log(usual / max(series.value, 1e-300))
        return VANISHING.about(series, begun, text, (usual / 10, usual * 10), weight=weight)

    def _exploded(self, limit: float) -> Finding | None:
        series, usual = self._series, self._usual
        before = list(series.values)[:-HIGH_ROW]
        if not before or sum(value > limit for value in before) > 0.1 * len(before) + HIGH_ROW:
            return None
        begun = series.begun(lambda value: value >= limit / 3)
        earlier = [middle for middle, last in zip(series.middles, series.lasts, strict=True) if last < begun]
        if earlier and series.value < HIGHER * max(earlier):
            return None
        if is_of_game(series, self._run) and series.value < OF_GAME * usual:
            return None
        self._reported.add(EXPLODING)
        rose = f"{series.key} rose to {number(series.value)}, usually {number(usual)}, since step {begun}"
        weight = math.log(max(series.value / usual, 1.0))
        return EXPLODING.about(series, begun, f"{rose}: gradients explode", (usual / 10, usual * 10), weight=weight)


def has_learnt(series: Series, run: RunState) -> bool:
    """Return whether the loss is small enough to explain small gradients."""
    losses = [each for each in run.of_role("loss", series.rank, held_out=False) if each.count]
    return bool(losses) and all(abs(each.value) < 0.05 * abs(each.first_value) for each in losses)


def usual_norm(series: Series) -> float:
    """Return the median of the first half of the run so far; 0 while unknown."""
    count = len(series.middles)
    return max(median(series.middles[: max(count // 2, 2)]), 0.0) if count >= 3 else 0.0
