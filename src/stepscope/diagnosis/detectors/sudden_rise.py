"""Sudden rise: a loss that leaves the range of its values from one step to the next, though it may fall back soon."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.gan import is_of_game
from stepscope.diagnosis.detectors.impossible_loss import repeats_loss
from stepscope.diagnosis.detectors.level_shift import LEVEL_SHIFT
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series, roughness

BEFORE, ABOVE, NEARLY, AFTER = 40, 5, 8, 10
"""So many values in a row, or all but one of some more, are above all of so many before them; it is judged when so many
are known."""
LEAST, SIGMAS, FEWER = 0.08, 3.0, 2.0
"""They rise by this much, in logarithms, and by so many times what neighbours differ; by fewer, if all but one of some
more are above."""
AT_ONCE, CREPT = 0.6, 0.3
"""The first value has this share of the rise, and those before it no more than the other: a swing takes longer."""
CLIMBS, LONE = 1.3, math.log(1.7)
"""A loss that goes on climbing diverges; a first value this far above the next ones, in logarithms, is a spike."""
MAX_BLOCK = 64
"""Of longer blocks not enough values are kept."""
FADED = 0.75
"""What has fallen below this share of the rise at the end is on its way back."""
_OF_VALUES = frozenset(("value_estimate", "exploration"))
_DAMAGED = (
    "in this order: weights were lost and are learnt again (a layer or head that was made anew, a wrong or old "
    "checkpoint, an optimizer state that does not fit); one update was far too large; other data came for a while"
)
_LOOK = "Evaluate a checkpoint from before the step; look at what was loaded, reset or edited there, and at the batch."


def judge(series: Series, run: RunState) -> Finding | None:
    """Test each value of the newest block, and those that so many are known after."""
    if run.reinforcement or not run.roles.isdisjoint(_OF_VALUES) or repeats_loss(series, run):
        return None  # the targets of such a loss move
    if not series.positive or series.count < BEFORE + AFTER or series.block_size > MAX_BLOCK:
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    for at in series.newest(BEFORE, AFTER):
        before, after = values[at - BEFORE : at], values[at : at + NEARLY]
        above = min(after[:ABOVE]) > max(before) or sorted(after)[1] > max(before)
        if not above:
            continue
        if values[at + 1] - values[at] > values[at] - values[at - 1]:
            at += 1  # the one before was high by chance
        if (found := _judge_at(series, run, values, steps, at)) is not None:
            return found
    return None


def _judge_at(series: Series, run: RunState, values: list[float], steps: list[int], at: int) -> Finding | None:
    before, after = values[at - BEFORE : at], values[at : at + AFTER]
    was = median(before[-BEFORE // 2 :])
    rise, noise = median(after[:ABOVE]) - was, max(roughness(before), 0.01)
    sigmas = FEWER if sorted(after[:NEARLY])[1] > max(before) else SIGMAS
    if rise < max(LEAST, sigmas * noise) or after[0] - was < AT_ONCE * rise:
        return None
    # One value may be high by chance.
    if max(median(before[-ABOVE:]), before[-1] - noise) - was > CREPT * rise or run.raised(
        steps[at - 2], steps[at + 1], rise
    ):
        return None
    if run.reweighted(series.rank, steps[at - 2], rise) or _began_attempt(run, steps[at]):
        return None
    level, lone = median(after[-3:]), after[0] - median(after[1:ABOVE])
    if level > was + CLIMBS * rise or lone > LONE:
        return None
    faded = level < was + FADED * rise
    text = (
        f"{series.key} rose from {number(series.plain(was))} to {number(series.plain(after[0]))} at step {steps[at]}, "
        f"from one value to the next, and those after it were above all of the {BEFORE} before"
    )
    if faded:
        text += f"; it is at {number(series.plain(level))} by step {steps[min(at + AFTER, len(steps)) - 1]}"
    return LEVEL_SHIFT.about(
        series,
        steps[at],
        text,
        (series.plain(min(before)), series.plain(max(before))),
        value=series.plain(after[0]),
        cause=_DAMAGED if faded else "",
        advice=_LOOK if faded else "",
        weight=rise / noise,
    )


FEW, STAYS, MAX_FEW = 8, 5, 100
"""Values before a rise, values after it, and the most values of a series that is judged so."""
SETTLED, LEFT, HEALS = 0.12, math.log(1.25), 3
"""Means of some steps that vary by no more than this, in logarithms, in so many values, and leave their range by so
much; so many of them are above it before it may be said."""
CLEARLY, RECENTLY, APART = math.log(1.4), 8.0, 0.6
"""So many values of a loss that had come down are above so few before them by this much, in logarithms, by so many
times their noise, and each by this share of the rise."""


def judge_few(series: Series, run: RunState) -> Finding | None:
    """Find a rise that is far beyond the last values and stays, however few there are."""
    if run.reinforcement or not run.roles.isdisjoint(_OF_VALUES) or is_of_game(series, run):
        return None
    if not series.positive or not FEW + STAYS <= series.count <= MAX_FEW or repeats_loss(series, run):
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    for at in series.newest(FEW, STAYS):
        before, after = values[at - FEW : at], values[at : at + STAYS]
        was, highest = median(before[-STAYS:]), max(before[-STAYS:])  # it may still have been falling
        rise = median(after) - was
        if rise < max(CLEARLY, RECENTLY * max(roughness(before), 0.01)) or min(after) - highest < APART * rise:
            continue
        if highest - was > CREPT * rise or after[-1] - after[0] > 0.5 * rise or after[0] - median(after[1:]) > LONE:
            continue  # it was climbing before, goes on climbing, or is a spike
        if run.raised(steps[at - 2], steps[at + 1], rise) or run.reweighted(series.rank, steps[at - 2], rise):
            continue
        if _began_attempt(run, steps[at]):
            continue
        now = series.plain(median(after))
        text = (
            f"{series.key} rose from {number(series.plain(was))} to {number(now)} at step {steps[at]}, far above all "
            f"of the {STAYS} values before"
        )
        band = (series.plain(min(before)), series.plain(highest))
        return LEVEL_SHIFT.about(series, steps[at], text, band, value=now, weight=rise)
    return None


def judge_settled(series: Series, run: RunState) -> Finding | None:
    """Find a settled loss, logged now and then, that leaves the range of its last values for a few, and may heal."""
    if run.reinforcement or not run.roles.isdisjoint(_OF_VALUES) or is_of_game(series, run):
        return None
    if not series.positive or series.count < 2 * FEW + HEALS or not run.is_sparse(series):
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    for at in series.newest(2 * FEW, HEALS):
        before, after = values[at - FEW : at], values[at : at + HEALS]
        highest, span = max(before), max(before) - min(before)
        if span > SETTLED or after[0] - highest < max(LEFT, 2 * span) or min(after[1:]) - highest < 0.5 * span:
            continue
        if max(after) > after[0] or run.raised(steps[at - 1], steps[at + 1], after[0] - highest):
            continue  # it climbs, or is explained
        if run.reweighted(series.rank, steps[at - 2], after[0] - highest) or _began_attempt(run, steps[at]):
            continue
        text = (
            f"{series.key} rose from {number(series.plain(before[-1]))} to {number(series.plain(after[0]))} at step "
            f"{steps[at]}, out of the range of the {FEW} values before, and comes back slowly"
        )
        band = (series.plain(min(before)), series.plain(highest))
        return LEVEL_SHIFT.about(
            series, steps[at], text, band, value=series.plain(after[0]), cause=_DAMAGED, advice=_LOOK, weight=LEFT
        )
    return None


def _began_attempt(run: RunState, step: int) -> bool:
    return run.resumed is not None and abs(step - run.resumed) <= ABOVE


def judge_gradients(series: Series, run: RunState) -> Finding | None:
    """Find a gradient norm that is far longer from one step to the next, for a few steps in a row, and a loss with it.

    A loss in noise hardly shows weights that were disturbed a little; the gradients that lead them back do.
    """
    if run.reinforcement or not run.roles.isdisjoint(_OF_VALUES) or is_of_game(series, run):
        return None
    if not series.positive or series.count < BEFORE + AFTER or series.block_size > MAX_BLOCK:
        return None
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    for at in series.newest(BEFORE, AFTER):
        before, after = values[at - BEFORE : at], values[at : at + IN_A_ROW]
        least, shortest = max(before) + 0.5 * LONGER, min(after)
        if shortest < least:  # as nearly always, which needs no measure of the noise
            continue
        was, noise = median(before[-BEFORE // 2 :]), max(roughness(before), 0.01)
        least = max(was + max(LONGER, NOISES * noise), least)
        if shortest < least or values[at - 1] > was + CREPT * LONGER or run.changed(steps[at - 3], steps[at + 2]):
            continue
        if run.raised(steps[max(at - BEFORE, 0)], steps[at + 1], epochs=False) or _began_attempt(run, steps[at]):
            continue
        for loss in run.of_role("loss", series.rank, held_out=False):
            if (found := _with_loss(series, loss, steps[at], was, values[at])) is not None:
                return found
    return None


IN_A_ROW, LONGER, NOISES = 3, math.log(2.0), 5.0
"""So many gradients in a row are so much longer, in logarithms and in units of what neighbours differ."""


def _with_loss(series: Series, loss: Series, step: int, was: float, now: float) -> Finding | None:
    """Return the finding if the loss at the steps from this one on is above what it was, but not out of its range."""
    known = list(zip(loss.steps, loss.values, strict=True))
    before, after = [value for at, value in known if at < step][-BEFORE // 2 :], [v for at, v in known if at >= step]
    if len(before) < BEFORE // 4 or len(after) < ABOVE or not loss.positive:
        return None
    scaled, level = [math.log(value) for value in before], math.log(median(after[:ABOVE]))
    noise = roughness(scaled)
    if level - median(scaled) < max(LEAST, 0.5 * noise) or level > max(scaled) + noise:
        return None  # it has not risen, or tells it alone
    text = (
        f"{series.key} rose from {number(series.plain(was))} to {number(series.plain(now))} at step {step}, from one "
        f"value to the next, and {loss.key} from {number(median(before))} to {number(median(after[:ABOVE]))}"
    )
    band = (0.0, series.plain(was + LONGER))
    return LEVEL_SHIFT.about(
        series, step, text, band, value=series.plain(now), cause=_DAMAGED, advice=_LOOK, weight=now - was
    )


GradientsTell = judged_once("GradientsTell", LEVEL_SHIFT, ("grad_norm",), judge_gradients)
"""Watches one gradient norm."""
SuddenRise = judged_once("SuddenRise", LEVEL_SHIFT, ("loss",), judge)
"""Watches one training loss."""
SettledRise = judged_once("SettledRise", LEVEL_SHIFT, ("loss",), judge_settled)
FewRise = judged_once("FewRise", LEVEL_SHIFT, ("loss",), judge_few)
