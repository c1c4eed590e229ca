"""Constant values: a loss or a reward that is bitwise the same again and again."""

import itertools

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

CONSTANT = Kind(
    "constant",
    "ERROR",
    "the computation is cut off from its inputs: a dead model, or a value that is no longer updated",
    "Check whether weights and inputs still change.",
)
DEAD_ENVIRONMENT = Kind(
    "dead_environment",
    "ERROR",
    "the environment or the reward function no longer responds",
    "Look at one episode; check the environment's process and the reward's inputs.",
    explains=(
        *("entropy_collapse", "value_function", "constant", "clip_zero", "spike", "reward_collapse", "zero_advantage"),
        *("vanishing_gradients", "level_shift"),
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
NEVER = 240
"""A reward that has never been anything but 0, in so many values, is not given."""


def _judge_loss(series: Series, run: RunState) -> Finding | None:
    if series.value in SATURATED or (series.same < LOSSES and not _stopped_varying(series, FEW_LOSSES)):
        return None
    return _repeated(CONSTANT, series)


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
    if series.count >= NEVER and not series.distinct and series.value == 0:
        return _never_given(series, run)
    if series.value >= series.highest > 0:
        return None  # at its best a reward may stay
    if not _stopped_varying(series, FEW_REWARDS) and (series.same < REWARDS or series.count <= MIN_REWARDS):
        return None
    return _repeated(DEAD_ENVIRONMENT, series)


def _never_given(series: Series, run: RunState) -> Finding | None:
    """Return the finding of a run without any reward; one part of several may stay at 0."""
    if any(each.distinct for each in run.of_role("reward", series.rank)):
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
