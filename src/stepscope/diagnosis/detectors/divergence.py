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
    explains=("spike", "level_shift", "accuracy_drop", "exploding_gradients", "overfit", "plateau"),
    lasts=True,
    rules_out="noise: the rise is steady over many values",
)
MIN_BLOCKS = 12
SIGMAS = 8.0
RISE = math.log(1.2)
"""A diverging loss is this far above its minimum, in logarithms."""
STEADY = 0.7


EXPLODED = math.log(3.0)
"""A loss this far above its first values..."""
EXPLODED_BLOCKS = 4
"""... for this many blocks has diverged from the start."""
FROM_START = 40
"""Only the first blocks are judged so."""
WORSE, FIRST, SINCE = math.log(1.2), 3, 24
"""A loss that stays this far above its first values, in logarithms: how many values are first, and how many follow."""
LOST = 0.75
"""An accuracy of the training below this share of its first value got worse."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate the trend since the minimum, and at the start the distance from the first values."""
    middles = series.block_medians()
    if run.reinforcement:
        return None
    if (found := _worse_than_at_first(series, run)) is not None:
        return found
    if len(middles) < MIN_BLOCKS:
        return _from_the_start(series, run, middles)
    if series.block_size == 1:  # each is one value, which may be low by chance
        middles = [median(middles[max(at - 1, 0) : at + 2]) for at in range(len(middles))]
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
    if (
        jump > 0.6 * rise
        or run.raised(series.firsts[at], series.step, rise, epochs=False)
        or rise < 2 * _drawup(middles[:best])
        or run.reweighted(series.rank, series.firsts[at], rise)
    ):
        return None
    low = max(place for place, middle in enumerate(since) if middle <= lowest + max(2.5 * noise, 0.05 * rise))
    begun = series.lasts[at + low]
    was, became = number(series.plain(lowest)), number(series.plain(median(since[-3:])))
    text = f"{series.key} has been rising since step {begun}: from {was} to {became}"
    return DIVERGENCE.about(series, begun, text, series.band(lowest, SIGMAS * noise))


def _from_the_start(series: Series, run: RunState, middles: list[float]) -> Finding | None:
    """Detect a loss that leaves its first values upwards before it has learnt anything."""
    if len(middles) < EXPLODED_BLOCKS + 1 or not series.positive or series.block_size > 5 or series.first_value <= 0:
        return None
    first = math.log(min(median(list(series.values)[:3]), series.first_value))  # the first update may throw it off
    if min(middles[-EXPLODED_BLOCKS:]) - first < EXPLODED or min(middles) < first - 0.1:
        return None
    if any(
        each is not series and each.positive and each.value < each.first_value
        for each in run.of_role("loss", series.rank, held_out=False)
    ):
        return None  # a part, which the others outweigh at first
    worst = series.plain(max(middles))
    text = (
        f"{series.key} was {number(series.plain(first))} at the start and is {number(series.value)} at step "
        f"{series.step}, at most {number(worst)}: it diverges from the first steps on"
    )
    return DIVERGENCE.about(series, series.first_step, text, (0.0, series.plain(first)), weight=worst)


def _worse_than_at_first(series: Series, run: RunState) -> Finding | None:
    """Detect a loss that has been above its first values ever since, while what else is known got worse with it."""
    values = list(series.values)
    if not series.positive or len(values) != series.count or len(values) < FIRST + SINCE or run.resumed is not None:
        return None
    logs = series.on_scale(values)
    first, since = max(logs[0], median(logs[:FIRST]) - WORSE), logs[FIRST:]
    smooth = [median(since[at : at + 5]) for at in range(0, len(since) - 4, 5)]
    if min(smooth) < first + WORSE / 2 or median(since[-SINCE // 2 :]) < first + WORSE:
        return None
    if any(change.is_stage and not change.key.startswith("epoch:") for change in run.changes):
        return None
    if (witness := _got_worse(series, run)) is None:
        return None
    text = (
        f"{series.key} was {number(series.first_value)} at the start and has been above that ever since, at "
        f"{number(series.plain(median(since[-SINCE // 2 :])))} now, and {witness} got worse with it"
    )
    return DIVERGENCE.about(series, series.first_step, text, (0.0, series.first_value), cause=_UNLEARNS)


def _got_worse(series: Series, run: RunState) -> str | None:
    """Return an accuracy of the training that fell, or a held-out loss that is higher than at its first evaluation."""
    for each in run.of_role("accuracy", series.rank, held_out=False):
        values = list(each.values)
        if len(values) == each.count >= FIRST + SINCE and median(values[-SINCE // 2 :]) < LOST * max(values[0], 1e-9):
            return each.key
    for each in run.of_role("loss", series.rank, held_out=True):
        if each.count >= 3 and each.positive and each.value > each.first_value * math.exp(WORSE / 2):
            return each.key
    return None


_UNLEARNS = "a learning rate that is too high: what the model knew is lost, and nothing is learnt"


def _drawup(values: list[float]) -> float:
    """Return the largest rise from an earlier low."""
    low, most = math.inf, 0.0
    for value in values:
        low = min(low, value)
        most = max(most, value - low)
    return most


Divergence = judged_once("Divergence", DIVERGENCE, ("loss",), judge)
"""Watches one training loss."""
