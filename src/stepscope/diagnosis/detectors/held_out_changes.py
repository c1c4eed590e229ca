"""Held-out losses that jump and stay up, or never fall while the training does, as those of an average that stays."""

import math
import re
from itertools import pairwise
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.divergence import DIVERGENCE
from stepscope.diagnosis.detectors.level_shift import LEVEL_SHIFT
from stepscope.diagnosis.detectors.not_learning import NOT_LEARNING
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, exp, jitter, roughness, spread, trend

BEFORE, AFTER = 4, 3
"""A jump is seen by so many evaluations before it and after it."""
RISE, SIGMAS = math.log(1.3), 6.0
SMALL_RISE, MOVES = math.log(1.08), 4.0
"""A rise is one from less on if each evaluation before was lower than the one before it, and none by so much."""
EVALUATIONS = 8
"""A held-out loss that is no lower after so many evaluations..."""
FELL = math.log(1.5)
"""... while the training loss fell this far has not followed it."""
BETTER, FLAT = 0.03, 0.25
"""It is neither lower than at first by the first, in logarithms, nor higher by the second, as if it overfitted."""
_AVERAGE = re.compile(r"(?<![a-z])(ema|swa|polyak|averaged?|avg_model|shadow)(?![a-z])", re.IGNORECASE)
STAYS, RISEN = 0.02, 0.2
"""A metric of an average stays within this share of its level, while an accuracy of the weights rose by this much."""
_AVERAGED = (
    "the average of the weights does not follow them: its update is never called, its decay is far too near 1 for so "
    "few steps, or it is a copy of other weights (made before they were loaded or moved)"
)
_FOLLOW = (
    "Compare a weight of the average with the trained one after 100 steps; warm up its decay, as (1 + n) / (10 + n)."
)
ABOVE = 0.85
"""The training loss is below this share of it: one that is at the level of the training has followed it."""
BELOW = 0.8
"""A held-out loss below this share of the training loss at the first evaluations is none that stayed where that was."""
NOISES = 3.0
"""A fall is larger than so many times the noise of the blocks that tell it."""
UNTRAINED = 0.9
"""A level of at least this share of the first training loss is that of a model that has learnt nothing."""
WAVERS = 0.1
"""It is not taken for flat where it is lower than at first by more than this, however much evaluations waver."""
_OTHER = (
    "what is evaluated is not what is trained: a copy or an average of the weights that is not updated, statistics "
    "that are frozen, or held-out data that is prepared otherwise"
)
_CHANGED = (
    "what is evaluated has changed, or the training teaches something else since then (other targets, data that is "
    "missing from the mix); the training loss alone does not show it"
)


def judge_jump(series: Series, run: RunState) -> Finding | None:
    """Compare the last evaluations with those just before them."""
    if series.count < BEFORE + AFTER + 1 or not series.positive or series.value < series.lowest * exp(SMALL_RISE):
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    before, after = values[-AFTER - 2 * BEFORE : -AFTER], values[-AFTER:]
    was = median(before[-BEFORE:])
    noise = max(spread(before[-BEFORE:]), jitter(before) / 2, 0.01)
    falls = [a - b for a, b in pairwise(before)]
    if min(falls) > 0 and after[0] - before[-1] > MOVES * max(falls):
        least, was, noise = SMALL_RISE, before[-1], 0.0
    else:
        least = RISE
    if min(after) - max(was, before[-1]) < 0.5 * least or min(after) - was < max(least, SIGMAS * noise):
        return None
    if least == RISE and min(after) - max(before[-BEFORE:]) < 0.5 * RISE:
        return None
    rise = median(after) - was
    if after[0] - was < 0.5 * rise or run.raised(steps[-AFTER - 1], series.step, rise) or run.reinforcement:
        return None
    if _training_moved(series, run, steps[-AFTER - 1]):
        return None  # that is a finding of its own
    at = len(values) - AFTER
    while at > 1 and least == RISE and values[at - 1] - min(before) > 0.25 * rise:
        at -= 1
    text = (
        f"{series.key} went up from {number(series.plain(was))} to {number(series.plain(after[0]))} between steps "
        f"{steps[at - 1]} and {steps[-AFTER]}, and stayed there; the training loss did not rise"
    )
    band = series.band(was, max(SIGMAS * noise, least))
    return LEVEL_SHIFT.about(series, steps[at], text, band, cause=_CHANGED, weight=rise / max(noise, 0.01))


def judge_signed_jump(series: Series, run: RunState) -> Finding | None:
    """Compare the last evaluations of a loss that may be negative with all before them."""
    if series.count < BEFORE + AFTER + 1 or series.positive or run.reinforcement:
        return None
    values, steps = list(series.values), list(series.steps)
    before, after = values[:-AFTER], values[-AFTER:]
    was, span = median(before[-BEFORE:]), max(before) - min(before)
    rise = min(after) - was
    if min(after) - max(before) < BEYOND * span or rise < SIGMAS * max(spread(before[-BEFORE:]), jitter(before) / 2):
        return None
    if after[0] - was < 0.5 * rise or run.raised(steps[-AFTER - 1], series.step):
        return None
    text = (
        f"{series.key} went up from {number(was)} to {number(after[0])} between steps {steps[-AFTER - 1]} and "
        f"{steps[-AFTER]}, higher than ever before, and stayed there"
    )
    band = (min(before), max(before))
    return LEVEL_SHIFT.about(series, steps[-AFTER - 1], text, band, cause=_CHANGED, weight=rise / max(span, 1e-9))


BEYOND = 0.5
"""Evaluations of a signed loss are higher than all before by this share of the range of those."""


def judge_turn(series: Series, run: RunState) -> Finding | None:
    """Find a held-out loss that fell and has been rising since, while that of the training does not fall either."""
    if series.count < TURNED + 3 or not series.positive or run.reinforcement or _AVERAGE.search(series.key):
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    low = min(range(len(values)), key=values.__getitem__)
    before, since = values[: low + 1], values[low:]
    if len(since) < TURNED or low < 3 or trend(since) < STEADY or trend(before) > -STEADY:
        return None
    rise = median(since[-3:]) - since[0]
    if max(b - a for a, b in pairwise(since)) > AT_ONCE * (max(since) - since[0]):
        return None  # a jump
    # What falls and then rises is no rougher than either half.
    noise = min(roughness(values), jitter(values), max(roughness(before), roughness(since)))
    sure = len(since) > TURNED and trend(since) > SMOOTH and rise > 2 * SIGMAS * noise
    if rise < max(SMALL_TURN if sure else TURN, SIGMAS * noise) or since[-1] < max(since) - 0.2 * rise:
        return None
    if run.raised(steps[low - 1], steps[-1], rise, epochs=False) or not _train_rises(series, run, steps, low):
        return None
    at = low
    while values[at + 1] - values[low] < LEVEL * rise:
        at += 1
    text = (
        f"{series.key} fell to {number(series.plain(since[0]))} until step {steps[at]} and has been rising since, to "
        f"{number(series.value)}, and the training loss with it"
    )
    return DIVERGENCE.about(series, steps[at], text, series.band(since[0], TURN), cause=_AWAY, weight=rise)


TURNED, TURN, STEADY, AT_ONCE = 5, math.log(1.12), 0.75, 0.6
"""So many evaluations rise by so much, in logarithms, this steadily (Kendall's tau), as those before fell, and none of
them by this share of it all."""
SMALL_TURN, SMOOTH, LEVEL = math.log(1.05), 0.95, 0.1
"""Less is enough where hardly one of more is lower than the one before it. It turned at the last one that is higher
than the lowest by no more than this share of the rise."""
_AWAY = (
    "in this order: the targets no longer belong to the inputs, updates lead the wrong way (sign, a rate that is too "
    "high), or something pulls the weights away (decay)"
)


def _train_rises(series: Series, run: RunState, steps: list[int], low: int) -> bool:
    """Return whether a loss of the training is higher in the last evaluations than around the lowest one."""
    for each in run.beside(series):
        places = list(zip(each.steps, each.values, strict=True)) if each.positive else []
        before = [value for step, value in places if steps[max(low - 3, 0)] < step <= steps[low]]
        after = [value for step, value in places if step > steps[-3]]
        if len(before) > 1 and len(after) > 1 and median(after) > 1.04 * median(before):
            return True
    return False


def judge_never(series: Series, run: RunState) -> Finding | None:
    """Compare all evaluations with the first, and with what the training did meanwhile."""
    if series.count < EVALUATIONS or not series.positive or run.reinforcement or run.resumed is not None:
        return None
    if series.lowest < series.first_value * (1 - BETTER) and series.count < 2 * EVALUATIONS:
        return None  # one that is better is believed, until there are more
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    if steps[0] != series.first_step:
        return None
    first, now = median(values[:3]), median(values[-3:])
    better = min(max(BETTER, 2 * jitter(values)), WAVERS)  # evaluations of few examples waver
    if (
        not -better < now - first < FLAT
        or min(median(values[at : at + 3]) for at in range(len(values) - 2)) < first - 2 * better
    ):
        return None
    fell = _fallen(series, run, steps, series.plain(now))
    if fell is None:
        return None
    other, was, became = fell
    text = (
        f"{series.key} is {number(series.plain(now))} after {series.count} evaluations and was "
        f"{number(series.plain(first))} at first, while {other} fell from {number(was)} to {number(became)}"
    )
    limits = (0.0, series.plain(first))
    return NOT_LEARNING.about(series, series.first_step, text, limits, severity="WARN", cause=_OTHER)


def _fallen(series: Series, run: RunState, steps: list[int], level: float) -> tuple[str, float, float] | None:
    """Return a training loss that fell far below a level: its key, and from what to what.

    What it fell before the first evaluations is not shared by them unless the level is that of an untrained model.
    """
    for other in run.beside(series):
        if not other.positive or len(other.middles) < 4:
            continue
        was, became = median(other.middles[:2]), median(other.middles[-3:])
        beside = [middle for middle, last in zip(other.middles, other.lasts, strict=True) if last <= steps[2]][-3:]
        if beside and level < UNTRAINED * was:
            was = median(beside)
        if level < BELOW * was:
            continue  # it was the better one at first, so it had learnt already
        fell = math.log(was / became) > max(FELL, NOISES * other.noise())
        if fell and other.lasts[-1] > steps[0] and became < ABOVE * level:
            return other.key, was, became
    return None


def _training_moved(series: Series, run: RunState, since: int) -> bool:
    """Return whether a training loss is above its lower quarter, too; True if there is none to say."""
    found = [each for each in run.of_role("loss", series.rank, held_out=False) if each.positive and each.count > 8]
    for each in found:
        after = [value for step, value in zip(each.steps, each.values, strict=True) if step > since]
        usual = sorted(each.middles)[len(each.middles) // 4] if each.middles else each.lowest
        if len(after) < 2 or median(after) > 1.2 * usual:
            return True
    return not found


def judge_average(series: Series, run: RunState) -> Finding | None:
    """Compare an average of the weights with what they are an average of, by the same measure."""
    if series.count < EVALUATIONS or not _AVERAGE.search(series.key) or run.reinforcement or run.resumed is not None:
        return None
    values, half = list(series.values), series.count // 2
    if series.steps[0] != series.first_step or (series.highest > 1 and series.role.name == "accuracy"):
        return None
    if abs(median(values[:half]) - median(values[half:])) > max(2 * jitter(values), STAYS * abs(median(values))):
        return None
    for held_out in (True, False):
        for other in run.of_role(series.role.name, series.rank, held_out=held_out):
            if _AVERAGE.search(other.key) or not measure(_AVERAGE.sub(" ", series.key)) <= measure(other.key):
                continue
            known = list(other.values) if held_out else other.middles
            if len(known) < EVALUATIONS or not _got_better(series, known):
                continue
            text = (
                f"{series.key} is {number(median(values[half:]))} after {series.count} evaluations, as at first, while "
                f"{other.key} went from {number(median(known[:2]))} to {number(median(known[-3:]))}"
            )
            limits = (0.0, series.first_value) if series.role.name == "loss" else (series.first_value, 1.0)
            return NOT_LEARNING.about(
                series, series.first_step, text, limits, severity="WARN", cause=_AVERAGED, advice=_FOLLOW
            )
    return None


def _got_better(series: Series, known: list[float]) -> bool:
    """Return whether a metric got far better, and is far better than the one of the average."""
    was, now = median(known[:2]), median(known[-3:])
    if series.role.name == "accuracy":
        return now - series.highest > RISEN and now - was > RISEN and max(known) <= 1
    return now > 0 and min(was, series.lowest) > now * math.exp(FELL)


HeldOutJump = judged_once("HeldOutJump", LEVEL_SHIFT, ("loss",), judge_jump, held_out=True, each="value")
HeldOutTurn = judged_once("HeldOutTurn", DIVERGENCE, ("loss",), judge_turn, held_out=True, each="value")
SignedJump = judged_once("SignedJump", LEVEL_SHIFT, ("loss",), judge_signed_jump, held_out=True, each="value")
NeverBetter = judged_once("NeverBetter", NOT_LEARNING, ("loss",), judge_never, held_out=True, each="value")
AverageStays = judged_once(
    "AverageStays", NOT_LEARNING, ("loss", "accuracy"), judge_average, held_out=True, each="value"
)
"""Watch one held-out metric together with those of the training."""
