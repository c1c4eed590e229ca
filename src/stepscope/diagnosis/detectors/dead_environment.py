"""Dead environment: a reward that is bitwise the same again and again."""

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series import Series

DEAD = Kind(
    "dead_environment",
    "ERROR",
    "the environment or the reward function no longer responds",
    "Look at one episode; check the environment's process and the reward's inputs.",
    explains=("entropy_collapse", "value_function", "constant", "clip_zero", "spike"),
    lasts=True,
)
VALUES = 40
LEAST = 60


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate how often the value was repeated."""
    if series.same < VALUES or not series.distinct or series.count <= LEAST:
        return None
    text = f"{series.key} has been exactly {number(series.value)} since step {series.same_since}"
    return DEAD.about(series, series.same_since, text, (series.lowest, series.highest))


DeadEnvironment = judged_once("DeadEnvironment", DEAD, ("reward",), judge)
"""Watches one reward."""
