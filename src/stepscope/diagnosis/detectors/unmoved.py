"""A policy that never moved, and a held-out loss that stands still together with that of the training."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.not_learning import NOT_LEARNING
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, sure_trend

UPDATES, MOVES, UNSURE, BLOCKS = 60, 0.02, 2.0, 3
"""In so many values an entropy moves by less than this share, and no trend of a reward, in so many blocks, is surer."""
_UNMOVED = "the policy's weights do not change, or nothing tells it which actions are better: look at advantages"


def judge_policy(series: Series, run: RunState) -> Finding | None:
    """Find a policy that is as random as at first after many updates, while no reward rises."""
    if series.count < UPDATES or not series.positive or series.lowest < (1 - MOVES) * series.highest:
        return None
    if not series.distinct or run.resumed is not None:
        return None
    rewards = run.of_role("reward", series.rank)
    if not any(each.count >= UPDATES for each in rewards):
        return None
    if any(len(each.middles) >= BLOCKS and abs(sure_trend(list(each.middles))) > UNSURE for each in rewards):
        return None
    reward = next(each for each in rewards if each.count >= UPDATES)
    text = (
        f"{series.key} has stayed between {number(series.lowest)} and {number(series.highest)} in {series.count} "
        f"values, and {reward.key} does not rise: the policy is as random as at first"
    )
    band = (0.0, 0.9 * series.highest)
    return NOT_LEARNING.about(series, series.first_step, text, band, severity="WARN", cause=_UNMOVED)


STILL, FLAT, VALUES = 4, 0.006, 30
"""So many evaluations, and a training loss with so many values, differ by less than this in logarithms."""


def _moves(series: Series, found: Finding) -> bool:
    """Return whether the entropy has moved since."""
    return series.lowest < (1 - MOVES) * series.highest


def judge_still(series: Series, run: RunState) -> Finding | None:
    """Find a held-out loss that hardly differs from the first evaluation, with a training loss that stands still."""
    if series.count < STILL or not series.positive or run.reinforcement or run.resumed is not None:
        return None
    values = series.on_scale(list(series.values))
    if max(values) - min(values) > FLAT or not series.distinct or len(values) < series.count:
        return None
    known = run.of_role("accuracy", series.rank)
    if any(each.middles and each.highest <= 1 and median(each.middles[-8:]) > KNOWS for each in known):
        return None
    for each in run.of_role("loss", series.rank, held_out=False):
        if measure(each.key) != measure(series.key) or each.count < VALUES or not each.positive:
            continue
        middles = each.block_medians()
        first, now = median(middles[:4]), median(middles[-4:])
        if abs(first - now) < FLAT and max(middles) - min(middles) < 4 * FLAT:
            text = (
                f"{series.key} went from {number(series.first_value)} to {number(series.value)} in {series.count} "
                f"evaluations, and {each.key} stands still at {number(each.value)}"
            )
            band = (0.0, 0.9 * series.first_value)
            return NOT_LEARNING.about(series, each.first_step, text, band, severity="WARN")
    return None


KNOWS = 0.8
"""With such an accuracy what there is to learn is known."""
UnmovedPolicy = judged_once(
    "UnmovedPolicy", NOT_LEARNING, ("entropy",), judge_policy, held_out=False, each="value", over=_moves
)
StandsStill = judged_once("StandsStill", NOT_LEARNING, ("loss",), judge_still, held_out=True, each="value")
"""Watch an entropy, and one held-out loss together with that of the training."""
