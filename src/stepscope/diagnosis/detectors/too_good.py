"""Too good: a loss that suddenly falls far below its trend, as when one batch is repeated or the target leaks."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, roughness

TOO_GOOD = Kind(
    "too_good",
    "WARN",
    "the loader repeats one batch, or the target can be seen in the input",
    "Compare the inputs of two steps after that one; check the sampler's state, the shift of targets and the mask.",
    explains=("spike", "vanishing_gradients", "plateau", "constant", "overfit"),
    lasts=True,
    rules_out="ordinary progress: the fall is far below the trend",
)
LEAST = 100
AFTER = 40
"""The values since the fall began, at least."""
BEFORE = 60
REPEATED, SAME = 0.3, 0.15
"""Of one repeated batch the loss varies by less than this share of its usual variation..."""
FALL, SMALL_FALL = math.log(1.25), math.log(1.12)
"""... while it falls at least this far below its trend."""
LEAKED = math.log(5.0)
"""A fall this far is too good without that."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values with the trend and the variation of those before."""
    if series.count < LEAST or not series.positive or run.reinforcement or len(series.values) < AFTER + BEFORE:
        return None
    back = -2 - AFTER // series.block_size
    if len(series.scaled) < -back or series.scaled[-1] > series.scaled[back] - 0.5 * SMALL_FALL:
        return None
    values = series.on_scale(list(series.values))
    steps = list(series.steps)
    after, before = values[-AFTER:], values[-AFTER - BEFORE : -AFTER]
    third = BEFORE // 3
    was, earlier = median(before[-third:]), median(before[:third])
    slope = max(earlier - was, 0.0) / (BEFORE - third)
    fall = was - median(after[-AFTER // 4 :])
    below = fall - slope * AFTER
    usual, now = roughness(before), roughness(after)
    least = SMALL_FALL if now < SAME * usual else FALL
    if below < max(least, 1.5 * usual) or run.changed(steps[-AFTER - BEFORE], series.step, epochs=False):
        return None
    lowest = min(series.block_medians()[: -AFTER // series.block_size], default=was)
    if median(after[-AFTER // 4 :]) > lowest - 0.5 * least:
        return None
    repeated = now < REPEATED * usual and usual > 0.005
    leaked = below > LEAKED and fall > 3 * (earlier - was) and _sudden(after, fall) and fall > 8 * usual
    if not (repeated or leaked):
        return None
    begun = steps[-AFTER + _turn(after, was, usual)]
    if run.restaged(begun - 10, begun + 3):
        return None  # data that was seen before is better known
    text = f"{series.key} fell from {number(series.plain(was))} to {number(series.value)} since step {begun}"
    smooth = (
        f"{text}, and varies {number(usual / max(now, 1e-9), 2)} times less from step to step: one batch is repeated"
    )
    return TOO_GOOD.about(
        series,
        begun,
        smooth if repeated else f"{text}: far below its trend",
        series.band(was - slope * AFTER, 4 * usual),
        weight=below,
    )


def _sudden(after: list[float], fall: float) -> bool:
    quarter = len(after) // 4
    return (
        median(after[:quarter]) - median(after[quarter : 2 * quarter]) > 0.5 * fall
        or after[0] - min(after[:5]) > 0.5 * fall
    )


def _turn(after: list[float], was: float, usual: float) -> int:
    """Return the first of the values from which all are below the old level."""
    at = len(after) - 1
    while at > 0 and after[at - 1] < was - usual:
        at -= 1
    return at


TooGood = judged_once("TooGood", TOO_GOOD, ("loss",), judge)
"""Watches one training loss."""
