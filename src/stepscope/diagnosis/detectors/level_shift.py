"""Level shift: a loss that jumps up and stays above its level, though it may fall again slowly."""

import math
from dataclasses import replace
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.detectors.gan import is_of_generator
from stepscope.diagnosis.detectors.impossible_loss import repeats_loss
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, spread, trend

LEVEL_SHIFT = Kind(
    "level_shift",
    "WARN",
    "the data or labels changed (a new shard, a lost shuffle, other preprocessing), the weights were damaged, or "
    "gradients are no longer cleared",
    "Compare the batches before and after that step; look at what was loaded, resumed or edited there. "
    "If only this metric moved, evaluate a checkpoint from before the step on today's batches.",
    explains=(
        *("spike", "accuracy_drop", "divergence", "exploding_gradients", "plateau", "overfit", "constant"),
        "oscillation",
    ),
    lasts=True,
    rules_out="a single bad batch: the new level has lasted",
)
MIN_BLOCKS = 12
BEFORE = 8
SIGMAS = 8.0
SHIFT = {"loss": math.log(1.15), "side_loss": math.log(3.0)}
AFTER = 6
"""A shift needs this many blocks above the old level, or this share of all:"""
AFTER_PART = 10
LARGE = math.log(4.0)
"""A rise this far, in logarithms, is no harder data, though the loss falls back."""
LONE = math.log(5.0)
"""A value this far above the two that follow it, in logarithms, is a spike."""
LASTING, NOISY, CLEAR = 8, math.log(1.2), 4.0
"""A rise in noise is told by more blocks than others, and is this large, in logarithms and in units of the noise."""
STEEP = 2
"""The rise is complete after this many blocks; a slower one is a divergence."""


class LevelShift:
    """Watches one training loss."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LEVEL_SHIFT,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss", "side_loss")
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_found", "_over", "_rise", "_run", "_series", "_was")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._found: Finding | None = None
        self._was = self._rise = 0.0
        self._over = False

    def take(self) -> Finding | None:
        """Compare the last blocks with those before."""
        series, run = self._series, self._run
        if self._found is not None:
            return self._recovered(self._found)
        if not series.positive and series.role.name == "side_loss" and is_of_generator(series.key):
            return None
        if repeats_loss(series, run):
            return None
        middles = series.block_medians()
        count = len(middles)
        width = max(AFTER, count // AFTER_PART)
        if count < max(MIN_BLOCKS, width + BEFORE):
            return None
        least = SHIFT[_role(series, run)] if series.positive else 0.15 * abs(middles[-width - 1])
        rise, lasting = middles[-1] - middles[-width - 1], max(width, LASTING)
        firsts = (-width, -width - 1) if rise >= 0.3 * least else ()
        if count >= lasting + BEFORE and middles[-1] - middles[-lasting - 1] >= 0.5 * NOISY:
            firsts = (*firsts, -lasting)
        for first in firsts:
            found = _judge_at(series, run, middles, first)
            if found is not None:
                self._found, self._was = found, median(middles[first - BEFORE : first])
                self._rise = max(middles[first:]) - self._was if series.positive else 0.0
                return found
        return None

    def _recovered(self, found: Finding) -> Finding | None:
        """Turn a shift that is over into a remark, if the gradients took no notice of it: harder data for a while."""
        series = self._series
        near = max(2 * series.noise(), 0.03 if series.positive else 0.03 * abs(self._was))
        if self._over or median(series.block_medians()[-3:]) > self._was + near:
            return None
        self._over = True
        if self._rise > LARGE or _gradients_moved(self._run, series.rank, found.step or 0):
            return None
        return replace(found, severity="INFO", text=f"{found.text}; it was back at step {series.step}")


def _gradients_moved(run: RunState, rank: int, step: int) -> bool:
    """Return whether a gradient norm changed at a step; True when there is none to say so."""
    known = [each for each in run.of_role("grad_norm", rank) if len(each.middles) > 8 and each.positive]
    for each in known:
        before = [middle for middle, last in zip(each.middles, each.lasts, strict=True) if last < step][-6:]
        after = [middle for middle, first in zip(each.middles, each.firsts, strict=True) if first >= step][:3]
        if before and after and not 0.75 < median(after) / median(before) < 1.3:
            return True
    return not known


def _role(series: Series, run: RunState) -> str:
    """Return the role; losses of reinforcement learning move with the policy, and count as parts of a loss."""
    return "side_loss" if run.reinforcement else series.role.name


def _judge_at(series: Series, run: RunState, middles: list[float], first: int) -> Finding | None:
    before, after, role = middles[first - BEFORE : first], middles[first:], _role(series, run)
    if len(before) < BEFORE:
        return None
    was, lowest, peak = median(before), min(after), max(after[: STEEP + 1])
    least = SHIFT[role] if series.positive else 0.15 * abs(was)
    noise = max(series.noise(), spread(before))
    rise = peak - was
    clear = rise >= max(least, SIGMAS * noise) and lowest - max(before) >= max(2 * noise, 0.3 * least)
    if not clear and not (role == "loss" and _is_lasting(series, middles, first, noise)):
        return None
    if role == "side_loss" and lowest < max(middles[len(middles) // 4 : first]) + 0.3 * least:
        return None
    climbs = trend(after) > 0.75 and after[-1] - peak > 0.5 * rise
    begun = _begun(series, first, was + 0.5 * (lowest - was))
    if climbs or run.raised(series.firsts[first - 2], series.lasts[first], rise):
        return None
    if run.reweighted(series.rank, series.firsts[first - 2], rise):
        return None
    level = median(after[-3:])
    fell = (
        f", still {number(series.plain(level))} at step {series.step}"
        if level < was + 0.7 * rise
        else " and stayed there"
    )
    text = (
        f"{series.key} went up from {number(series.plain(was))} to {number(series.plain(median(after[:3])))} "
        f"at step {begun}{fell}"
    )
    return LEVEL_SHIFT.about(series, begun, text, series.band(was, SIGMAS * noise), weight=rise / noise)


def _is_lasting(series: Series, middles: list[float], first: int, noise: float) -> bool:
    """Return whether every one of many blocks is above those of half the run before: a rise in noise of its size."""
    before, after = middles[first - BEFORE : first], middles[first:]
    if len(after) < LASTING or not series.positive or min(after) <= max(middles[(len(middles) + first) // 2 : first]):
        return False
    rise = median(after) - median(before)
    return (
        rise >= max(NOISY, CLEAR * noise)
        and min(after) > max(before)
        and median(after[-3:]) > median(before) + 0.4 * rise
    )


def _begun(series: Series, first: int, limit: float) -> int:
    """Return the first step above a limit, near the first block above it; a lone spike before it is none."""
    low, high = series.firsts[first - 1], series.lasts[first]
    values = list(zip(series.steps, series.on_scale(list(series.values)), strict=True))
    above = [at for at, (step, value) in enumerate(values) if low <= step <= high and value > limit]
    if not above:
        return series.firsts[first]
    begun, following = above[0], [value for _, value in values[above[0] + 1 : above[0] + 3]]
    alone = series.positive and len(above) > 1 and len(following) == 2
    if alone and values[begun][1] - max(following) > LONE:
        begun = above[1]
    return values[begun][0]
