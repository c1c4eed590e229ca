"""Schedules of the learning rate in the fourteenth set."""

import math
from collections.abc import Callable

Rate = Callable[[int], float]


def cosine(steps: int, peak: float, warm: int = 0, floor: float = 0.0) -> Rate:
    """A linear warm-up, then half a cosine down to a share of the peak."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        done = min(1.0, (step - warm) / max(1, steps - warm))
        return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2)

    return rate


def linear(steps: int, peak: float, warm: int = 0) -> Rate:
    """A linear warm-up, then a line down to 0."""
    return lambda step: peak * min((step + 1) / max(1, warm), (steps - step) / max(1, steps - warm), 1.0)


def steady(rate: float) -> Rate:
    """The same rate at each step."""
    return lambda step: rate
