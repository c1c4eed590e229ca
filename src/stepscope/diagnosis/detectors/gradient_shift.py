"""Gradient shift: a gradient norm that rises to a new level, smoothly when gradients of all steps add up."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.gan import is_of_game
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, roughness

SHIFT = Kind(
    "gradient_shift",
    "WARN",
    "gradients are not cleared between steps: zero_grad is missing, or is called at the wrong place",
    "Call optimizer.zero_grad() once for each update; count the backward passes between two updates.",
    explains=("spike", "exploding_gradients", "divergence", "level_shift", "accuracy_drop", "oscillation"),
    lasts=True,
)
AFTER, BEFORE = 30, 60
RISE = math.log(2.5)
UNTRAINED = 1.2
"""A loss this many times its first value is worse than that of the untrained model."""
SMOOTHER, SURE = 0.3, 0.15
"""Norms of sums vary by less than this share of the usual variation from step to step."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values with those before."""
    if len(series.values) < AFTER + BEFORE or not series.positive or run.reinforcement:
        return None
    back = -2 - AFTER // series.block_size
    if len(series.scaled) < -back or series.scaled[-1] < series.scaled[back] + 0.5 * RISE:
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    before, after = values[-AFTER - BEFORE : -AFTER], values[-AFTER:]
    was, became, high = median(before), median(after[-AFTER // 2 :]), max(before)
    if became - was < RISE or min(after[-AFTER // 2 :]) < high:
        return None
    usual, now = roughness(before), roughness(after[-AFTER // 2 :])
    if now > SMOOTHER * usual or usual < 0.02 or run.changed(steps[-AFTER - 5], series.step, epochs=False):
        return None
    climbed = max(b - a for a, b in itertools.pairwise([*before[-3:], *after])) < max(0.5 * (became - was), 3 * usual)
    if not climbed or became < median(after[: AFTER // 3]):
        return None  # a jump has another cause
    at = next(at for at in range(AFTER) if min(after[at:]) > was + 0.5 * (min(after[-AFTER // 2 :]) - was))
    begun = steps[-AFTER + at]
    sure = now < SURE * usual
    if (max(after) - was > math.log(AFTER - at + 3) and not sure) or was > median(series.scaled[: -AFTER // 5]) + RISE:
        return None  # a sum of so many gradients is not that long: they explode, or did before
    if _is_ascent(run, series.rank) or (is_of_game(series, run) and not sure):
        return None
    text = (
        f"{series.key} rose from {number(series.plain(was))} to {number(series.value)} since step {begun} and varies "
        f"{number(usual / max(now, 1e-9), 2)} times less from step to step: gradients add up"
    )
    return SHIFT.about(series, begun, text, series.band(was, 4 * usual), weight=became - was)


def _is_ascent(run: RunState, rank: int) -> bool:
    """Return whether a loss has become worse than that of the untrained model: steps that are too long do not do that.

    The loss is climbed then, by a wrong sign.
    """
    losses = [each for each in run.of_role("loss", rank, held_out=False) if each.positive and len(each.values) >= 5]
    return any(median(list(each.values)[-5:]) > UNTRAINED * each.first_value for each in losses)


LEVEL, SINCE, TIMES, SAME, ODD = 40, 20, math.log(3.5), 0.15, 2
AT_ONCE = 0.8
"""Half of the first values have this share of the rise."""
"""So many values before and after a step; a factor, in logarithms; a loss that stays moves by less; so many of the
values are in the range of the others."""
_OTHER_SCALE = (
    "gradients that are summed over ranks or parts and no longer divided by their number, or a loss scale that is not "
    "taken out"
)
_COUNT = (
    "Log how many parameters have a gradient, and the norm per layer, before and after the step; look what changed."
)


def judge_level(series: Series, run: RunState) -> Finding | None:
    """Find a norm that is at a higher level from one step to the next and stays there, while all losses go on."""
    if len(series.values) < LEVEL + SINCE or not series.positive or run.reinforcement or is_of_game(series, run):
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    for at in series.newest(LEVEL, SINCE):
        before, after = values[at - LEVEL : at], values[at : at + SINCE]
        was, became = median(before[-LEVEL // 2 :]), median(after)
        if became - was < TIMES or median(after[:3]) - was < AT_ONCE * (became - was):
            continue
        if sorted(after)[ODD] < sorted(before)[-1 - ODD] or abs(median(before[-3:]) - was) > 0.3 * TIMES:
            continue
        if run.changed(steps[at - 3], steps[min(at + 3, len(steps) - 1)]) or not _go_on(run, series.rank, steps[at]):
            continue
        text = (
            f"{series.key} rose from {number(series.plain(was))} to {number(series.plain(became))} at step {steps[at]} "
            "and stays there, while the loss goes on as before"
        )
        band = (series.plain(min(before)), series.plain(max(before)))
        value = series.plain(became)
        return SHIFT.about(series, steps[at], text, band, value=value, cause=_OTHER_SCALE, advice=_COUNT)
    return None


def _go_on(run: RunState, rank: int, step: int) -> bool:
    """Return whether there is a loss, and none has moved at a step."""
    losses = [each for each in run.of_role("loss", rank, held_out=False) if each.positive]
    for loss in losses:
        known = [(at, math.log(value)) for at, value in zip(loss.steps, loss.values, strict=True)]
        before, after = [v for at, v in known if at < step][-SINCE:], [v for at, v in known if at >= step][:SINCE]
        if len(before) < 5 or len(after) < SINCE - 2:
            return False
        least = max(SAME, 0.5 * roughness(before))
        if any(abs(median(part) - median(before)) > least for part in (after, after[:5])):
            return False  # at once, or since
    return bool(losses)


FROM_START, LONGER, EVEN, UNEVEN = 60, 2.0, 0.003, 0.02
"""Of so many values the last half is so many times the first one, and varies by less than such a share from step to
step, where the loss varies by more than such a share."""


def judge_sums(series: Series, run: RunState) -> Finding | None:
    """Find norms that hardly vary from batch to batch from the start on, though the loss of the batches does."""
    values = list(series.values)
    if len(values) < FROM_START or series.count != len(values) or not series.positive or run.reinforcement:
        return None
    last = values[-len(values) // 2 :]
    if median(last) < LONGER * values[0] or len(set(last)) < len(last) // 3 or is_of_game(series, run):
        return None  # clipped to a limit, or of two networks
    if not 0 < roughness(series.on_scale(last)) < EVEN:
        return None
    for loss in run.of_role("loss", series.rank, held_out=False):
        if not loss.positive or abs(loss.count - series.count) > FROM_START // 4:
            continue
        varies = roughness(loss.on_scale(list(loss.values)[-len(last) :]))
        if varies > UNEVEN:
            text = (
                f"{series.key} grew from {number(values[0])} to {number(median(last))} and varies by "
                f"{roughness(series.on_scale(last)):.1%} from step to step, {loss.key} by {varies:.0%}: gradients of "
                "all batches add up"
            )
            return SHIFT.about(series, series.first_step, text, (0.0, LONGER * values[0]))
    return None


GradientSums = judged_once("GradientSums", SHIFT, ("grad_norm",), judge_sums)
GradientLevel = judged_once("GradientLevel", SHIFT, ("grad_norm",), judge_level)
GradientShift = judged_once("GradientShift", SHIFT, ("grad_norm",), judge)
"""Watches one gradient norm."""
