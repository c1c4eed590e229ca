"""Reward hacking: a reward that rises with the response length and the KL, or at the cost of what it should measure."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, begun_at, jitter, sure_trend

HACKING = Kind(
    "reward_hacking",
    "WARN",
    "the policy exploits the reward, for instance with longer answers",
    "Read samples of those steps; penalize length, raise the KL penalty.",
    explains=("kl_blowup", "entropy_collapse"),
    lasts=True,
)
LONGER, FARTHER = 1.6, 2.5
MIN_BLOCKS = 14
WELL, FAILS = 0.9, 0.6
"""A policy that had been this near to its best on held-out tasks, and is below this share of it..."""
TRIED, MISSES = 4, 2
"""... for so many evaluations, after more than so many others."""
PART, KEPT, SURE = 0.1, 0.5, 3.5
"""A part of a reward that began above the first value keeps less than the second share of it while the reward rises.
Both trends (Kendall's tau) are at least the third number of standard errors."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Check whether all three rise."""
    if len(series.middles) < MIN_BLOCKS:
        return None
    if (found := _worse_for_it(series, run) or _costs_a_part(series, run)) is not None:
        return found
    lengths = [each for each in run.of_role("length", series.rank) if len(each.middles) >= 12]
    kls = [each for each in run.of_role("kl", series.rank) if len(each.middles) >= 12]
    if not lengths or not kls or not _rises(series.middles):
        return None
    longer, farther = _growth(lengths[0]), _growth(kls[0])
    if longer is None or farther is None or longer[0] < LONGER or farther[0] < FARTHER:
        return None
    begun = min(longer[1], farther[1])
    text = (
        f"{series.key} has been rising since step {begun} together with {lengths[0].key} "
        f"({number(longer[0], 2)} times) and {kls[0].key} ({number(farther[0], 2)} times)"
    )
    return HACKING.about(series, begun, text, (min(series.middles), max(series.middles)))


def _worse_for_it(series: Series, run: RunState) -> Finding | None:
    """Find a reward that rose above all it had been while the accuracy on held-out tasks lost most of its best."""
    for each in run.of_role("accuracy", series.rank, held_out=True):
        values, steps = list(each.values), list(each.steps)
        best = max(values)
        at = max((place for place, value in enumerate(values) if value >= WELL * best), default=-1)
        if at < TRIED or len(values) < at + 1 + MISSES or best <= 0 or max(values[at + 1 :]) > FAILS * best:
            continue
        known = [middle for middle, last in zip(series.middles, series.lasts, strict=True) if last <= steps[at - 1]]
        limit = max(known, default=math.inf) + 4 * max(jitter(series.middles), 1e-9)
        if median(series.middles[-3:]) <= limit:
            continue
        begun = series.firsts[_above(series.middles, limit)]
        text = (
            f"{series.key} has been above all that it was since step {begun}, at {number(series.middles[-1])}, while "
            f"{each.key} fell from {number(best)} to {number(each.value)}"
        )
        return HACKING.about(series, begun, text, (min(series.middles), limit))
    return None


def _costs_a_part(series: Series, run: RunState) -> Finding | None:
    """Find a reward that rises while an accuracy that is one of its parts loses most of what it was."""
    quarter = len(series.middles) // 4
    if sure_trend(series.middles) < SURE or median(series.middles[-quarter:]) <= max(series.middles[:quarter]):
        return None
    for each in (*run.of_role("accuracy", series.rank, held_out=False), *run.of_role("reward", series.rank)):
        if each is series or each.lowest < 0 or each.highest > 1 or len(each.middles) != len(series.middles):
            continue
        was, now = median(each.middles[: max(quarter // 2, 2)]), median(each.middles[-quarter:])
        if was < PART or now > KEPT * was or sure_trend(each.middles) > -SURE:
            continue
        begun = each.firsts[_below(each.middles, (was + now) / 2)]
        text = (
            f"{series.key} rose from {number(series.middles[0])} to {number(series.middles[-1])} while {each.key} fell "
            f"from {number(was)} to {number(now)}, most of it before step {begun}: the "
            "reward rises at the cost of one of its parts"
        )
        return HACKING.about(series, begun, text, (min(series.middles), max(series.middles[:quarter])))
    return None


def _below(middles: list[float], limit: float) -> int:
    return begun_at(middles, lambda middle: middle < limit)


def _above(middles: list[float], limit: float) -> int:
    return begun_at(middles, lambda middle: middle > limit)


def _rises(values: list[float]) -> bool:
    half = len(values) // 2
    risen = median(values[-3:]) - median(values[half - 2 : half + 1])
    return risen > 0 and risen > 3 * max(jitter(values), 1e-9)


def _growth(series: Series) -> tuple[float, int] | None:
    """Return the growth over the level of the first half, and since when; None when it always grew."""
    middles = series.middles
    level, noise = median(middles[: len(middles) // 2]), max(jitter(middles), 1e-9)
    if level <= 0 or middles[-1] <= level + 4 * noise:
        return None
    above = _above(middles, level + 4 * noise)
    if above < 4:
        return None
    before = median(middles[max(above - 8, 0) : above])
    return (median(middles[-2:]) / before if before > 0 else math.inf), series.firsts[above]


RewardHacking = judged_once("RewardHacking", HACKING, ("reward",), judge)
"""Watches one reward together with lengths and KL."""
