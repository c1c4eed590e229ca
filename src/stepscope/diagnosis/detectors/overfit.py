"""Overfitting: a held-out loss that rises while the training loss falls."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, jitter, roughness, trend

OVERFIT = Kind(
    "overfit",
    "WARN",
    "the model memorizes the training data",
    "Stop at the checkpoint near the lowest held-out loss; add data or regularization.",
    explains=("overtraining", "generalization_gap"),
    rules_out="harder data: the training loss still falls",
)
OVERTRAINING = Kind(
    "overtraining",
    "INFO",
    "the held-out loss has reached its best, and more training does not lower it",
    "Keep the checkpoint near the best held-out loss; stop, or lower the learning rate.",
)
GAP = Kind(
    "generalization_gap",
    "INFO",
    "the model is much better on the data it learns from than on held-out data",
    "Compare both with an earlier checkpoint; add data or regularization, and check that both sets are alike.",
)
LOSS_GAP, ACCURACY_GAP = 0.5, 0.1
"""The held-out loss is this share above that of the training, or the accuracy this far below it..."""
GAPS = 5
"""... in so many evaluations in a row."""
PATIENCE = 10
"""So many evaluations in a row are no better than the best before them."""
EVALUATIONS = 5
"""A held-out loss must rise over this many evaluations..."""
RISE = 0.06
"""... by this share of its minimum."""
LARGE = 0.15
"""A rise by this share is compared with the noise around it alone."""
JUMP = 0.7
"""A rise of which this share comes from one evaluation to the next has another cause."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the evaluations since the minimum."""
    if not series.positive or series.value < series.lowest * (1 + RISE / 2) or series.count < 8:
        return None
    values, steps = list(series.values), list(series.steps)
    lowest = min(values)
    best = values.index(lowest)
    since = values[best:]
    if len(since) <= EVALUATIONS:
        return None
    rise = median(since[-3:]) / lowest - 1
    noise = jitter(series.on_scale(values))
    if rise > LARGE:
        noise = min(noise, roughness(series.on_scale(since)))  # a steady rise is no noise
    if rise < max(RISE, 5 * noise) or trend(since) < 0.6 or not _training_falls(series, run, steps[best]):
        return None
    if max(b - a for a, b in itertools.pairwise(since)) > JUMP * (median(since[-3:]) - lowest):
        return None  # a jump is no memorizing
    text = (
        f"{series.key} has been rising since step {steps[best]} ({number(lowest)} to "
        f"{number(median(since[-3:]))}) while the training loss falls"
    )
    return OVERFIT.about(series, steps[best], text, (lowest * (1 - 5 * noise), lowest * (1 + 5 * noise)), weight=rise)


def judge_soon(series: Series, run: RunState) -> Finding | None:
    """Compare a few evaluations: since the best one each is above the one before, and the training got far better."""
    if not series.count >= FEW or not series.positive or run.reinforcement or run.resumed is not None:
        return None
    values, steps = list(series.values), list(series.steps)
    best = values.index(min(values))
    since = values[best:]
    if len(since) < 3 or since != sorted(since) or since[-1] < (FAR if len(since) < MORE else LESS) * since[0]:
        return None
    for other in run.of_role("loss", series.rank, held_out=False):
        before = [middle for middle, last in zip(other.middles, other.lasts, strict=True) if last <= steps[best]][-4:]
        if other.positive and len(before) > 2 and median(other.middles[-3:]) < BETTER * median(before):
            text = f"{series.key} rose from {number(since[0])} at step {steps[best]} to {number(since[-1])} while "
            text += f"{other.key} fell from {number(median(before))} to {number(median(other.middles[-3:]))}"
            return OVERFIT.about(
                series, steps[best], text, (since[0], since[0] * FAR), cause=_LEAKS, weight=since[-1] / since[0]
            )
    return None


FEW, FAR, BETTER = 4, 1.4, 0.7
"""So many evaluations tell a rise by the first factor, while the training loss fell below the second share..."""
MORE, LESS = 4, 1.2
"""... and so many that each are above the one before a rise by this one."""
LOWER = 0.9
"""Below this share of its best a held-out loss goes on improving."""
_LEAKS = "the model memorizes the training data, or sees its targets there (a mask or a shift that is missing)"


def _is_lower_yet(series: Series, found: Finding) -> bool:
    """Return whether the held-out loss has fallen below what was its best: it rose by chance, in a few evaluations."""
    return found.expected is not None and series.value < LOWER * found.expected[0]


def judge_patience(series: Series, run: RunState) -> Finding | None:
    """Tell when the best evaluation is many evaluations ago, and how far above the training loss it is."""
    if series.count < 2 * PATIENCE or run.reinforcement:
        return None
    values, steps = list(series.values), list(series.steps)
    best = values.index(min(values))
    if len(values) - best <= PATIENCE:
        return None
    lowest = f"{number(values[best])} since step {steps[best]}"
    text = f"{series.key} has not been lower than {lowest}, for {PATIENCE} evaluations"
    losses = [each for each in run.of_role("loss", series.rank, held_out=False) if each.middles and each.positive]
    if losses and series.positive:
        text += f"; it is {median(values[-3:]) / losses[0].middles[-1] - 1:+.0%} from {losses[0].key}"
    return OVERTRAINING.about(series, steps[best], text, (series.lowest, values[best]))


def judge_gap(series: Series, run: RunState) -> Finding | None:
    """Compare the last evaluations with the training since the first of them."""
    if series.count < GAPS + 1:
        return None
    steps, values = list(series.steps)[-GAPS:], list(series.values)[-GAPS:]
    for other in run.of_role(series.role.name, series.rank, held_out=False):
        since = [middle for middle, last in zip(other.middles, other.lasts, strict=True) if last >= steps[0]]
        if (
            len(since) < 3
            or measure(other.key) != measure(series.key)
            or (series.role.name == "loss" and not (other.positive and series.positive))
        ):
            continue
        usual = median(since)
        if series.role.name == "loss":
            wide, gap = min(values) - usual > LOSS_GAP * usual, f"{median(values) / usual - 1:.0%} above"
        else:
            wide, gap = usual - max(values) > ACCURACY_GAP, f"{number(usual - median(values), 2)} below"
        if wide and max(usual, *values) <= (1.0 if series.role.name == "accuracy" else math.inf):
            text = f"{series.key} has been {gap} {other.key} in the last {GAPS} evaluations"
            return GAP.about(series, steps[0], text, (usual, usual))
    return None


def _training_falls(series: Series, run: RunState, since: int) -> bool:
    for other in run.of_role("loss", series.rank, held_out=False):
        middles = [middle for middle, last in zip(other.middles, other.lasts, strict=True) if last >= since]
        if len(middles) >= 4 and median(middles[-2:]) < median(middles[:2]) and trend(middles) < -0.3:
            return True
    return False


Overtraining = judged_once("Overtraining", OVERTRAINING, ("loss",), judge_patience, held_out=True, each="value")
GeneralizationGap = judged_once("GeneralizationGap", GAP, ("loss", "accuracy"), judge_gap, held_out=True, each="value")
OverfitSoon = judged_once(
    "OverfitSoon", OVERFIT, ("loss",), judge_soon, held_out=True, each="value", over=_is_lower_yet
)
Overfit = judged_once("Overfit", OVERFIT, ("loss",), judge, held_out=True, each="value")
"""Watches one held-out loss together with the training loss."""
