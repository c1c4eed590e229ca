"""Divergence: a loss that rises steadily from its minimum."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, trend

DIVERGENCE = Kind(
    "divergence",
    "ERROR",
    "a learning rate that is too high for this phase",
    "Go back to an earlier checkpoint and lower the learning rate.",
    explains=("spike", "level_shift", "accuracy_drop", "exploding_gradients", "overfit"),
    lasts=True,
)
LEAST_BLOCKS = 12
SIGMAS = 8.0
RISE = math.log(1.2)
"""A diverging loss is this far above its minimum, in logarithms."""
STEADY = 0.7


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate the trend since the minimum."""
    middles = series.block_medians()
    if len(middles) < LEAST_BLOCKS or run.reinforcement:
        return None
    lowest = min(middles)
    rise = median(middles[-3:]) - lowest
    if rise < (RISE if series.positive else 0.12 * abs(lowest)):
        return None
    best, noise = middles.index(lowest), series.noise()
    since = middles[best:]
    if len(since) < max(8, len(middles) // 10) or rise < SIGMAS * noise or trend(since) < STEADY:
        return None
    jump = max(b - a for a, b in itertools.pairwise(since))
    at = len(series.firsts) - len(middles) + best
    if jump > 0.6 * rise or run.raised(series.firsts[at], series.step) or rise < 2 * _drawup(middles[:best]):
        return None
    begun = series.lasts[at]
    was, became = number(series.plain(lowest)), number(series.plain(median(since[-3:])))
    text = f"{series.key} has been rising since step {begun}: from {was} to {became}"
    return DIVERGENCE.about(series, begun, text, series.band(lowest, SIGMAS * noise))


def _drawup(values: list[float]) -> float:
    """Return the largest rise from an earlier low."""
    low, most = math.inf, 0.0
    for value in values:
        low = min(low, value)
        most = max(most, value - low)
    return most


Divergence = judged_once("Divergence", DIVERGENCE, ("loss",), judge)
"""Watches one training loss."""
