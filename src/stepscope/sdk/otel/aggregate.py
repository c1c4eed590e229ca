"""What measurements come to: sums, and histograms with explicit or exponential buckets, all cumulative."""

import math
from bisect import bisect_left, bisect_right
from typing import Protocol

from stepscope.model.records import ExponentialHistogram, Histogram, Value

Number = int | float

MOST_BUCKETS = 160
HIGHEST_SCALE = 20
LOWEST_SCALE = -10


class Aggregate(Protocol):
    """Takes measurements many at a time; they are finite and the list is given away."""

    def take(self, values: list[Number]) -> None:
        """Count some more."""

    def value(self) -> Value:
        """What all measurements so far come to."""


class Sum:
    """The sum; exact for integers."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: Number = 0

    def take(self, values: list[Number]) -> None:
        """Count some more."""
        self.total = sum(values, self.total)

    def value(self) -> Value:
        """The sum so far."""
        return fitting(self.total)


class Spread:
    """What both histograms know beside their buckets."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Number = 0
        self.low = math.inf
        self.high = -math.inf

    def take(self, ordered: list[Number]) -> None:
        """Count some more."""
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
        """Count some more; sorting first makes the cost of many one of C."""
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
    """Counts in exponential buckets whose scale falls, when it must, to keep each sign within 160 of them."""

    __slots__ = ("_negative", "_positive", "_scale", "_spread", "_zeros")

    def __init__(self) -> None:
        self._spread = Spread()
        self._scale = HIGHEST_SCALE
        self._zeros = 0
        self._positive: dict[int, int] = {}
        self._negative: dict[int, int] = {}

    def take(self, values: list[Number]) -> None:
        """Count some more."""
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
        while (max(ends) >> shift) - (min(ends) >> shift) >= MOST_BUCKETS and self._scale - shift > LOWEST_SCALE:
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
    """Keep a number that 64 bits hold; a larger integer as the nearest float."""
    if type(number) is float or -(2**63) <= number < 2**64:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
