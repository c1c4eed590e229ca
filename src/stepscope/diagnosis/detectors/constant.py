"""Constant loss: bitwise the same value again and again."""

from stepscope.diagnosis.detector import RunState, judged_once
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


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate how often the value was repeated."""
    if series.same < VALUES or not series.distinct or series.value in SATURATED:
        return None
    text = f"{series.key} has been exactly {number(series.value)} since step {series.same_since}"
    return CONSTANT.about(series, series.same_since, text, (series.lowest, series.highest))


Constant = judged_once("Constant", CONSTANT, ("loss",), judge)
"""Watches one training loss."""
