"""Levels of how unusual a value or span is compared with earlier steps."""

import math

NOTABLE_SIGMAS, UNUSUAL_SIGMAS, EXTREME_SIGMAS = 3.0, 6.0, 10.0
"""Standard deviations from the mean of earlier steps for the levels 1, 2 and 3."""
STEADY_SHARE = 0.02
"""A value within this share of the mean never reaches level 2: schedules move that much."""
SLOW_TIMES, VERY_SLOW_TIMES = 1.5, 3.0
"""A span that took this many times the median is slow, or very slow..."""
SLOW_NS = 1e6
"""... if it also took this much longer."""


def value_level(value: float, mean: float, delta: float | None, z: float | None) -> int:
    """Return how unusual a value is: 0 normal, 1 notable, 2 unusual, 3 extreme or not finite."""
    if not math.isfinite(value):
        return 3
    if z is None or delta is None or abs(z) < NOTABLE_SIGMAS:
        return 0
    if abs(z) < UNUSUAL_SIGMAS or abs(delta) < STEADY_SHARE * abs(mean):
        return 1
    return 3 if abs(z) >= EXTREME_SIGMAS else 2


def slow_level(duration: float | None, usual: float | None) -> int:
    """Return how slow a span was (durations in ns): 0 normal, 1 slow, 2 very slow."""
    if duration is None or not usual or duration - usual < SLOW_NS or duration < SLOW_TIMES * usual:
        return 0
    return 2 if duration >= VERY_SLOW_TIMES * usual else 1
