"""Resources that run out, and speed that is lost: memory, disk, idle GPUs, throughput."""

import math
from statistics import median

from stepscope.diagnosis.detector import Point, RunState
from stepscope.diagnosis.finding import Finding, number, seconds
from stepscope.diagnosis.series import Series, jitter, spread, trend

CREEP = 0.15
"""Memory creeps when it grew by so much of itself..."""
STEADY = 0.85
"""... this steadily..."""
CREEP_BLOCKS = 10
IDLE, BUSY = 0.2, 0.5
IDLE_ROW = 12
SLOWER = 0.06
SLOWER_BLOCKS = 6
LEAST_BLOCKS = 24
SLOWER_SIGMAS = 6.0


class Creep:
    """Watches memory in use, or disk that is free: steadily towards the end."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._said = False
        self._times: list[tuple[int, int]] = []

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge the second half of a series: the first has the start of the run in it."""
        if not self._times or point.block:
            self._times.append((point.step, point.time))
            del self._times[1:-64]
        if self._said or not point.block or len(series.blocks) < CREEP_BLOCKS:
            return None
        sign = -1.0 if self._role == "disk_free" else 1.0
        middles = [sign * block.middle for block in series.blocks]
        part = middles[len(middles) // 4 :]
        grown = part[-1] - part[0]
        noise = max(jitter(part), 1e-12)
        size = abs(middles[-1]) if sign > 0 else abs(middles[0])
        share = grown / max(size, 1.0)
        even = part[len(part) // 2] - part[0] > 0.25 * grown and part[-1] - part[len(part) // 2] > 0.25 * grown
        recent = part[-1] - part[-max(len(part) // 4, 2)]
        if share < CREEP or trend(part) < STEADY or grown < 8 * noise or not even or recent < 0.1 * grown:
            return None
        self._said = True
        return self._finding(series, point, run, grown * sign)

    def _finding(self, series: Series, point: Point, run: RunState, grown: float) -> Finding:
        first = series.blocks[len(series.blocks) // 4].first
        begun = next((time for step, time in self._times if step >= first), self._times[0][1])
        took = max((point.time - begun) / 1e9, 1e-9)
        kind = {"memory": "memory_creep", "gpu_memory": "gpu_memory_creep", "disk_free": "disk_filling"}[self._role]
        limit = _limit(series, run)
        left = None
        if self._role == "disk_free":
            left = point.value / max(-grown / took, 1e-9)
        elif limit is not None and limit > point.value:
            left = (limit - point.value) / max(grown / took, 1e-9)
        until = f"; at this rate it is full in {seconds(left)}" if left is not None else ""
        what = "has been shrinking" if self._role == "disk_free" else "has been growing"
        size = f"{number(abs(grown) / 1e9)} GB in {seconds(took)}"
        return Finding(
            kind,
            "WARN",
            f"{series.key} {what} steadily since step {first}: {size}{until}",
            step=first,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(
                series.blocks[len(series.blocks) // 4].middle * 0.95,
                series.blocks[len(series.blocks) // 4].middle * 1.05,
            ),
            cause="something is kept each step: a list of tensors with their graphs, a cache, files"
            if self._role != "disk_free"
            else "checkpoints or logs are never removed",
            advice="Detach what is stored each step; look for growing lists and caches."
            if self._role != "disk_free"
            else "Keep fewer checkpoints.",
            time=point.time,
            weight=abs(grown),
        )


def _limit(series: Series, run: RunState) -> float | None:
    stem = series.key.rsplit("/", 1)[0]
    for name in ("limit_bytes", "total_bytes", "memory_total_bytes"):
        other = run.series.get((f"{stem}/{name}", series.rank))
        if other is not None and other.values:
            return other.values[-1]
    return None


class Idle:
    """Watches how busy a GPU is, from 0 to 1 or in percent."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a GPU that was busy and no longer is, or never was."""
        scale = 100.0 if series.highest > 1.5 else 1.0
        recent = list(series.values)[-IDLE_ROW:]
        if self._said or len(recent) < IDLE_ROW or sum(v > IDLE * scale for v in recent) > 1:
            return None
        before = [block.middle for block in series.blocks]
        was_busy = bool(before) and max(before) > BUSY * scale
        if not was_busy and series.count < 4 * IDLE_ROW:
            return None
        self._said = True
        begun = list(series.steps)[-IDLE_ROW]
        return Finding(
            "gpu_idle",
            "WARN",
            f"{series.key} has been at {number(median(recent))} since step {begun}: the GPU is idle",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(BUSY * scale, scale),
            cause="the GPU waits for data or for the host",
            advice="Look at the time in data loading and on the host in those steps.",
            time=point.time,
            weight=1.0,
        )


class Throughput:
    """Watches one throughput, or the time of a step: less from some step on."""

    def __init__(self, inverse: bool = False) -> None:
        self._sign = -1.0 if inverse else 1.0
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge the last blocks against those before them."""
        count = SLOWER_BLOCKS
        if self._said or not point.block or len(series.blocks) < LEAST_BLOCKS or not series.positive:
            return None
        blocks = series.blocks
        middles = [self._sign * math.log(block.middle) for block in blocks]
        for width in (count, 2 * count):
            if len(middles) < 2 * width + 2:
                continue
            before, after = middles[-2 * width : -width], middles[-width:]
            fell = median(before) - median(after)
            wide = max(spread(before), spread(after), jitter(middles) / 2, 0.002)
            apart = sum(value < min(before) for value in after) >= width - 1
            steady = abs(median(after[: width // 2]) - median(after[width // 2 :])) < 0.5 * fell
            prior = middles[len(middles) // 5 : -width]
            if (
                fell < 0.9 * (max(prior) - min(prior))
                or fell < max(SLOWER, SLOWER_SIGMAS * wide / math.sqrt(width))
                or not apart
                or not steady
            ):
                continue
            begun = blocks[-width].first
            if _restaged(run, blocks[-width - 2].first, blocks[-width + 2].last):
                continue
            self._said = True
            return self._finding(series, point, begun, median(before), median(after), wide)
        return None

    def _finding(self, series: Series, point: Point, begun: int, before: float, after: float, wide: float) -> Finding:
        was, became = math.exp(self._sign * before), math.exp(self._sign * after)
        lost = 1 - math.exp(after - before)
        return Finding(
            "throughput_loss",
            "WARN",
            f"{series.key} went from {number(was)} to {number(became)} at step {begun}: {lost:.0%} slower since",
            step=begun,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=became,
            expected=tuple(sorted((was * math.exp(-SLOWER_SIGMAS * wide), was * math.exp(SLOWER_SIGMAS * wide)))),  # type: ignore[arg-type]
            cause="a slower machine (heat, a neighbour, a link), or more work in each step",
            advice="Compare spans before and after that step.",
            time=point.time,
            weight=lost,
        )


def _restaged(run: RunState, first: int, last: int) -> bool:
    return any(change.key.startswith("stage:") for change in run.changed(first, last))
