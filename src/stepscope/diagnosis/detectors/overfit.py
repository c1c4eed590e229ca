"""Overfitting: a held-out loss that rises while the loss of training falls."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series import Series, jitter, trend

OVERFIT = Kind(
    "overfit",
    "WARN",
    "the model learns the training data by heart",
    "Stop at the checkpoint near the lowest held-out loss; add data or regularization.",
)
EVALUATIONS = 5
"""A held-out loss must rise over so many evaluations..."""
RISE = 0.06
"""... by so much of its lowest."""


class Overfit:
    """Watches one held-out loss beside the loss of training."""

    KINDS: ClassVar[tuple[Kind, ...]] = (OVERFIT,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = True
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_run", "_said", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._said = series, run, False

    def take(self) -> Finding | None:
        """Judge the evaluations since the best."""
        series = self._series
        if self._said or not series.positive or series.value < series.lowest * (1 + RISE / 2) or series.count < 8:
            return None
        values, steps = list(series.values), list(series.steps)
        lowest = min(values)
        best = values.index(lowest)
        since = values[best:]
        if len(since) <= EVALUATIONS:
            return None
        rise = median(since[-3:]) / lowest - 1
        noise = jitter(series.on_scale(values))
        if rise < max(RISE, 5 * noise) or trend(since) < 0.6 or not self._training_falls(steps[best]):
            return None
        self._said = True
        text = (
            f"{series.key} has been rising since step {steps[best]} ({number(lowest)} to "
            f"{number(median(since[-3:]))}) while the loss of training falls"
        )
        return OVERFIT.about(
            series, steps[best], text, (lowest * (1 - 5 * noise), lowest * (1 + 5 * noise)), weight=rise
        )

    def _training_falls(self, since: int) -> bool:
        for other in self._run.of_role("loss", self._series.rank, held_out=False):
            middles = [middle for middle, last in zip(other.middles, other.lasts, strict=True) if last >= since]
            if len(middles) >= 4 and median(middles[-2:]) < median(middles[:2]) and trend(middles) < -0.3:
                return True
        return False
