"""GPU health: clocks that heat or power hold down, memory errors, rows of memory that cannot be replaced."""

from collections import deque
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

SLOWDOWN = Kind(
    "gpu_slowdown",
    "WARN",
    "the GPU lowers its clock: it is too hot, or its power supply limits it",
    "Check cooling and power of that machine (nvidia-smi -q -d PERFORMANCE), and compare with another one.",
    explains=("throughput_loss", "straggler", "slow_span", "slower_than_before"),
    lasts=True,
    rules_out="more work in each step: the driver reports the lower clock",
    next="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
)
ERRORS = Kind(
    "gpu_errors",
    "ERROR",
    "the memory of the GPU is damaged",
    "Take the machine out of service, reset the GPU or have it replaced; do not trust results since the first error.",
    explains=("crash", "dead_rank", "not_finite"),
    lasts=True,
    rules_out="a fault of the program: the driver counts the errors",
    next="nvidia-smi -q -d ECC,ROW_REMAPPER",
)
READINGS, SLOW = 10, 6
"""A slowdown shows in so many of the last readings."""


class GpuHealth:
    """Watches readings of the driver about slowdowns and errors."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SLOWDOWN, ERRORS)
    ROLES: ClassVar[tuple[str, ...]] = ("gpu_slowdown", "gpu_errors")
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_first", "_recent", "_reported", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series = series
        self._recent: deque[tuple[int, float]] = deque(maxlen=READINGS)
        self._first: float | None = None
        self._reported = False

    def take(self) -> Finding | None:
        """Evaluate a reading."""
        if self._reported:
            return None
        found = self._slowdown() if self._series.role.name == "gpu_slowdown" else self._errors()
        self._reported = found is not None
        return found

    def _slowdown(self) -> Finding | None:
        series = self._series
        self._recent.append((series.step, series.value))
        slow = [step for step, value in self._recent if value > 0]
        if len(slow) < SLOW:
            return None
        why = "by heat" if "thermal" in series.key else "by its power supply"
        gpu = _gpu(series.key)
        return SLOWDOWN.about(series, slow[0], f"{gpu} has been slowed down {why} since step {slow[0]}", (0.0, 0.0))

    def _errors(self) -> Finding | None:
        series = self._series
        if self._first is None:
            self._first = series.value if "ecc" in series.key else 0.0
        if series.value <= self._first:
            return None
        what = {
            "ecc_uncorrected": "uncorrectable memory errors",
            "rows_remap_pending": "rows of memory to be replaced at the next reset",
            "rows_remap_failed": "rows of memory that could not be replaced",
        }[series.key.rpartition("/")[2]]
        count = number(series.value - self._first)
        return ERRORS.about(series, series.step, f"{_gpu(series.key)} has {count} {what}", (0.0, 0.0), weight=5.0)


def _gpu(key: str) -> str:
    """Return the GPU of a key such as `system/gpu/0/ecc_uncorrected`, in words."""
    parts = key.split("/")
    return f"GPU {parts[-2]}" if len(parts) > 1 else "the GPU"
