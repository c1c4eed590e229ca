"""Adding and subtracting what sums and histograms counted."""

from collections import Counter

from stepscope.model.records import ExponentialHistogram, Histogram, Value

_WIDEST = 20_000
"""Two histograms so far apart were never one; listing the buckets between them would eat the memory."""


def add(earlier: Value, later: Value) -> Value | None:
    """Count two spans of time together; None when their shapes differ."""
    if isinstance(earlier, (int, float)) and isinstance(later, (int, float)):
        return earlier + later
    if isinstance(earlier, Histogram) and isinstance(later, Histogram):
        if earlier.bounds != later.bounds or len(earlier.counts) != len(later.counts):
            return None
        counts = tuple(a + b for a, b in zip(earlier.counts, later.counts, strict=True))
        return Histogram(earlier.count + later.count, *_together(earlier, later), later.bounds, counts)
    if isinstance(earlier, ExponentialHistogram) and isinstance(later, ExponentialHistogram):
        return _add_exponential(earlier, later)
    return None


def subtract(later: Value, earlier: Value) -> Value | None:
    """Count what was added since; None when it cannot have grown from the earlier, so was reset."""
    if isinstance(earlier, (int, float)) and isinstance(later, (int, float)):
        return None if later < earlier else later - earlier
    if isinstance(earlier, Histogram) and isinstance(later, Histogram):
        if earlier.bounds != later.bounds or len(earlier.counts) != len(later.counts):
            return None
        counts = tuple(a - b for a, b in zip(later.counts, earlier.counts, strict=True))
        if later.count < earlier.count or min(counts, default=0) < 0:
            return None
        return Histogram(later.count - earlier.count, _passed(later, earlier), None, None, later.bounds, counts)
    if isinstance(earlier, ExponentialHistogram) and isinstance(later, ExponentialHistogram):
        return _subtract_exponential(later, earlier)
    return None


_Any = Histogram | ExponentialHistogram


def _together(earlier: _Any, later: _Any) -> tuple[float | None, float | None, float | None]:
    """Sum, least and greatest of both; unknown where either is."""
    total = None if earlier.total is None or later.total is None else earlier.total + later.total
    low = None if earlier.low is None or later.low is None else min(earlier.low, later.low)
    high = None if earlier.high is None or later.high is None else max(earlier.high, later.high)
    return total, low, high


def _passed(later: _Any, earlier: _Any) -> float | None:
    return None if later.total is None or earlier.total is None else later.total - earlier.total


def _add_exponential(earlier: ExponentialHistogram, later: ExponentialHistogram) -> ExponentialHistogram | None:
    scale = min(earlier.scale, later.scale)
    positive = _indexed(earlier, scale, False) + _indexed(later, scale, False)
    negative = _indexed(earlier, scale, True) + _indexed(later, scale, True)
    if _width(positive) > _WIDEST or _width(negative) > _WIDEST:
        return None
    return ExponentialHistogram(
        earlier.count + later.count, *_together(earlier, later), scale, earlier.zeros + later.zeros,
        max(earlier.zero_threshold, later.zero_threshold), *_listed(positive), *_listed(negative),
    )  # fmt: skip


def _subtract_exponential(later: ExponentialHistogram, earlier: ExponentialHistogram) -> ExponentialHistogram | None:
    if later.scale > earlier.scale or later.count < earlier.count or later.zeros < earlier.zeros:
        return None
    positive, negative = _indexed(later, later.scale, False), _indexed(later, later.scale, True)
    positive.subtract(_indexed(earlier, later.scale, False))
    negative.subtract(_indexed(earlier, later.scale, True))
    if min(positive.values(), default=0) < 0 or min(negative.values(), default=0) < 0:
        return None
    return ExponentialHistogram(
        later.count - earlier.count, _passed(later, earlier), None, None, later.scale,
        later.zeros - earlier.zeros, later.zero_threshold, *_listed(positive), *_listed(negative),
    )  # fmt: skip


def _indexed(value: ExponentialHistogram, scale: int, negative: bool) -> Counter[int]:
    """Count by bucket index at a coarser scale, where 2**(difference) neighbours become one."""
    offset, counts = (value.negative_offset, value.negative) if negative else (value.positive_offset, value.positive)
    indexed: Counter[int] = Counter()
    for index, count in enumerate(counts, offset):
        if count:
            indexed[index >> (value.scale - scale)] += count
    return indexed


def _width(indexed: Counter[int]) -> int:
    return max(indexed) - min(indexed) if indexed else 0


def _listed(indexed: Counter[int]) -> tuple[int, tuple[int, ...]]:
    if not indexed:
        return 0, ()
    first, last = min(indexed), max(indexed)
    return first, tuple(indexed[index] for index in range(first, last + 1))
