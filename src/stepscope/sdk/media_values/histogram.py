"""Histograms of numbers: counts between bounds of equal width."""

from itertools import pairwise
from typing import Any

from stepscope.model import records

MAX_BINS = 512


def from_values(array: Any, bins: int) -> records.Histogram | None:
    """Make a histogram of the finite numbers of an array; None when there are none."""
    import numpy  # needed only here

    flat = numpy.asarray(array, dtype=float).ravel()
    flat = flat[numpy.isfinite(flat)]
    if not flat.size:
        return None
    counts, edges = numpy.histogram(flat, bins=max(1, min(int(bins), MAX_BINS)))
    low, high = float(flat.min()), float(flat.max())
    return from_counts(counts, edges, low, high, None if low < 0 else float(flat.sum()))


def from_counts(
    counts: Any, edges: Any, low: float | None = None, high: float | None = None, total: float | None = None
) -> records.Histogram | None:
    """Make a histogram from numpy's counts and bin edges; None when they do not match."""
    numbers, bounds = tuple(int(count) for count in counts), tuple(float(edge) for edge in edges)
    rising = all(before < after for before, after in pairwise(bounds))
    if not numbers or len(bounds) != len(numbers) + 1 or not rising or min(numbers) < 0:
        return None
    ends = (bounds[0] if low is None else low, bounds[-1] if high is None else high)
    return records.Histogram(sum(numbers), total, *ends, bounds, (0, *numbers, 0))
