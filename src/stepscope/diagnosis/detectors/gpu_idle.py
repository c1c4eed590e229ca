"""An idle GPU: one that was busy and no longer is, or never was."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series import Series

GPU_IDLE = Kind(
    "gpu_idle",
    "WARN",
    "the GPU waits for data or for the host",
    "Look at the time in data loading and on the host in those steps.",
)
IDLE, BUSY = 0.2, 0.5
ROW = 12
NEVER = 48
"""A GPU that was never busy is idle after so many values."""


class GpuIdle:
    """Watches how busy a GPU is, from 0 to 1 or in percent."""

    KINDS: ClassVar[tuple[Kind, ...]] = (GPU_IDLE,)
    ROLES: ClassVar[tuple[str, ...]] = ("gpu_use",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_said", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._said = series, False

    def take(self) -> Finding | None:
        """Judge the last values, of which one may be busy."""
        series = self._series
        scale = 100.0 if series.highest > 1.5 else 1.0
        if self._said or series.value > IDLE * scale or series.count < ROW:
            return None
        recent = list(series.values)[-ROW:]
        if sum(value > IDLE * scale for value in recent) > 1:
            return None
        was_busy = bool(series.middles) and max(series.middles) > BUSY * scale
        if not was_busy and series.count < NEVER:
            return None
        self._said = True
        begun = series.steps[-ROW]
        text = f"{series.key} has been at {number(median(recent))} since step {begun}: the GPU is idle"
        return GPU_IDLE.about(series, begun, text, (BUSY * scale, scale))
