"""Aggregation of sums and histograms, and the bucket bounds that fit a unit."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from stepscope.model.records import ExponentialHistogram, Histogram, Value

ANY = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0)
"""OpenTelemetry's defaults, for other units."""

_SECONDS = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
)  # fmt: skip
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9, "min": 1 / 60, "h": 1 / 3600}
_BYTES = tuple(4.0**power for power in range(3, 21))
"""From 64 bytes to 1 TiB."""
_PER_BYTE = {
    "By": 1.0, "bytes": 1.0, "KiBy": 2.0**10, "MiBy": 2.0**20, "GiBy": 2.0**30, "kBy": 1e3, "MBy": 1e6, "GBy": 1e9,
}  # fmt: skip
_COUNTS = tuple(4.0**power for power in range(14))
"""From 1 to 67 million, as the conventions for generative AI ask for tokens."""
_COUNTED = frozenset({"token", "sample", "example", "element", "row", "item", "parameter"})
_RATIOS = (
    0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0, 1.5, 2.0, 5.0, 10.0,
)  # fmt: skip
_RATES = tuple(float(digit * 10**power) for power in range(8) for digit in (1, 2.5, 5))
"""From 1 to 50 million per second."""


def bounds_for(unit: str, advised: Sequence[float] | None = None) -> tuple[float, ...]:
    """Return the bucket bounds: the advised ones if valid, else those for the unit."""
    if advised is not None and is_ordered(advised):
        return tuple(float(bound) for bound in advised)
    if unit in _PER_SECOND:
        return tuple(bound * _PER_SECOND[unit] for bound in _SECONDS)
    if unit in _PER_BYTE:
        return tuple(bound / _PER_BYTE[unit] for bound in _BYTES)
    thing, slash, per = unit.partition("/")
    if slash and per in ("s", "sec", "second"):
        return _BYTES if thing in ("By", "bytes") else _RATES
    if unit in ("1", "%"):
        return _RATIOS if unit == "1" else tuple(bound * 100 for bound in _RATIOS)
    return _COUNTS if thing.strip("{}").rstrip("s") in _COUNTED else ANY


def is_ordered(bounds: Sequence[float]) -> bool:
    """Return whether bounds are finite and increasing."""
    try:
        return all(map(math.isfinite, bounds)) and all(low < high for low, high in pairwise(bounds))
    except (TypeError, ValueError, OverflowError):
        return False


Number = int | float

MAX_BUCKETS = 160
HIGHEST_SCALE = 20
LOWEST_SCALE = -10


class Aggregate(Protocol):
    """Aggregates measurements in bulk; they are finite, and the list may be changed."""

    def take(self, values: list[Number]) -> None:
        """Add measurements."""

    def value(self) -> Value:
        """Return the aggregate of all measurements so far."""


class Sum:
    """The sum; exact for integers."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: Number = 0

    def take(self, values: list[Number]) -> None:
        """Add measurements."""
        self.total = sum(values, self.total)

    def value(self) -> Value:
        """The sum so far."""
        return fitting(self.total)


class Spread:
    """The parts common to both histograms: count, sum, minimum, maximum."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Number = 0
        self.low = math.inf
        self.high = -math.inf

    def take(self, ordered: list[Number]) -> None:
        """Add measurements."""
        self.count += len(ordered)
        self.total = sum(ordered, self.total)
        self.low = min(self.low, float(ordered[0]))
        self.high = max(self.high, float(ordered[-1]))

    def value(self) -> tuple[int, float | None, float | None, float | None]:
        """Count, total (None once a negative was recorded), low, high."""
        if not self.count:
            return 0, 0.0, None, None
        return self.count, None if self.low < 0 else float(self.total), self.low, self.high


class Explicit:
    """Counts between explicit upper bounds, each inclusive."""

    __slots__ = ("_bounds", "_counts", "_spread")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._spread = Spread()

    def take(self, values: list[Number]) -> None:
        """Add measurements; sorting them first keeps the work in C."""
        values.sort()
        self._spread.take(values)
        counts, bounds = self._counts, self._bounds
        if len(values) < len(bounds):
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            return
        before = 0
        for index, bound in enumerate(bounds):
            upto = bisect_right(values, bound, before)
            counts[index] += upto - before
            before = upto
        counts[-1] += len(values) - before

    def value(self) -> Value:
        """The histogram so far."""
        return Histogram(*self._spread.value(), self._bounds, tuple(self._counts))


class Exponential:
    """Counts in exponential buckets; the scale is reduced as needed to keep each sign within 160 buckets."""

    __slots__ = ("_negative", "_positive", "_scale", "_spread", "_zeros")

    def __init__(self) -> None:
        self._spread = Spread()
        self._scale = HIGHEST_SCALE
        self._zeros = 0
        self._positive: dict[int, int] = {}
        self._negative: dict[int, int] = {}

    def take(self, values: list[Number]) -> None:
        """Add measurements."""
        values.sort()
        self._spread.take(values)
        first, last = bisect_left(values, 0), bisect_right(values, 0)
        self._zeros += last - first
        self._fit(self._positive, values[last:])
        self._fit(self._negative, [-value for value in values[:first]][::-1])

    def _fit(self, buckets: dict[int, int], ordered: list[Number]) -> None:
        """Count magnitudes at the finest scale at which old and new fit."""
        if not ordered:
            return
        ends = [bucket_index(value, self._scale) for value in (ordered[0], ordered[-1])]
        ends += [min(buckets), max(buckets)] if buckets else []
        shift = 0
        while (max(ends) >> shift) - (min(ends) >> shift) >= MAX_BUCKETS and self._scale - shift > LOWEST_SCALE:
            shift += 1
        if shift:
            self._coarsen(shift)
        for value in ordered:
            index = bucket_index(value, self._scale)
            buckets[index] = buckets.get(index, 0) + 1

    def _coarsen(self, shift: int) -> None:
        self._scale -= shift
        for buckets in (self._positive, self._negative):
            finer = list(buckets.items())
            buckets.clear()
            for index, count in finer:
                buckets[index >> shift] = buckets.get(index >> shift, 0) + count

    def value(self) -> Value:
        """The histogram so far."""
        positive, negative = _dense(self._positive), _dense(self._negative)
        return ExponentialHistogram(*self._spread.value(), self._scale, self._zeros, 0.0, *positive, *negative)


def bucket_index(value: Number, scale: int) -> int:
    """Find i with base**i < value <= base**(i+1) and base = 2**(2**-scale); exact for powers of two."""
    mantissa, exponent = math.frexp(value)
    power_of_two = mantissa == 0.5
    if scale <= 0:
        return (exponent - 2 if power_of_two else exponent - 1) >> -scale
    if power_of_two:
        return ((exponent - 1) << scale) - 1
    # The fraction alone is in the logarithm: adding the exponent there would cost its lowest bits.
    return (exponent << scale) + math.ceil(math.log2(mantissa) * (1 << scale)) - 1


def _dense(buckets: dict[int, int]) -> tuple[int, tuple[int, ...]]:
    if not buckets:
        return 0, ()
    first = min(buckets)
    return first, tuple(buckets.get(index, 0) for index in range(first, max(buckets) + 1))


def fitting(number: Number) -> Number:
    """Keep a number that fits into 64 bits; convert a larger integer to float."""
    if type(number) is float or -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
