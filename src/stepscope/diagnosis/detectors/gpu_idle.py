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
SMALL_BATCH = Kind(
    "small_batch",
    "INFO",
    "neither the GPU nor its memory nor the CPUs are used much: each step has little work",
    "Raise the batch size, or train several models on one GPU.",
)
IDLE, LOW, BUSY = 0.2, 0.3, 0.5
ROW = 12
NEVER = 48
"""A GPU that was never busy is reported after this many values, from a higher use on."""
CPU_BOUND, STORAGE_BOUND = 0.9, 0.5
"""The use of the CPUs, and the share of the time in which tasks wait for storage, from which on they are the cause."""
SMALL, SMALL_VALUES = 0.7, 120


def judge(series: Series, run: RunState) -> Finding | None:
    """Evaluate the last values, tolerating a single busy one."""
    scale = 100.0 if series.highest > 1.5 else 1.0
    idle = (LOW if series.count >= NEVER and series.highest < BUSY * scale else IDLE) * scale
    if series.value > idle or series.count < ROW:
        return None
    recent = list(series.values)[-ROW:]
    if sum(value > idle for value in recent) > 1:
        return None
    was_busy = bool(series.middles) and max(series.middles) > BUSY * scale
    if not was_busy and series.count < NEVER:
        return None
    begun = series.steps[-ROW]
    text = f"{series.key} has been at {number(median(recent))} since step {begun}: the GPU is idle"
    return GPU_IDLE.about(series, begun, text, (BUSY * scale, scale), cause=_cause(run, series.rank))


def _cause(run: RunState, rank: int) -> str:
    """Return what else the machine was short of meanwhile."""
    if (share := run.reading("host_io_pressure", rank)) > STORAGE_BOUND:
        return f"the GPU waits for the storage: tasks wait for it {share:.0%} of the time"
    if (share := run.reading("host_cpu_use", rank)) > CPU_BOUND:
        return f"the GPU waits for the CPUs, which are {share:.0%} busy: loading, augmentation or the Python loop"
    return ""


def judge_size(series: Series, run: RunState) -> Finding | None:
    """Evaluate whether GPU, its memory and the CPUs have room for a larger batch."""
    scale = 100.0 if series.highest > 1.5 else 1.0
    memory = [each for each in run.of_role("gpu_memory_use", series.rank) if len(each.values) >= ROW]
    if series.count < SMALL_VALUES or not memory or not LOW * scale < _high(series) < SMALL * scale:
        return None
    filled = max(map(_high, memory))
    if filled > SMALL or run.reading("host_cpu_use", series.rank) > SMALL:
        return None
    text = f"{series.key} has stayed below {number(_high(series))}, and {filled:.0%} of the GPU's memory is used"
    return SMALL_BATCH.about(series, series.first_step, text, (SMALL * scale, scale), value=_high(series))


def _high(series: Series) -> float:
    """Return the 95th percentile of the last values."""
    values = sorted(series.values)
    return values[int(0.95 * (len(values) - 1))]


SmallBatch = judged_once("SmallBatch", SMALL_BATCH, ("gpu_use",), judge_size, held_out=None)
GpuIdle = judged_once("GpuIdle", GPU_IDLE, ("gpu_use",), judge, held_out=None, each="value")
"""Watches how busy a GPU is, from 0 to 1 or in percent."""
