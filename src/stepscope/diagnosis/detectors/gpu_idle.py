"""Idle GPU: one that is no longer busy, or never was."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

GPU_IDLE = Kind(
    "gpu_idle",
    "WARN",
    "the GPU waits for data or for the host",
    "Check the time spent in data loading and on the host in those steps.",
)
IDLE, BUSY = 0.2, 0.5
ROW = 12
NEVER = 48
"""A GPU that was never busy is reported after this many values."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate the last values, tolerating a single busy one."""
    scale = 100.0 if series.highest > 1.5 else 1.0
    if series.value > IDLE * scale or series.count < ROW:
        return None
    recent = list(series.values)[-ROW:]
    if sum(value > IDLE * scale for value in recent) > 1:
        return None
    was_busy = bool(series.middles) and max(series.middles) > BUSY * scale
    if not was_busy and series.count < NEVER:
        return None
    begun = series.steps[-ROW]
    text = f"{series.key} has been at {number(median(recent))} since step {begun}: the GPU is idle"
    return GPU_IDLE.about(series, begun, text, (BUSY * scale, scale))


GpuIdle = judged_once("GpuIdle", GPU_IDLE, ("gpu_use",), judge, held_out=None, each="value")
"""Watches how busy a GPU is, from 0 to 1 or in percent."""
