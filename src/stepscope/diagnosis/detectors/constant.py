"""Constant values: a loss or a reward that is bitwise the same again and again."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.not_learning import CLASSES, NOT_LEARNING
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

CONSTANT = Kind(
    "constant",
    "ERROR",
    "the computation is cut off from its inputs: a dead model, or a value that is no longer updated",
    "Check whether weights and inputs still change.",
    explains=("not_learning", "plateau"),
)
DEAD_ENVIRONMENT = Kind(
    "dead_environment",
    "ERROR",
    "the environment or the reward function no longer responds",
    "Look at one episode; check the environment's process and the reward's inputs.",
    explains=(
        *("entropy_collapse", "value_function", "constant", "clip_zero", "spike", "reward_collapse", "zero_advantage"),
        *("vanishing_gradients", "level_shift", "entropy_explosion"),
    ),
    lasts=True,
)
LOSSES = 30
SATURATED = (0.0, 1.0)
"""Values at which a healthy loss may stay."""
REWARDS = 40
MIN_REWARDS = 60
FEW_LOSSES, FEW_REWARDS, VARIED, APART = 10, 16, 20, 1e-3
"""So many equal values are enough after so many that were all apart, nearly all of them by this share."""
ALWAYS = 40
"""A loss that has had this many values, all of them equal, while other values of the training differ."""
GUESS = 1e-3
"""So close to the loss of guessing it says that nothing is learnt."""
EMPTIED, KEPT, FAR, LEFT = 20, 12, 0.25, 0.1
"""So many zeros of a loss, at once after so many values above this share of their median, one of the highest so far."""
NEVER, NEVER_BESIDE = 240, 60
"""A reward that has never been anything but 0, in so many values, is not given; fewer where evaluations have one."""
GONE, GIVEN = 10, 8
"""A reward that was never 0 in so many values before, and is exactly 0 in so many since, is not given any more."""


def _judge_loss(series: Series, run: RunState) -> Finding | None:
    if series.value == 0.0 and (found := _emptied(series)) is not None:
        return found
    if not series.distinct:
        return _always(series, run)
    if series.value in SATURATED or (series.same < LOSSES and not _stopped_varying(series, FEW_LOSSES)):
        return None
    return _repeated(CONSTANT, series)


def _always(series: Series, run: RunState) -> Finding | None:
    """Find a loss that has never had another value, in a training that does change."""
    if series.count < ALWAYS or series.value in SATURATED:
        return None
    for role in ("grad_norm", "loss", "accuracy"):
        for other in run.of_role(role, series.rank, held_out=False):
            if other is not series and other.distinct and other.count >= ALWAYS // 2:
                text = (
                    f"{series.key} has been exactly {number(series.value)} in all {series.count} values, though "
                    f"{other.key} changes"
                )
                band = (0.0, 0.9 * series.value)
                kind = NOT_LEARNING if any(abs(series.value - math.log(each)) < GUESS for each in CLASSES) else CONSTANT
                return kind.about(series, series.first_step, text, band, cause=_ALWAYS, advice=_BOTH)
    return None


_ALWAYS = (
    "what is compared is one and the same (a reference that is the model itself, positives that are the negatives), or "
    "the weights it is computed from are never updated"
)
_BOTH = "Print both sides of the comparison for one batch; check which weights are loaded there, and when."


def _emptied(series: Series) -> Finding | None:
    """Find a loss that became exactly zero from one value to the next: one that is learnt nears it."""
    if series.same < EMPTIED or not series.distinct or series.same + KEPT > len(series.values):
        return None
    before = list(series.values)[-series.same - KEPT : -series.same]
    if min(before) <= 0 or min(before) < FAR * median(before) or median(before) < LEFT * series.highest:
        return None
    text = f"{series.key} has been exactly 0 since step {series.same_since}, usually {number(median(before))} before"
    band = (min(before), max(before))
    return CONSTANT.about(series, series.same_since, text, band, severity="WARN", cause=_NO_DATA, advice=_COUNT)


_NO_DATA = "nothing counts in it any more: its mask is empty, its data have ended, or its weight became zero"
_COUNT = "Log how many examples or tokens count in it; look at its mask and its source at that step."


def _stopped_varying(series: Series, least: int) -> bool:
    """Return whether values that had always differed, and by more than the end of a convergence, are equal now."""
    if series.same < least or series.count < VARIED + least:
        return False
    values = list(series.values)[: -series.same + 1]  # with the first of the equal ones
    if len(values) < VARIED:
        return False
    apart = [abs(b - a) for a, b in itertools.pairwise(values[-VARIED:])]
    return sorted(apart)[2] > APART * abs(values[-1]) and apart.count(0.0) == 0


def _judge_reward(series: Series, run: RunState) -> Finding | None:
    if not series.distinct and series.value == 0:
        return _never_given(series, run)
    if series.value == 0 and series.same >= GONE and _was_given(series):
        return _repeated(DEAD_ENVIRONMENT, series)
    if series.value >= series.highest > 0:
        return None  # at its best a reward may stay
    if not _stopped_varying(series, FEW_REWARDS) and (series.same < REWARDS or series.count <= MIN_REWARDS):
        return None
    return _repeated(DEAD_ENVIRONMENT, series)


def _was_given(series: Series) -> bool:
    """Return whether all values just before those that are equal were above 0."""
    before = list(series.values)[: -series.same + 1 or None][-GIVEN - 1 : -1]
    return len(before) == GIVEN and min(before) > 0


def _never_given(series: Series, run: RunState) -> Finding | None:
    """Return the finding of a run without any reward; one part of several may stay at 0."""
    if any(each.distinct for each in run.of_role("reward", series.rank, held_out=False)):
        return None
    beside = any(each.distinct for each in run.of_role("reward", series.rank, held_out=True))
    if series.count < (NEVER_BESIDE if beside else NEVER):
        return None
    text = f"{series.key} has been 0 in all {series.count} values: no reward has ever been given"
    return DEAD_ENVIRONMENT.about(
        series,
        series.first_step,
        text,
        (0.0, 1.0),
        severity="WARN",
        cause="the reward function never rewards, its answer is lost on the way, or the task is out of reach",
    )


def _repeated(kind: Kind, series: Series) -> Finding | None:
    """Return the finding of a series that has had other values before."""
    if not series.distinct:
        return None
    text = f"{series.key} has been exactly {number(series.value)} since step {series.same_since}"
    return kind.about(series, series.same_since, text, (series.lowest, series.highest))


Constant = judged_once("Constant", CONSTANT, ("loss",), _judge_loss)
"""Watches one training loss."""
DeadEnvironment = judged_once("DeadEnvironment", DEAD_ENVIRONMENT, ("reward",), _judge_reward)
"""Watches one reward."""
