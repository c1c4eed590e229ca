"""Level shift: a loss that jumps up and stays there."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, trend

LEVEL_SHIFT = Kind(
    "level_shift",
    "WARN",
    "the data changed, or the model's weights were damaged",
    "Compare the batches before and after that step.",
    explains=("spike", "accuracy_drop", "divergence"),
    lasts=True,
)
LEAST_BLOCKS = 12
SIGMAS = 8.0
SHIFT = math.log(1.15)
AFTER = 6
"""A shift needs this many blocks at the new level, or this share of all:"""
AFTER_PART = 7


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks with those before."""
    middles = series.block_medians()
    count = len(middles)
    width = max(AFTER, count // AFTER_PART)
    if count < max(LEAST_BLOCKS, width + 6) or run.reinforcement:
        return None
    level = middles[-width - 1]
    if middles[-1] - level < 0.5 * (SHIFT if series.positive else 0.1 * abs(level)):
        return None
    before, after, noise = middles[-width - 6 : -width], middles[-width:], series.noise()
    was, became = median(before), median(after)
    least = SHIFT if series.positive else 0.15 * abs(was)
    up, rise, back = min(after) - max(before), became - was, after[0] - after[-1]
    if up < max(2 * noise, 0.5 * least) or rise < max(least, SIGMAS * noise) or back > 0.2 * rise:
        return None
    if trend(after) > 0.75 and after[-1] - after[0] > 0.5 * rise:
        return None
    begun = series.firsts[-width]
    if run.raised(series.firsts[-width - 2], series.lasts[-width]):
        return None
    text = (
        f"{series.key} went up from {number(series.plain(was))} to {number(series.plain(became))} at step {begun} "
        f"and stayed there"
    )
    return LEVEL_SHIFT.about(series, begun, text, series.band(was, SIGMAS * noise))


LevelShift = judged_once("LevelShift", LEVEL_SHIFT, ("loss",), judge)
"""Watches one training loss."""
