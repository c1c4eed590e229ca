"""A dead environment: a reward that does not change by a single bit."""

from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series import Series

DEAD = Kind(
    "dead_environment",
    "ERROR",
    "the environment or the reward function no longer answers",
    "Look at one episode; check the environment's process and the reward's inputs.",
    explains=("entropy_collapse", "value_function", "constant", "clip_zero", "spike"),
    lasts=True,
)
VALUES = 40
LEAST = 60


class DeadEnvironment:
    """Watches one reward."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DEAD,)
    ROLES: ClassVar[tuple[str, ...]] = ("reward",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_said", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._said = series, False

    def take(self) -> Finding | None:
        """Judge how often the same value came."""
        series = self._series
        if series.same < VALUES or self._said or not series.distinct or series.count <= LEAST:
            return None
        self._said = True
        text = f"{series.key} has been exactly {number(series.value)} since step {series.same_since}"
        return DEAD.about(series, series.same_since, text, (series.lowest, series.highest))
