"""A value function that predicts returns no better than a constant."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

VALUE_FUNCTION = Kind(
    "value_function",
    "WARN",
    "the value function does not learn",
    "Raise its learning rate or its share of the loss; check returns and their scale.",
    explains=("clip_zero",),
)
ROW = 30
GOOD, LOW = 0.4, 0.3
GOOD_BLOCKS = 6
RISING = 8
"""A value function that explained nothing in so many blocks in which the reward rose does not learn."""
BEST = 0.85
"""A reward above this share of its range is high."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values with the best, after the time that a value function needs to learn."""
    if series.count < 2 * ROW or series.middles[-1] > LOW:
        return None
    recent = list(series.values)[-ROW:]
    best, level = max(series.middles), median(recent)
    lost = (
        sum(middle > GOOD for middle in series.middles) >= GOOD_BLOCKS
        and level < 0.15
        and sum(value < LOW for value in recent) > 0.9 * len(recent)
    )
    never = series.count > 4 * ROW and best < 0.1 and level < 0.05
    if not (lost or (never and (not _rewards_are_high(series, run) or _missed_the_rise(series, run)))):
        return None  # once a policy has learnt its task, what is left of the returns may be noise
    begun = _last_above(series, LOW) if lost else series.first_step
    fell = f"fell from {number(best)} to {number(level)} since step {begun}"
    stayed = f"has stayed at {number(level)}"
    text = f"{series.key} {fell if lost else stayed}: the value function predicts no better than a constant"
    return VALUE_FUNCTION.about(series, begun, text, (0.5, 1.0))


def _rewards_are_high(series: Series, run: RunState) -> bool:
    found = [each for each in run.of_role("reward", series.rank, held_out=False) if each.middles]
    return any(median(each.middles[-3:]) - each.lowest > BEST * (max(each.middles) - each.lowest) for each in found)


def _missed_the_rise(series: Series, run: RunState) -> bool:
    """Return whether it explained nothing either while there was something to explain: the reward was on its way."""
    if median(series.middles) > 0:
        return False  # a little better than a constant
    for each in run.of_role("reward", series.rank, held_out=False):
        if not each.middles:
            continue
        high = each.lowest + BEST * (max(each.middles) - each.lowest)
        reached = next((first for first, middle in zip(each.firsts, each.middles, strict=True) if middle > high), 0)
        if sum(last < reached for last in series.lasts) >= RISING:
            return True
    return False


def _last_above(series: Series, limit: float) -> int:
    above = (step for step, value in zip(reversed(series.steps), reversed(series.values), strict=True) if value > limit)
    return next(above, series.steps[0])


ValueFunction = judged_once("ValueFunction", VALUE_FUNCTION, ("explained_variance",), judge)
"""Watches one explained variance."""
