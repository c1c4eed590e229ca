"""Two networks against each other: the discriminator wins, and the generator gets no gradient it can use."""

import math
import re
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, begun_at

IMBALANCE = Kind(
    "gan_imbalance",
    "WARN",
    "the discriminator wins: it tells real from generated without error, and the generator learns nothing",
    "Check that the generator is updated; lower the discriminator's rate or updates, or add a gradient penalty.",
    explains=("spike", "level_shift"),
    lasts=True,
)
_DISCRIMINATOR = re.compile(r"(?:(?<![A-Za-z])[Dd]|(?<=[a-z])D)(?:isc|iscriminator|ISC)?(?![a-z]|[A-Z]{2})")
_GENERATOR = re.compile(r"(?:(?<![A-Za-z])[Gg]|(?<=[a-z])G)(?:en|enerator|EN)?(?![a-z]|[A-Z]{2})")
SURE, LOST = 0.02, 5.0
"""Losses of a discriminator that is never wrong, and of a generator that never deceives it..."""
SURE_BLOCKS = 8
"""... for this many blocks."""
BEFORE, AFTER = 20, 8
APART = math.log(3.5)
"""Their ratio has risen this far above its level, in logarithms..."""
BEGUN = 0.25
"""... since it was above this share of that."""
LOWER, AT_ONCE = 0.8, 4
"""The loss of a discriminator is below this share of its lowest level so far, and within so many blocks the generator's
fell from a quarter to a half of the way."""
_ONE_WAY = (
    "the generator is not told to deceive the discriminator any more: its target or the sign of its loss is wrong, or "
    "its part of the loss is missing"
)


def is_of_game(series: Series, run: RunState) -> bool:
    """Return whether a series is of a discriminator or a generator, or of a run that has both."""
    parts = [each.key for each in run.of_role("side_loss", series.rank, held_out=False)]
    return any(map(_DISCRIMINATOR.search, parts)) and any(map(_GENERATOR.search, parts))


def is_of_generator(key: str) -> bool:
    """Return whether a name is that of a generator's loss, which is as high as its opponent is good."""
    return _GENERATOR.search(key) is not None


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the loss of a discriminator with that of its generator."""
    if not _DISCRIMINATOR.search(series.key) or not series.positive or len(series.scaled) < SURE_BLOCKS:
        return None
    for other in run.of_role("side_loss", series.rank, held_out=False):
        if _GENERATOR.search(other.key) and other.positive and abs(len(other.scaled) - len(series.scaled)) <= 1:
            return _judge_both(series, other)
    return None


def _judge_both(series: Series, other: Series) -> Finding | None:
    sure = series.middles[-SURE_BLOCKS:], other.middles[-SURE_BLOCKS:]
    if len(sure[1]) == SURE_BLOCKS and max(sure[0]) < SURE and min(sure[1]) > LOST:
        return _finding(series, other, series.firsts[-SURE_BLOCKS])
    ratios = [b - a for a, b in zip(series.scaled, other.scaled, strict=False)]
    count = len(ratios)
    before, after = ratios[count // 8 : count // 2], ratios[-AFTER:]
    if count < BEFORE + AFTER:
        return None
    if (at := _both_fell(series, other, slice(count // 8, count // 2))) is not None:
        return _finding(series, other, other.firsts[at], _ONE_WAY)
    if min(after) < max(max(before), median(before) + APART):
        return None
    if series.middles[-1] > median(series.middles[count // 8 : count // 2]):
        return None
    limit = median(before) + BEGUN * (median(after) - median(before))
    return _finding(series, other, series.firsts[begun_at(ratios, lambda ratio: ratio > limit)])


def _both_fell(series: Series, other: Series, before: slice) -> int | None:
    """Return the block from which both losses are far below their level, that of the generator at once.

    One gains what the other loses: a generator that is found out, and has a low loss, is told the wrong thing. Where
    another term is added to its loss both may fall, but slowly.
    """
    if max(series.middles[-AFTER:]) > LOWER * min(series.middles[before]):
        return None
    was, now = median(other.scaled[before]), max(other.scaled[-AFTER:])
    if was - now < APART or now > min(other.scaled[before]) - 0.5 * APART:
        return None
    left = begun_at(other.scaled, lambda x: x < was - BEGUN * (was - now))
    half_way = begun_at(other.scaled, lambda x: x < was - 0.5 * (was - now))
    return left if half_way - left <= AT_ONCE else None


def _finding(series: Series, other: Series, begun: int, cause: str = "") -> Finding:
    how, means = ("fell", "both cannot win") if cause else ("rose", "the discriminator wins")
    text = (
        f"{series.key} fell to {number(series.value)} and {other.key} {how} to {number(other.value)} since step "
        f"{begun}: {means}"
    )
    band = (series.plain(median(series.scaled[: len(series.scaled) // 2])) / 2, series.highest)
    return IMBALANCE.about(series, begun, text, band, cause=cause)


GanImbalance = judged_once("GanImbalance", IMBALANCE, ("side_loss",), judge)
"""Watches the loss of a discriminator together with that of a generator."""
