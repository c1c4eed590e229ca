"""How unusual a value or a span of a step is beside the steps before, in a few levels."""

import math

NOTABLE_SIGMAS, UNUSUAL_SIGMAS, EXTREME_SIGMAS = 3.0, 6.0, 10.0
"""So many standard deviations from the mean of the steps before a value is of level 1, 2 or 3."""
STEADY_SHARE = 0.02
"""A value that moved by less than this share of the mean is never of level 2: schedules move so."""
SLOW_TIMES, VERY_SLOW_TIMES = 1.5, 3.0
"""A span that took so many times the usual is slow, or very slow..."""
SLOW_NS = 1e6
"""... when it took so much longer."""


def value_level(value: float, mean: float, delta: float | None, z: float | None) -> int:
    """Say how unusual a value is: 0 usual, 1 notable, 2 unusual, 3 extreme or not finite."""
    if not math.isfinite(value):
        return 3
    if z is None or delta is None or abs(z) < NOTABLE_SIGMAS:
        return 0
    if abs(z) < UNUSUAL_SIGMAS or abs(delta) < STEADY_SHARE * abs(mean):
        return 1
    return 3 if abs(z) >= EXTREME_SIGMAS else 2


def slow_level(duration: float | None, usual: float | None) -> int:
    """Say how slow a span was, in ns: 0 as usual, 1 slow, 2 very slow."""
    if duration is None or not usual or duration - usual < SLOW_NS or duration < SLOW_TIMES * usual:
        return 0
    return 2 if duration >= VERY_SLOW_TIMES * usual else 1
