"""Clocks and percentiles: time single calls in bursts or paced, net of what the clock itself costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[[int], object]


def percentile(values: Sequence[float], q: float) -> float:
    """Return the q-th percentile (0 to 100) by linear interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * q / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def asked(rounds: int, ask: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Ask several times; return the best and the median in milliseconds, and the last answer."""
    taken = []
    answer = None
    for _ in range(rounds):
        begun = time.perf_counter()
        answer = ask()
        taken.append((time.perf_counter() - begun) * 1e3)
    return {"ms": min(taken), "median_ms": statistics.median(taken)}, answer


def clock_cost_ns(call: Call, count: int = 2000) -> float:
    """Return the median of timing `call`, meant to be one that does nothing."""
    return statistics.median(_durations(call, count, pause_s=0.0, limit_s=1.0))


def burst(call: Call, count: int, limit_s: float, empty_ns: float) -> dict[str, float]:
    """Call at full speed `count` times, or until `limit_s` has passed; return microseconds per call."""
    return _summary(_durations(call, count, pause_s=0.0, limit_s=limit_s), empty_ns)


def paced(call: Call, count: int, pause_s: float, limit_s: float, empty_ns: float) -> dict[str, float]:
    """Call `count` times with a sleep before each, as a training loop that waits for its device does."""
    return _summary(_durations(call, count, pause_s=pause_s, limit_s=limit_s), empty_ns)


def _durations(call: Call, count: int, pause_s: float, limit_s: float) -> list[int]:
    now = time.perf_counter_ns
    taken: list[int] = []
    keep = taken.append
    deadline = now() + int(limit_s * 1e9)
    for index in range(count):
        if pause_s:
            time.sleep(pause_s)
        start = now()
        call(index)
        end = now()
        keep(end - start)
        if end > deadline:
            break
    return taken


def _summary(taken: list[int], empty_ns: float) -> dict[str, float]:
    net = [max(ns - empty_ns, 0.0) / 1e3 for ns in taken]
    return {
        "p50_us": percentile(net, 50),
        "mean_us": statistics.fmean(net),
        "p99_us": percentile(net, 99),
        "calls": float(len(net)),
    }
