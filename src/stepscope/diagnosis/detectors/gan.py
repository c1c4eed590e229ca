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
    if count < BEFORE + AFTER or min(after) < max(max(before), median(before) + APART):
        return None
    if series.middles[-1] > median(series.middles[count // 8 : count // 2]):
        return None
    limit = median(before) + BEGUN * (median(after) - median(before))
    return _finding(series, other, series.firsts[begun_at(ratios, lambda ratio: ratio > limit)])


def _finding(series: Series, other: Series, begun: int) -> Finding:
    text = (
        f"{series.key} fell to {number(series.value)} and {other.key} rose to {number(other.value)} since step "
        f"{begun}: the discriminator wins"
    )
    return IMBALANCE.about(
        series, begun, text, (series.plain(median(series.scaled[: len(series.scaled) // 2])) / 2, series.highest)
    )


GanImbalance = judged_once("GanImbalance", IMBALANCE, ("side_loss",), judge)
"""Watches the loss of a discriminator together with that of a generator."""
