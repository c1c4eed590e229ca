"""Resource exhaustion: steadily growing memory or a filling disk, and the time until it is full."""

from dataclasses import replace
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number, seconds
from stepscope.diagnosis.series_history import Series, roughness, trend

_KEPT = "something is kept each step: a list of tensors with their graphs, a cache, files"
_DETACH = "Detach what is stored each step; look for growing lists and caches."
MEMORY = Kind(
    "memory_creep",
    "WARN",
    _KEPT,
    _DETACH,
    rules_out="a cache that fills once: it has not stopped growing",
    next="stepscope top RUN",
)
GPU_MEMORY = Kind(
    "gpu_memory_creep",
    "WARN",
    _KEPT,
    _DETACH,
    next="stepscope top RUN",
)
DISK = Kind(
    "disk_filling",
    "WARN",
    "checkpoints or logs are never removed",
    "Keep fewer checkpoints.",
    next="df -h",
)
_BY_ROLE = {"memory": MEMORY, "gpu_memory": GPU_MEMORY, "disk_free": DISK}
CREEP, LEAK, EXACT = 0.15, 0.05, 60.0
"""Memory creeps when it grew by this share, or by the second one after it had been level, so many times as much as it
usually moves..."""
STEADY = 0.85
"""... this steadily (Kendall's tau)..."""
MIN_BLOCKS, MIN_VALUES = 10, 24
"""... over this many blocks, or single values where few are logged..."""
MIN_RISING = 7
"""... or this many of the GPU's allocator, whose readings have no noise."""
STILL = 0.03
"""It has not begun to grow where it is this share of the growth above its first level."""


_OTHERS = "other programs on this machine, or children of this run's processes such as loader workers"
OWN, SOON_SECONDS = 0.25, 600.0
"""Below this share of the growth the run's own processes are not the cause: a remark, unless it is full so soon."""


class Creep:
    """Watches used memory or free disk space."""

    KINDS: ClassVar[tuple[Kind, ...]] = (MEMORY, GPU_MEMORY, DISK)
    ROLES: ClassVar[tuple[str, ...]] = ("memory", "gpu_memory", "disk_free")
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_kind", "_reported", "_run", "_series", "_sign", "_times")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._reported = series, run, False
        self._kind = _BY_ROLE[series.role.name]
        self._sign = -1.0 if self._kind is DISK else 1.0
        self._times = [(series.first_step, series.first_time)]
        """When blocks ended."""

    def take(self) -> Finding | None:
        """Evaluate the last three quarters of a series (the first has the warm-up) from where it begins to grow."""
        series, sign = self._series, self._sign
        self._times.append((series.step, series.time))
        del self._times[1:-64]
        count = len(series.middles)
        if self._reported or count < (MIN_BLOCKS if series.block_size > 1 else MIN_VALUES):
            return None
        begun = count // 4
        grown = sign * (series.middles[-1] - series.middles[begun])
        size = abs(series.middles[-1]) if sign > 0 else abs(series.middles[0])
        if grown < LEAK * size:
            return None
        part = [sign * middle for middle in series.middles[begun:]]
        flat = max(at for at, value in enumerate(part) if value - part[0] <= STILL * grown)
        if grown < CREEP * size and (self._kind is DISK or not _leaks(part[flat:], flat, grown)):
            return None
        if not self._creeps(part[flat:], grown):
            return None
        self._reported = True
        return self._finding(begun + flat + (flat > 0), grown)

    def _creeps(self, part: list[float], grown: float) -> bool:
        """Return whether it has grown since the first of these blocks, evenly and to the last."""
        least = MIN_RISING if self._kind is GPU_MEMORY else MIN_BLOCKS - 2
        if len(part) < (least if self._series.block_size > 1 else MIN_VALUES):
            return False
        half = part[len(part) // 2]
        even = half - part[0] > 0.25 * grown and part[-1] - half > 0.25 * grown
        recent = part[-1] - part[-max(len(part) // 4, 2)]
        return trend(part) >= STEADY and grown >= 8 * roughness(part) and even and recent >= 0.1 * grown

    def _finding(self, block: int, grown: float) -> Finding:
        series = self._series
        first, level = series.firsts[block], series.middles[max(block - 1, 0)]
        begun = next((time for step, time in self._times if step >= first), self._times[0][1])
        took = max((series.time - begun) / 1e9, 1e-9)
        left = self._room() / max(grown / took, 1e-9)
        until = f"; at this rate it is full in {seconds(left)}" if left > 0 else ""
        what = "shrinking" if self._kind is DISK else "growing"
        size = f"{_size(grown, series.key)} in {seconds(took)}"
        text = f"{series.key} has been {what} steadily since step {first}: {size}{until}"
        found = self._kind.about(series, first, text, (level * 0.95, level * 1.05), weight=grown)
        if self._elsewhere(grown) and not 0 < left < SOON_SECONDS:
            return replace(found, severity="INFO", text=f"{text}; not in the processes of this run", cause=_OTHERS)
        return found

    def _elsewhere(self, grown: float) -> bool:
        """Return whether the memory of the machine grew, and that of the run's own processes did not."""
        if not self._series.key.endswith("memory/used_bytes") or self._kind is not MEMORY:
            return False
        own = [each.middles for (key, _), each in self._run.series.items() if key.endswith("process/rss_bytes")]
        growth = [middles[-1] - middles[len(middles) // 4] for middles in own if middles]
        return bool(growth) and sum(max(each, 0.0) for each in growth) < OWN * grown

    def _room(self) -> float:
        """Return the remaining capacity; 0 when the limit is unknown."""
        if self._kind is DISK:
            return self._series.value
        stem = self._series.key.rsplit("/", 1)[0]
        for name in ("limit_bytes", "total_bytes", "memory_total_bytes"):
            other = self._run.series.get((f"{stem}/{name}", self._series.rank))
            if other is not None and other.count:
                return max(other.value - self._series.value, 0.0)
        return 0.0


NOT_BYTES = 1e5


def _leaks(part: list[float], level: int, grown: float) -> bool:
    """Return whether memory that had been level grows like a line."""
    return level >= len(part) // 3 and grown >= EXACT * roughness(part) and trend(part) >= LINE


LINE = 0.98
"""What grows like a line rises this steadily (Kendall's tau)."""

_UNITS = ((("gib",), 2.0**30), (("gb",), 1e9), (("mib",), 2.0**20), (("mb",), 1e6), (("kib",), 2.0**10), (("kb",), 1e3))


def _size(grown: float, key: str) -> str:
    """Return a size in words; its unit is in the name of the metric, or it is bytes."""
    name = key.lower()
    if "%" in name or "percent" in name:
        return f"{number(grown)} %"
    unit = next((each for words, each in _UNITS if any(name.rstrip(")").endswith(word) for word in words)), 1.0)
    if unit == 1.0 and grown < NOT_BYTES:
        return number(grown)  # in a unit that the name does not tell
    return f"{number(grown * unit / 1e9)} GB"
