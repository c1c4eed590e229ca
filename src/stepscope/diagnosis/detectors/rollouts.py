"""Rollouts that teach nothing: groups without a spread, cut-off answers, old ones, or those of another policy."""

import math
import re
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

ZERO_ADVANTAGE = Kind(
    "zero_advantage",
    "ERROR",
    "all answers of a group get the same reward and every advantage is 0: the task is too hard, or the reward is dead",
    "Read the answers and their rewards; mix in easier prompts, raise the temperature, or filter such groups.",
    explains=("vanishing_gradients", "constant", "clip_zero", "plateau"),
    lasts=True,
    rules_out="a task that is solved: the rewards are not high",
)
TRUNCATION = Kind(
    "truncation",
    "WARN",
    "answers reach the length limit before they end: they grow without end, or the end token is not sampled any more",
    "Read a cut-off answer; raise the limit, mask or punish cut-off answers, check the end token of the sampler.",
    explains=("reward_collapse", "zero_advantage"),
    lasts=True,
)
MISMATCH = Kind(
    "mismatch",
    "WARN",
    "sampler and trainer compute other probabilities for the same tokens: other weights, precision or kernels",
    "Compare log-probabilities of one answer in both; check the weight sync, the dtype and the sampling parameters.",
    explains=("kl_blowup", "spike"),
    lasts=True,
)
STALE = Kind(
    "stale_rollouts",
    "WARN",
    "rollouts wait for the trainer: they come from a policy that is many updates old",
    "Lower the number of rollouts in flight, or the limit of their age.",
)
WAITING = Kind(
    "waiting",
    "WARN",
    "the trainer is idle most of the time: the rollouts are the bottleneck",
    "Give the sampler more devices or shorter answers; let rollouts run ahead of the trainer.",
)
MOE = Kind(
    "moe_imbalance",
    "WARN",
    "the router sends most tokens to a few experts",
    "Raise the balancing loss or its bias update; look at the load of each expert.",
    explains=("level_shift", "spike"),
    lasts=True,
)
ROW = 20
EQUAL, TRUNCATED, CUT = 0.95, 0.5, 0.3
FEW = 128
NO_SPREAD = 1e-3
"""A spread below this share of its highest value is none."""
BEST = 0.9
"""A reward above this share of its range is high: that all answers are alike is no fault then."""
MAX_KL, GROWN, MIN_DIFFERENCE = 0.1, 10.0, 1e-3
RATIO = (0.5, 2.0)
MIN_SAMPLE_SIZE = 0.3
IDLE = 0.5
BALANCED, UNBALANCED, LOADED = 2.0, 3.0, 0.4
"""How many times as uneven as usual, and at least so much: a ratio, or the share of one expert."""
BALANCING = re.compile(r"balanc|(moe|router)[/_.]aux")
"""A part of the loss that grows when tokens go to few experts."""


def _last(series: Series, count: int = ROW) -> list[float]:
    return list(series.values)[-count:]


def rewards_are_high(series: Series, run: RunState) -> bool:
    """Return whether a reward is near the best that it was: what is solved teaches nothing more."""
    for each in run.of_role("reward", series.rank, held_out=False):
        if each.middles and each.highest > each.lowest:
            return (each.middles[-1] - each.lowest) > BEST * (each.highest - each.lowest)
    return False


def _judge_groups(series: Series, run: RunState) -> Finding | None:
    if series.role.name == "equal_groups" and not any(word in series.key for word in ("bad", "none", "pct_0")):
        return None
    recent = _last(series)
    if len(recent) < ROW or min(recent) < EQUAL * 0.9 or median(recent) < EQUAL or rewards_are_high(series, run):
        return None
    begun = series.begun(lambda value: value >= EQUAL * 0.9)
    text = f"{series.key} has been {number(median(recent))} since step {begun}: no group has a spread of rewards"
    return ZERO_ADVANTAGE.about(series, begun, text, (0.0, EQUAL))


def _judge_spread(series: Series, run: RunState) -> Finding | None:
    """Judge the spread of rewards, or of advantages, in a batch."""
    recent = _last(series)
    least = NO_SPREAD * max(series.highest, 0.0)
    if len(recent) < ROW or series.count < 2 * ROW or max(recent) > least or rewards_are_high(series, run):
        return None
    begun = series.begun(lambda value: value <= least)
    text = f"{series.key} has been {number(median(recent))} since step {begun}: all answers get the same reward"
    return ZERO_ADVANTAGE.about(series, begun, text, (least, series.highest))


def _judge_truncation(series: Series, run: RunState) -> Finding | None:
    recent = _last(series)
    if len(recent) < ROW or min(recent) < 0.8 * TRUNCATED or median(recent) < TRUNCATED or not series.middles:
        return None
    least = min(series.middles)
    if series.count <= FEW:  # the first values are still known, and may be all that was usual
        least = min(least, median(list(series.values)[:3]))
    if median(recent) - least < CUT and not (min(recent) > 0.9 and series.count >= 3 * ROW):
        return None
    limit = min(0.5 * (least + median(recent)), TRUNCATED)
    begun = series.begun(lambda value: value >= limit)
    now = number(median(recent))
    text = f"{series.key} has been {now} since step {begun}, {number(least)} before: answers are cut off"
    return TRUNCATION.about(series, begun, text, (0.0, TRUNCATED))


def _ends_by_itself(series: Series, found: Finding) -> bool:
    """Return whether answers have become short again: their length was learnt after all."""
    return max(_last(series)) < CUT


def _judge_mismatch(series: Series, run: RunState) -> Finding | None:
    """Judge a difference or KL, of which 0 is right."""
    recent = [abs(value) for value in _last(series, 8)]
    if series.count < ROW or len(series.middles) < 3:
        return None
    usual = median([abs(middle) for middle in series.middles[: max(len(series.middles) // 2, 2)]])
    limit = max(GROWN * usual, MIN_DIFFERENCE)
    if series.role.name == "mismatch_kl":
        limit = min(max(GROWN * usual, 0.01), max(MAX_KL, 3 * usual))
    if min(recent) < limit:
        return None
    begun = series.begun(lambda value: value >= limit) if series.positive else series.steps[-8]
    text = f"{series.key} rose to {number(series.value)} at step {begun}, usually {number(usual)}"
    return MISMATCH.about(
        series, begun, text, (0.0, limit), weight=math.log(max(median(recent) / max(usual, 1e-12), 1.0))
    )


def _judge_ratio(series: Series, run: RunState) -> Finding | None:
    """Judge a ratio or a correlation, of which 1 is right, or an effective sample size."""
    recent = _last(series, 10)
    low, high = (MIN_SAMPLE_SIZE, math.inf) if series.role.name == "ess" else RATIO
    if series.count < ROW or not (max(recent) < low or min(recent) > high):
        return None
    begun = series.begun(lambda value: value <= low) if max(recent) < low else series.begun(lambda value: value >= high)
    band = (low, min(high, 1.0) if series.role.name == "ess" else high)
    now = number(median(recent))
    text = f"{series.key} has been {now} since step {begun}, expected {number(low)} to {number(band[1])}"
    return MISMATCH.about(series, begun, text, band)


def _judge_waiting(series: Series, run: RunState) -> Finding | None:
    recent = _last(series)
    if len(recent) < ROW or series.count < 2 * ROW:
        return None
    share = median(recent)
    if series.role.name == "idle_time":
        steps = [each for each in run.of_role("step_time", series.rank) if len(each.values) >= ROW]
        if not steps:
            return None
        share = median(recent) / max(median(_last(steps[0])), 1e-9)
    if share < IDLE:
        return None
    text = f"{series.key} takes {share:.0%} of a step"
    return WAITING.about(series, series.steps[-ROW], text, (0.0, IDLE))


def _judge_balance(series: Series, run: RunState) -> Finding | None:
    if len(series.middles) < 10:
        return None
    least = LOADED if series.role.name == "moe_load" and series.highest <= 1.0 else UNBALANCED
    if series.role.name == "side_loss":
        if not BALANCING.search(series.key):
            return None
        least = 0.0
    if (found := _one_expert(series)) is not None:
        return found
    usual, now = median(series.middles[: len(series.middles) // 2]), median(series.middles[-3:])
    if now < max(least, BALANCED * usual) or min(series.middles[-3:]) < max(series.middles[2:-4], default=0.0):
        return None
    text = f"{series.key} rose to {number(now)}, usually {number(usual)}, at step {series.firsts[-3]}"
    return MOE.about(series, series.firsts[-3], text, (0.0, BALANCED * usual))


def _one_expert(series: Series) -> Finding | None:
    """Find a share of the most used expert that has been near 1 for long, from the start or not."""
    recent = series.middles[-ONE_BLOCKS:]
    if series.role.name != "moe_load" or "max" not in series.key or series.highest > 1.001 or min(recent) < ONE:
        return None
    if len(recent) < ONE_BLOCKS:
        return None
    begun = next(first for at, first in enumerate(series.firsts) if min(series.middles[at:]) >= ONE)
    text = (
        f"{series.key} has been above {number(ONE)} since step {begun}, {number(series.value)} now: one expert gets all"
    )
    return MOE.about(series, begun, text, (0.0, ONE))


ONE, ONE_BLOCKS = 0.8, 12
"""The share of one expert that gets nearly all tokens, for so many blocks."""


def _judge_router(series: Series, run: RunState) -> Finding | None:
    """Judge the entropy of a router where no load of its experts is logged: it may be sure of each token and fair."""
    middles = series.middles
    if len(middles) < ROUTED + 3 or series.lowest < -1e-3:
        return None
    was, now = median(middles[:3]), max(middles[-ROUTED:])
    if was < SOME or now > LEFT * was or _has_load(series, run):
        return None
    begun = next(first for first, middle in zip(series.firsts, middles, strict=True) if middle <= 0.5 * was)
    text = f"{series.key} fell from {number(was)} to {number(series.value)} since step {begun}: few experts are chosen"
    return MOE.about(series, begun, text, (LEFT * was, was))


ROUTED, SOME, LEFT = 8, 0.3, 0.12
"""For so many blocks the entropy of a router that had some is below this share of its first values."""


def _has_load(series: Series, run: RunState) -> bool:
    """Return whether a load or a balancing loss is known, which tells more."""
    loads = [each for role in ("moe_load", "moe_balance") for each in run.of_role(role, series.rank)]
    return bool(loads) or any(BALANCING.search(each.key) for each in run.of_role("side_loss", series.rank))


ZeroAdvantage = judged_once(
    "ZeroAdvantage", ZERO_ADVANTAGE, ("zero_advantage", "equal_groups"), _judge_groups, each="value"
)
NoSpread = judged_once("NoSpread", ZERO_ADVANTAGE, ("reward_spread",), _judge_spread, each="value")
Truncation = judged_once(
    "Truncation", TRUNCATION, ("truncation",), _judge_truncation, each="value", over=_ends_by_itself
)
Mismatch = judged_once("Mismatch", MISMATCH, ("mismatch", "mismatch_kl"), _judge_mismatch, each="value")
MatchRatio = judged_once("MatchRatio", MISMATCH, ("match_ratio", "ess"), _judge_ratio, each="value")
Waiting = judged_once("Waiting", WAITING, ("idle_time", "idle_share"), _judge_waiting)
MoeBalance = judged_once("MoeBalance", MOE, ("moe_balance", "moe_load", "side_loss"), _judge_balance)
RouterEntropy = judged_once("RouterEntropy", MOE, ("router_entropy",), _judge_router)
