"""Histograms of numbers: counts between bounds of equal width."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stepscope.model import records

MAX_BINS = 512
CHUNK = 2**23
"""Numbers of a tensor that are counted at a time, since that takes several times their memory on the device."""


def bin_count(bins: Any) -> int:
    """Return how many bins there are, if so many are asked for."""
    return max(1, min(int(bins), MAX_BINS))


def count_tensor(tensor: Any, bins: int) -> Any:
    """Count the finite numbers of a tensor where it is; nothing waits for it.

    The result is a tensor there of 64-bit floats: the counts, the lowest and the highest number, and the sum.
    """
    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        ends = torch.stack([_ends(torch, part) for part in _parts(flat)])
        low, high, total = ends[:, 0].amin(), ends[:, 1].amax(), ends[:, 2].sum()
        start, end = _range(torch, low, high)
        counts = torch.zeros(bins, dtype=torch.float64, device=tensor.device)
        for part in _parts(flat):
            place = (part - start) / (end - start)
            # With a range that is known here nothing is read back, and what lies outside of it is not counted.
            counts += torch.histc(torch.where(torch.isfinite(place), place, -1.0), bins, 0.0, 1.0)
        return torch.cat([counts, torch.stack([low, high, total])])


def _parts(flat: Any) -> Iterator[Any]:
    for part in flat.split(CHUNK):
        yield part.double()


def _ends(torch: Any, part: Any) -> Any:
    """The lowest and the highest finite number, and the sum; infinite where there is none."""
    finite = torch.isfinite(part)
    low, high = torch.where(finite, part, float("inf")).amin(), torch.where(finite, part, float("-inf")).amax()
    return torch.stack([low, high, torch.where(finite, part, 0.0).sum()])


def _range(torch: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Where the bins begin and end: equal numbers are in the middle, as numpy has them."""
    return torch.where(low == high, low - 0.5, low), torch.where(low == high, high + 0.5, high)


def from_tensor(counted: Any) -> records.Histogram | None:
    """Make a histogram of what `count_tensor` found, as an array; None when no number was finite."""
    import numpy  # needed only here

    counts, (low, high, total) = counted[:-3], counted[-3:].tolist()
    if not counts.sum():
        return None
    ends = (low - 0.5, high + 0.5) if low == high else (low, high)
    return from_counts(counts, numpy.linspace(*ends, len(counts) + 1), low, high, None if low < 0 else total)


def from_values(array: Any, bins: int) -> records.Histogram | None:
    """Make a histogram of the finite numbers of an array; None when there are none."""
    import numpy  # needed only here

    flat = numpy.asarray(array, dtype=float).ravel()
    flat = flat[numpy.isfinite(flat)]
    if not flat.size:
        return None
    counts, edges = numpy.histogram(flat, bins=bins)
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
