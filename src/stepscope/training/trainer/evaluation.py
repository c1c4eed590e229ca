"""The keys of an evaluation that dashboards of all algorithms expect, and how episodes become them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

EVALUATOR_KEYS = (
    "episodes",
    "mean_return",
    "max_return",
    "min_return",
    "episode_length_mean",
    "episode_length_max",
    "episode_length_min",
    "duration_ms",
)


def summarize(returns: Iterable[float], lengths: Iterable[int], duration_ms: float) -> dict[str, float]:
    """Sum up episodes under the eight keys; without an episode their figures are NaN."""
    gains, sizes = [float(each) for each in returns], [float(each) for each in lengths]
    return {
        "episodes": len(gains),
        "mean_return": _mean(gains),
        "max_return": max(gains, default=math.nan),
        "min_return": min(gains, default=math.nan),
        "episode_length_mean": _mean(sizes),
        "episode_length_max": max(sizes, default=math.nan),
        "episode_length_min": min(sizes, default=math.nan),
        "duration_ms": duration_ms,
    }


def missing(fields: Mapping[str, Any]) -> list[str]:
    """Name the expected keys that an evaluation lacks."""
    return [key for key in EVALUATOR_KEYS if key not in fields]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
