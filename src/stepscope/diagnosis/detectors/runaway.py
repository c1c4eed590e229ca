"""Runaway: a part of a loss or an estimate that grows without bound, or a loss that falls ever faster below zero."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.divergence import DIVERGENCE
from stepscope.diagnosis.detectors.impossible_loss import IMPOSSIBLE
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series, begun_at, trend

LAST, MIN_BLOCKS = 8, 16
TIMES, STILL = 100.0, 3.0
"""It is so many times what it ever was, and still grows so many times within the last blocks."""
ESTIMATE_TIMES, JUMP = 20.0, 0.6
FASTER = 3.0
"""The last quarter of a fall without bound is so many times the one before it; a healthy fall slows down."""
BELOW = 5.0
"""Such a loss is so many times as far below zero as it was above."""
_OWN_TARGETS = (
    "it learns from targets that contain its own estimates and grow with them (a discount of 1 or more, no target "
    "network), rewards or returns that are not scaled, or a learning rate that is too high"
)
_SIGN = "a term of the loss has the wrong sign, or no lower bound: the model makes it larger for ever"


STEADY_BLOCKS, STEADY_TIMES, STEADY_PART = 32, 20.0, 0.3
"""So many blocks of steady growth to so many times its level, of which no pair of blocks has more than this part."""
REWARDS = 16
"""So many rewards tell whether a policy improves."""
_COEFFICIENT = (
    "a coefficient that is tuned during the training (an entropy coefficient) has the wrong sign or no bound, or "
    f"{_OWN_TARGETS}"
)


def judge(series: Series, run: RunState) -> Finding | None:
    """Look for a part that explodes, or grows steadily though the policy gets no better."""
    return _exploded(series, run) or _steady(series, run)


def _steady(series: Series, run: RunState) -> Finding | None:
    """Compare the last quarter with the second; with a policy that improves, values and their errors grow too."""
    middles, quarter = series.middles, len(series.middles) // 4
    if 4 * quarter < STEADY_BLOCKS or abs(middles[-1]) < STEADY_TIMES * abs(middles[quarter]) or not run.reinforcement:
        return None
    sizes = [max(abs(middle), 1e-300) for middle in middles]
    was, now = median(sizes[quarter : 2 * quarter]), median(sizes[-3:])
    grown = [math.log(size) for size in sizes[2 * quarter :]]
    if (
        now < STEADY_TIMES * was
        or trend(grown) < 0.8
        or now < STILL * sizes[-quarter]
        or sizes[-1] < max(sizes[:quarter])
    ):
        return None
    if max(b - a for a, b in itertools.pairwise(grown)) > STEADY_PART * math.log(now / was) or _improves(series, run):
        return None
    begun = series.firsts[2 * quarter]
    text = (
        f"{series.key} grows steadily, from {number(was)} to {number(now)} since step {begun}, and the reward does not"
    )
    return DIVERGENCE.about(series, begun, text, (-was, was), cause=_COEFFICIENT)


def _improves(series: Series, run: RunState) -> bool:
    """Return whether a reward is higher than half way; True where none is known."""
    known = [each for each in run.of_role("reward", series.rank, held_out=False) if len(each.values) >= REWARDS]
    for each in known:
        middles = each.middles if len(each.middles) >= STEADY_BLOCKS // 2 else list(each.values)
        quarter = len(middles) // 4
        if median(middles[-quarter:]) > median(middles[quarter : 3 * quarter]) + 0.1 * (max(middles) - min(middles)):
            return True
    return not known


def _exploded(series: Series, run: RunState) -> Finding | None:
    """Compare the size of the last blocks with the largest before them."""
    if len(series.middles) < MIN_BLOCKS + LAST or abs(series.middles[-1]) < 2 * abs(series.middles[-LAST]):
        return None
    sizes = [abs(middle) for middle in series.middles]
    estimate = series.role.name == "value_estimate"  # it begins near zero, and has to grow
    earlier, last = max(sizes[: len(sizes) // 2] if estimate else sizes[: -2 * LAST] or sizes[:-LAST]), sizes[-LAST:]
    times = ESTIMATE_TIMES if estimate else TIMES
    if earlier <= 0 or last[-1] < times * earlier or trend(last) < 0.7 or last[-1] < STILL * last[0]:
        return None
    since = [math.log(max(size, 1e-300)) for size in sizes[-3 * LAST :]]
    if max(b - a for a, b in itertools.pairwise(since)) > JUMP * (since[-1] - math.log(earlier)):
        return None  # a jump to another level
    begun = series.firsts[begun_at(sizes, lambda size: size > 1.5 * earlier)]
    if run.raised(begun, series.step):
        return None
    text = f"{series.key} grows without bound since step {begun}: {number(series.middles[-1])}, before at most "
    return DIVERGENCE.about(series, begun, f"{text}{number(earlier)}", (-earlier, earlier), cause=_OWN_TARGETS)


def judge_fall(series: Series, run: RunState) -> Finding | None:
    """Compare the last quarter of a fall below zero with the one before it."""
    middles = series.middles
    if series.positive or len(middles) < MIN_BLOCKS or series.highest <= 0 or run.reinforcement:
        return None
    if middles[-1] > -BELOW * max(median(middles[:3]), 0.0) or middles[-1] > min(middles[:-1]):
        return None
    quarter = len(middles) // 4
    last, before = middles[-quarter - 1] - middles[-1], middles[-2 * quarter - 1] - middles[-quarter - 1]
    if before <= 0 or last < FASTER * before or trend(middles[-quarter - 1 :]) > -0.9:
        return None
    at = next(at for at, middle in enumerate(middles) if middle < 0 and max(middles[at:]) <= 0)
    text = f"{series.key} falls ever faster, below zero since step {series.firsts[at]}: {number(series.value)}"
    return IMPOSSIBLE.about(series, series.firsts[at], text, (min(middles[:at] or [0.0]), series.highest), cause=_SIGN)


Runaway = judged_once("Runaway", DIVERGENCE, ("side_loss", "value_estimate"), judge)
EverFaster = judged_once("EverFaster", IMPOSSIBLE, ("loss",), judge_fall)
"""Watch one part of a loss or an estimate, and one loss."""
