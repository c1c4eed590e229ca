"""Distributions that scripts give, counted into histograms of the model."""

from itertools import pairwise
from typing import Any

from stepscope.model import records

MOST_BINS = 512
"""wandb's own limit."""
DELTA = records.Instrument("histogram", cumulative=False)
"""Each histogram that is logged stands for itself."""


def from_values(sequence: Any, bins: int) -> records.Histogram | None:
    """Count the finite numbers of a list, an array or a tensor in this machine's own memory; None when there are none.

    A tensor on a device would have to be waited for: ValueError, as for what is no sequence of numbers.
    """
    import numpy  # who has distributions has it

    if hasattr(sequence, "detach"):
        if not getattr(sequence, "is_cpu", True):
            raise ValueError("a tensor on a device is not waited for")
        sequence = sequence.detach().float()
    array = numpy.asarray(sequence, dtype=float).ravel()
    array = array[numpy.isfinite(array)]
    if not array.size:
        return None
    counts, edges = numpy.histogram(array, bins=max(1, min(int(bins), MOST_BINS)))
    low, high = float(array.min()), float(array.max())
    return from_counts(counts, edges, low, high, None if low < 0 else float(array.sum()))


def from_counts(
    counts: Any, edges: Any, low: float | None = None, high: float | None = None, total: float | None = None
) -> records.Histogram | None:
    """Make a histogram of counts and the edges of their bins, as numpy has them; None when they do not fit."""
    numbers, bounds = tuple(int(count) for count in counts), tuple(float(edge) for edge in edges)
    rising = all(before < after for before, after in pairwise(bounds))
    if not numbers or len(bounds) != len(numbers) + 1 or not rising or min(numbers) < 0:
        return None
    ends = (bounds[0] if low is None else low, bounds[-1] if high is None else high)
    return records.Histogram(sum(numbers), total, *ends, bounds, (0, *numbers, 0))
