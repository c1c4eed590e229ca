"""A constant: a loss that does not change by a single bit."""

from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series import Series

CONSTANT = Kind(
    "constant",
    "ERROR",
    "the computation is cut off from its inputs: a dead model, or a value that is no longer updated",
    "Check whether weights and inputs still change.",
)
VALUES = 30
SATURATED = (0.0, 1.0)
"""Values at which a healthy loss may stay."""


class Constant:
    """Watches one loss of training."""

    KINDS: ClassVar[tuple[Kind, ...]] = (CONSTANT,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_said", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._said = series, False

    def take(self) -> Finding | None:
        """Judge how often the same value came."""
        series = self._series
        if series.same < VALUES or self._said or not series.distinct or series.value in SATURATED:
            return None
        self._said = True
        text = f"{series.key} has been exactly {number(series.value)} since step {series.same_since}"
        return CONSTANT.about(series, series.same_since, text, (series.lowest, series.highest))
