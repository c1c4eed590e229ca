"""Entropy collapse: a policy that no longer explores."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

COLLAPSE = Kind(
    "entropy_collapse",
    "ERROR",
    "the policy has become deterministic",
    "Raise the entropy bonus, or lower the learning rate.",
    explains=("kl_blowup", "clip_zero", "dead_environment", "spike"),
    lasts=True,
)
LEFT = 0.12
"""An entropy has collapsed below this share of its first values..."""
ROW = 8
"""... for this many values, within a small part of the run."""
LEAST = 30


class Entropy:
    """Watches the entropy of one discrete policy."""

    KINDS: ClassVar[tuple[Kind, ...]] = (COLLAPSE,)
    ROLES: ClassVar[tuple[str, ...]] = ("entropy",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_early", "_low", "_reported", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._reported = series, False
        self._early = 0.0
        """The median of the first values; 0 while it is not known."""
        self._low = 0

    def take(self) -> Finding | None:
        """Look for a fall to almost zero within a small part of the run."""
        series = self._series
        if not self._early:
            self._early = median(series.middles[:3]) if len(series.middles) >= 3 and series.first_value > 0 else 0.0
            return None
        if series.value > LEFT * self._early:
            self._low = 0
            return None
        self._low += 1
        if self._low < ROW or self._reported or series.count < LEAST or series.lowest < -1e-3:
            return None
        values, steps = list(series.values), list(series.steps)
        high = [at for at, value in enumerate(values) if value > 0.5 * self._early]
        if not high or len(values) - ROW - high[-1] > max(0.25 * series.count, 12):
            return None
        self._reported = True
        begun, early = steps[high[-1]], self._early
        text = (
            f"{series.key} collapsed from {number(early)} to {number(series.value)} since step {begun}: "
            f"the policy no longer explores"
        )
        return COLLAPSE.about(series, begun, text, (0.3 * early, early))
