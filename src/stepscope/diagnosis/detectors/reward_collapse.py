"""Reward collapse: a reward that loses most of what it had gained, and does not recover."""

import itertools
from dataclasses import replace
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, jitter, roughness, sure_trend, trend

COLLAPSE = Kind(
    "reward_collapse",
    "ERROR",
    "the policy was destroyed by an update, the reward function or environment changed, or the data did",
    "Score the answers of an earlier checkpoint with today's reward: if they score low too, the reward changed. "
    "Otherwise go back to that checkpoint with a lower learning rate.",
    explains=(
        "spike",
        "level_shift",
        "zero_advantage",
        "truncation",
        "accuracy_drop",
        "kl_blowup",
        "entropy_explosion",
    ),
    lasts=True,
    rules_out="the usual noise of rewards: it has lasted",
)
MIN_BLOCKS = 14
WIDTH = 5
LOST = 0.5
"""A collapsed reward has lost this share of what it had gained since its lowest level..."""
SIGMAS = 7.0
"""... and this many times its noise, for `WIDTH` blocks."""


BACK = 0.25
"""It has recovered when the last blocks are above what they were, and none is below by more than this share."""
SLOWLY = 0.15
"""A slow fall begins after the last block that has lost less than this share."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks with the best level so far."""
    middles = series.middles
    if len(middles) < MIN_BLOCKS or series.same > 20:
        return None
    after, highest, lowest = middles[-WIDTH:], max(middles), min(middles)
    if max(after) > highest - 0.2 * (highest - lowest):
        return None
    best = _highest_gained(middles[:-WIDTH])
    if best < WIDTH or _explores_less(series, run):
        return None
    top, now = median(middles[best - WIDTH + 1 : best + 1]), median(after)
    lowest = min(middles[: best - WIDTH + 1])
    gained, lost, noise = top - lowest, top - now, _noise(middles)
    if lost < max(LOST * gained, SIGMAS * noise, 0.1 * abs(top)) or max(after) > top - max(0.6 * lost, 3 * noise):
        return None
    if gained < max(0.3 * lost, SIGMAS / 2 * noise):
        return None  # it had learnt little: what falls is where it began
    at = _split(middles, best)
    begun = series.firsts[at]
    if run.restaged(series.firsts[max(at - 2, 0)], series.lasts[at]):
        return None
    text = f"{series.key} fell from {number(top)} to {number(now)} at step {begun} and has not recovered"
    return COLLAPSE.about(
        series, begun, text, (top - SIGMAS * noise, top + SIGMAS * noise), value=now, weight=lost / noise
    )


LONG, PART, STEADY = 8, 0.25, 1.2
"""A reward in noise has fallen when so many blocks are all below so many before, by this share and so many times it."""


def judge_lasting(series: Series, run: RunState) -> Finding | None:
    """Compare many blocks with as many before: single ones may be anywhere."""
    middles = series.middles
    if len(middles) < 2 * LONG + 2 or series.same > 20 or series.block_size == 1:
        return None
    before, after = middles[-2 * LONG : -LONG], middles[-LONG:]
    was, now = median(before), median(after)
    lost = was - now
    if max(after) >= min(before) or lost < max(PART * abs(was), STEADY * jitter(before)):
        return None
    if (
        median(before[-2:]) < was - 0.4 * lost
        or max(after[:2]) > now + 0.5 * lost
        or was - min(middles[:LONG]) < 0.5 * lost
    ):
        return None  # it fell slowly, or had learnt nothing
    begun = series.firsts[-LONG]
    if _explores_less(series, run) or run.restaged(series.firsts[-LONG - 2], series.lasts[-LONG]):
        return None
    text = f"{series.key} fell from {number(was)} to {number(now)} at step {begun}, at once, and has not recovered"
    return COLLAPSE.about(series, begun, text, (min(before), max(before)), value=now, cause=_AT_ONCE)


_AT_ONCE = "what gives the reward has changed, or a part of it fails: one of several environments, judges or data sets"


APART, SHARE, LEVEL, CLEAR = 12, 0.6, 0.4, 4.0
"""So many values, all below as many before, have lost this share of what was gained, this share of the level, and so
many times the noise of neighbours."""


_OF_POLICIES = frozenset(("kl", "entropy", "clip_fraction"))


def judge_apart(series: Series, run: RunState) -> Finding | None:
    """Compare single values: few blocks do not tell a fall at once from noise."""
    values, steps = list(series.values), list(series.steps)
    if run.roles.isdisjoint(_OF_POLICIES):
        return None  # what a value function leads to wanders
    if len(values) < 3 * APART or series.same > 20 or series.block_size > APART:
        return None
    for at in series.newest(2 * APART, APART):
        before, after = values[at - APART : at], values[at : at + APART]
        was, now, lowest = median(before), median(after), min(values[:at])
        lost = was - now
        if max(after) >= min(before) or lost < max(SHARE * (was - lowest), LEVEL * abs(was)):
            continue
        if lost < CLEAR * roughness(before) or lost > was - lowest + 0.3 * lost:
            continue  # it wanders, or had not learnt what it lost
        if median(before[-3:]) < was - 0.25 * lost or median(after[:3]) > now + 0.25 * lost:
            continue
        if _explores_less(series, run) or run.restaged(steps[at - 3], steps[at + 2]):
            continue
        while values[at - 1] < was - 0.5 * lost:
            at -= 1
        text = f"{series.key} fell from {number(was)} to {number(now)} at step {steps[at]}, at once, and stays there"
        return COLLAPSE.about(series, steps[at], text, (min(before), max(before)), value=now)
    return None


def _noise(middles: list[float]) -> float:
    """Return the noise of the blocks; of rewards with few levels most neighbours are equal, and some far apart."""
    apart = [abs(b - a) for a, b in itertools.pairwise(middles)]
    return max(jitter(middles), 0.5 * sum(apart) / len(apart), 1e-9)


LATELY, LESS = 0.25, 0.03
"""Actions by chance that fell by this share of their peak in so much of the run are still being given up."""


def _explores_less(series: Series, run: RunState) -> bool:
    """Return whether fewer and fewer actions are by chance: one that knows little yet may do worse than chance."""
    for each in run.of_role("exploration", series.rank):
        count = len(each.middles)
        if count and each.middles[int((1 - LATELY) * count)] - each.value > LESS * each.highest:
            return True
    return False


def _highest_gained(middles: list[float]) -> int:
    """Return where the level was highest above the lowest before it: short episodes at the start may be better yet."""
    best, most, lowest = 0, 0.0, middles[0]
    for at in range(WIDTH, len(middles)):
        lowest = min(lowest, middles[at - WIDTH])
        gained = median(middles[at - WIDTH + 1 : at + 1]) - lowest
        if gained > most:
            best, most = at, gained
    return best


def _split(middles: list[float], best: int) -> int:
    """Return the block at which one level gives way to another: both sides vary least around their medians."""

    def rest(at: int) -> float:
        return sum(
            abs(middle - median(part)) for part in (middles[best - WIDTH + 1 : at], middles[at:]) for middle in part
        )

    middle = min(range(best + 1, len(middles) - WIDTH + 1), key=rest)
    high, low = median(middles[best - WIDTH + 1 : best + 1]), median(middles[middle:])
    near = high - SLOWLY * (high - low)
    return max((at + 1 for at in range(best, middle) if middles[at] >= near), default=middle)  # a fall may be slow


class RewardCollapse:
    """Watches one training reward; a slow collapse that it recovers from is a remark, one at once has a cause."""

    KINDS: ClassVar[tuple[Kind, ...]] = (COLLAPSE,)
    ROLES: ClassVar[tuple[str, ...]] = ("reward",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_done", "_found", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._done = series, run, False
        self._found: Finding | None = None

    def take(self) -> Finding | None:
        """Look for a collapse, and then for its end."""
        if self._found is None:
            self._found = judge(self._series, self._run) or judge_lasting(self._series, self._run)
            self._done = self._found is not None and _at_once(self._series, self._found)
            if self._found is None:
                self._found = judge_apart(self._series, self._run)
                self._done = self._found is not None
            return self._found
        if self._done or not _is_back(self._series.middles, self._found):
            return None
        self._done = True
        return _recovered(self._series, self._found)


def _levels(found: Finding) -> tuple[float, float]:
    """Return the levels before and after."""
    return sum(found.expected or ()) / 2, found.value or 0.0


def _at_once(series: Series, found: Finding) -> bool:
    """Return whether it was below half of the way at its first block."""
    top, lowest = _levels(found)
    return series.middles[series.firsts.index(found.step or 0)] < (top + lowest) / 2


def _is_back(middles: list[float], found: Finding) -> bool:
    """Return whether the last blocks are at the level from which it fell."""
    recent, (top, lowest) = middles[-WIDTH:], _levels(found)
    return median(recent) > top - 0.1 * (top - lowest) and min(recent) > top - BACK * (top - lowest)


def _recovered(series: Series, found: Finding) -> Finding:
    """Return the remark that the finding becomes."""
    top, lowest = _levels(found)
    text = (
        f"{series.key} fell from {number(top)} to {number(lowest)} at step {found.step} and was back at "
        f"{number(median(series.middles[-WIDTH:]))} by step {series.step}"
    )
    return replace(found, severity="INFO", text=text, last=series.step, time=series.time)


EVALUATED, REWARDS, FALLING, TURNED, NOISES = 3, 8, 0.75, 5, 5.0
"""So many evaluations fall so steadily (Kendall's tau) from the first on, or so many after the best; and noise."""
NEAR, OF_LEVEL = 0.15, 0.2
"""It was near its best where it had lost no more than this share of it all; and it lost this share of its level."""
OF_GAIN = 0.4
"""A reward that turned has lost this share of what had been gained."""
_WRONG_WAY = "the sign of the reward or of the policy's loss is wrong, or what is rewarded is not what is evaluated"


def judge_reward(series: Series, run: RunState) -> Finding | None:
    """Find an evaluated reward that falls steadily, from the first evaluation on or after it had risen."""
    values, steps = list(series.values), list(series.steps)
    if len(values) < TURNED + EVALUATED or series.same > 3:
        return None
    best = max(range(len(values)), key=values.__getitem__)
    before, since = values[: best + 1], values[best:]
    lost = values[best] - median(since[-EVALUATED:])
    noise = min(roughness(values), max(roughness(before), roughness(since)))
    if len(since) < TURNED or lost < max(NOISES * noise, OF_LEVEL * abs(values[best])) or trend(since) > -FALLING:
        return None
    if best < EVALUATED:
        if len(since) < REWARDS or lost < OF_GAIN * abs(values[best]):
            return None
        begun, how = series.first_step, "has fallen since the first evaluation"
    elif lost < OF_GAIN * (values[best] - min(before)) or trend(before) < FALLING:
        return None
    top = max(place for place, value in enumerate(values) if values[best] - value < NEAR * lost)
    if top >= EVALUATED:
        begun, how = steps[top], f"was near its best until step {steps[top]} and has fallen since"
    text = f"{series.key} {how}, from {number(values[best])} to {number(series.value)} in {len(since)} evaluations"
    for other in run.of_role("reward", series.rank, held_out=False):
        if len(other.middles) >= EVALUATED and sure_trend(list(other.middles)) > 3:
            text += f", while {other.key} rises"
            break
    return COLLAPSE.about(series, begun, text, (min(before), values[best]), value=series.value, cause=_WRONG_WAY)


EvaluatedReward = judged_once("EvaluatedReward", COLLAPSE, ("reward",), judge_reward, held_out=True, each="value")
"""Watches one reward of evaluations."""
