"""GPU health: clocks that heat or power hold down, memory errors, rows of memory that cannot be replaced."""

from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, judged_once
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
LOST = Kind(
    "gpu_lost",
    "ERROR",
    "the driver no longer answers for this GPU: it has fallen off the bus, or the driver failed",
    "Look at the kernel log for Xid messages; take the machine out of service and restart it.",
    explains=("crash", "dead_rank", "hang"),
    lasts=True,
    expects="readings of every GPU as long as the machine is read",
    next="nvidia-smi",
)
READINGS, SLOW = 10, 6
"""A slowdown shows in so many of the last readings."""


def judge_slowdown(series: Series, run: RunState) -> Finding | None:
    """Count the readings in which the driver lowered the clock."""
    recent = list(zip(series.steps, series.values, strict=True))[-READINGS:]
    slow = [step for step, value in recent if value > 0]
    if len(slow) < SLOW:
        return None
    why = "by heat" if "thermal" in series.key else "by its power supply"
    gpu = _gpu(series.key)
    return SLOWDOWN.about(series, slow[0], f"{gpu} has been slowed down {why} since step {slow[0]}", (0.0, 0.0))


def judge_errors(series: Series, run: RunState) -> Finding | None:
    """Compare a count of errors with its first reading, for those of before this run, or with 0."""
    first = series.first_value if "ecc" in series.key else 0.0
    if series.value <= first:
        return None
    what = {
        "ecc_uncorrected": "uncorrectable memory errors",
        "rows_remap_pending": "rows of memory to be replaced at the next reset",
        "rows_remap_failed": "rows of memory that could not be replaced",
    }[series.key.rpartition("/")[2]]
    count = number(series.value - first)
    return ERRORS.about(series, series.step, f"{_gpu(series.key)} has {count} {what}", (0.0, 0.0), weight=5.0)


GpuSlowdown = judged_once("GpuSlowdown", SLOWDOWN, ("gpu_slowdown",), judge_slowdown, held_out=None, each="value")
GpuErrors = judged_once("GpuErrors", ERRORS, ("gpu_errors",), judge_errors, held_out=None, each="value")
"""Watch readings of the driver about slowdowns and errors."""


class LostGpus:
    """Watches, whenever a machine is read, whether all GPUs that it had are still read."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOST,)
    ROLES: ClassVar[tuple[str, ...]] = ("host_load",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_attempt", "_reported", "_run", "_series", "_since")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._attempt, self._since = run.attempt, series.time
        self._reported: set[str] = set()

    def take(self) -> Finding | None:
        """Compare the time of this reading with the last of each GPU in this attempt."""
        series, run = self._series, self._run
        if run.attempt != self._attempt:
            self._attempt, self._since = run.attempt, series.time
        for each in run.by_role.get(("gpu_use", series.rank), ())[:MAX_GPUS]:
            if each.key in self._reported or each.count < MIN_READINGS or each.time < self._since:
                continue
            usual = (each.time - each.first_time) / (each.count - 1)
            if series.time - each.time > max(MISSED * usual, MISSED_NS):
                self._reported.add(each.key)
                text = f"{_gpu(each.key)} has not been read since step {each.step}, the machine still is"
                return LOST.finding(
                    text, series.time, step=each.step, last=series.step, ranks=(series.rank,), key=each.key, weight=5.0
                )
        return None


MAX_GPUS, MIN_READINGS = 64, 5
MISSED, MISSED_NS = 6, 30_000_000_000
"""A GPU is lost when so many readings are missing, for at least this time."""


def _gpu(key: str) -> str:
    """Return the GPU of a key such as `system/gpu/0/ecc_uncorrected`, in words."""
    parts = key.split("/")
    return f"GPU {parts[-2]}" if len(parts) > 1 else "the GPU"
