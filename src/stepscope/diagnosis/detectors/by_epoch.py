"""Losses that are logged once an epoch, beside a held-out metric: few values, each of them the mean of many steps."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, Values, judged_once
from stepscope.diagnosis.detectors.constant import CONSTANT, SATURATED
from stepscope.diagnosis.detectors.not_learning import NOT_LEARNING
from stepscope.diagnosis.detectors.plateau import LEARNT, PLATEAU
from stepscope.diagnosis.detectors.too_good import TOO_GOOD
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series, jitter

MOST = 120
"""More values than these are of steps, and judged as such."""
SHARE = 0.8
"""So many of the values of a loss come with a held-out one."""
GUESSES, NEAR = 10, 0.02
"""A loss that is within this share of the loss of guessing, in so many epochs, is one of guessing."""
UNCHANGED, LONG = 0.01, 20
"""A loss that has not fallen by this share in so many epochs does not learn."""
BEFORE, AFTER = 5, 8
"""A fall over so many epochs that stops, and does not go on in so many more, has stopped at once..."""
STEEP, FLAT = 6.0, 3.0
"""... if each of them brought so many times the noise, and those after it less than this in all."""
SLOWED = 0.6
"""A fall that slows down below this share of its earlier speed approaches a floor."""
SAME = 5
"""So many evaluations are equal to the last digit..."""
FELL = 0.03
"""... while the training loss falls by this share."""
LEAP, LEAPT = 5.0, 3
"""A held-out loss so many times below all before it and below the training loss, in so many evaluations."""


def _is_by_epoch(series: Series, run: RunState) -> bool:
    if not GUESSES <= series.count <= MOST or not series.positive:
        return False
    return any(each.count >= SHARE * series.count for each in run.held_out if each.rank == series.rank)


def judge(series: Series, run: RunState) -> Finding | None:
    """Judge the training loss of the epochs so far."""
    if not _is_by_epoch(series, run) or run.reinforcement or run.resumed is not None:
        return None
    return _unlearnt(series, run) or _stopped(series, run)


def _unlearnt(series: Series, run: RunState) -> Finding | None:
    values = list(series.values)
    level = median(values)
    classes = round(math.exp(level)) if level < 12 else 0
    guessed = [
        each
        for each in run.of_role("accuracy", series.rank)
        if each.count >= GUESSES and classes > 1 and abs(median(each.values) * classes - 1) < 0.2
    ]
    near = classes > 1 and max(abs(value / math.log(classes) - 1) for value in values[1:]) < NEAR
    if near and guessed:
        how = f"ln {classes}, with {guessed[0].key} at {number(median(guessed[0].values))}: no better than guessing"
    elif series.count >= LONG and min(values) > (1 - UNCHANGED) * median(values[:3]) and max(values) < 1.05 * level:
        how = "it has not fallen"
    else:
        return None
    text = f"{series.key} has stayed at {number(level)} for {series.count} epochs: {how}"
    return NOT_LEARNING.about(series, series.first_step, text, (0.0, 0.9 * level))


def _stopped(series: Series, run: RunState) -> Finding | None:
    values, steps = list(series.values), list(series.steps)
    at = len(values) - AFTER - 1
    if at < BEFORE or math.log(max(values) / values[-1]) > LEARNT:
        return None
    before, after = values[at - BEFORE : at + 1], values[at:]
    noise = max(jitter(after), 1e-4 * values[-1])
    slope = (before[0] - before[-1]) / BEFORE
    early, late = (before[0] - before[3]) / 3, (before[3] - before[-1]) / 2
    if slope < STEEP * noise or late < SLOWED * early or max(after) - min(after) > (FLAT + 2) * noise:
        return None
    if abs(median(after[:3]) - median(after[-3:])) > FLAT * noise or run.changed(steps[at - BEFORE], steps[at] + 1):
        return None
    text = f"{series.key} fell steadily and then stopped at step {steps[at]}, at {number(values[-1])}"
    return PLATEAU.about(series, steps[at], text, (values[-1] - AFTER * slope / 2, values[-1]))


def judge_evaluation(series: Series, run: RunState) -> Finding | None:
    """Judge a held-out loss against the training loss."""
    trained = [each for each in run.of_role("loss", series.rank, held_out=False) if each.positive and each.middles]
    if not trained or not series.positive or run.reinforcement:
        return None
    return _same(series, trained[0]) or _leapt(series, trained[0])


def _same(series: Series, trained: Series) -> Finding | None:
    if series.same < SAME or not series.distinct or series.value in SATURATED:
        return None
    since = [value for step, value in zip(trained.steps, trained.values, strict=True) if step >= series.same_since]
    if len(since) < SAME or median(since[-2:]) > (1 - FELL) * median(since[:2]):
        return None
    text = f"{series.key} has been exactly {number(series.value)} in {series.same} evaluations, since step "
    text += f"{series.same_since}, while {trained.key} fell"
    return CONSTANT.about(
        series,
        series.same_since,
        text,
        (series.lowest, series.highest),
        cause="the evaluation does not see the weights that are trained: an old copy, an average that is not updated, "
        "or a cached result",
        advice="Evaluate the model object that the optimizer updates; check averaged weights and caches.",
    )


def _leapt(series: Series, trained: Series) -> Finding | None:
    values = list(series.values)
    if len(values) < 4 + LEAPT:
        return None
    before, after = values[:-LEAPT], values[-LEAPT:]
    if LEAP * max(after) > min(before) or LEAP * max(after) > trained.value:
        return None
    begun = series.steps[-LEAPT]
    text = f"{series.key} fell from {number(before[-1])} to {number(after[0])} at step {begun}, while {trained.key} is "
    return TOO_GOOD.about(
        series,
        begun,
        f"{text}{number(trained.value)}",
        (min(before) / LEAP, max(before)),
        cause="held-out data is trained on, the target leaks into it, or what is evaluated changed",
        advice="Check what the evaluation reads since that step, and that its samples are not among those trained on.",
    )


def _usual(series: Series, run: RunState, ahead: Values) -> int:
    return len(ahead.steps) if series.count >= MOST else max(GUESSES - 1 - series.count, 0)


ByEpoch = judged_once("ByEpoch", NOT_LEARNING, ("loss",), judge, each="value", usual=_usual)
Evaluations = judged_once("Evaluations", CONSTANT, ("loss",), judge_evaluation, held_out=True, each="value")
