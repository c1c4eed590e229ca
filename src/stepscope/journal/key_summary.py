"""Summaries of one metric key and of one span name over a run."""

import math
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import cast

from stepscope.model.last_value import LastValue
from stepscope.model.records import Span, Summary, Value, mean_of

CURVE_POINTS = 128
STATUS_ERROR = 2

_LEADING = ("loss", "nll", "reward", "return", "acc", "score", "perplexity", "ppl", "error", "lr")
_PLAIN = frozenset((float, int))
_WORDS = [re.compile(rf"(^|[^a-z]){word}(uracy|es|s)?($|[^a-z])") for word in _LEADING]


def importance(key: str) -> int:
    """Return the display rank of a key: 0 for losses, then rewards and the like, then all others."""
    if key.startswith(("system/", "stepscope/")):
        return len(_WORDS) + 1
    lower = key.lower()
    return next((index for index, word in enumerate(_WORDS) if word.search(lower)), len(_WORDS))


def leading(keys: Iterable[str], count: int) -> list[str]:
    """Return the most important keys of a run."""
    return sorted(keys, key=lambda key: (importance(key), key))[:count]


@dataclass(slots=True)
class Curve:
    """The trend of a key in at most `CURVE_POINTS` values.

    Each is the maximum of its interval, or NaN if a value was not finite.
    """

    points: list[float] = field(default_factory=list)
    _stretch: int = 1
    _open: int = 0

    def add(self, value: float) -> None:
        """Add the next value."""
        if value - value != 0:  # true only for NaN and infinities
            value = math.nan
        if not self._open:
            self.points.append(value)
        elif value > self.points[-1] or value != value:  # NaN wins over any value
            self.points[-1] = value
        self._advance(1)

    def extend(self, values: Sequence[float]) -> None:
        """Add many finite values: the same as one by one, and faster."""
        start = 0
        while start < len(values):
            part = values[start : start + self._stretch - self._open]
            start += len(part)
            highest = max(part)
            if not self._open:
                self.points.append(highest)
            elif highest > self.points[-1]:
                self.points[-1] = highest
            self._advance(len(part))

    def _advance(self, count: int) -> None:
        self._open += count
        if self._open == self._stretch:
            self._open = 0
            if len(self.points) >= CURVE_POINTS:
                self.points = resample(self.points, CURVE_POINTS // 2)
                self._stretch *= 2


def resample(points: list[float], columns: int) -> list[float]:
    """Downsample points: the maximum of each interval, NaN if a value was not finite."""
    if len(points) <= columns:
        return list(points)
    edges = [index * len(points) // columns for index in range(columns + 1)]
    return [_highest(points[start:end]) for start, end in pairwise(edges)]


def _highest(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


@dataclass(slots=True)
class KeySummary:
    """All points of one key, over ranks and attempts; `low` and `high` are of the finite ones."""

    key: str
    rank: int
    """The rank whose trend is shown: the first one seen."""
    count: int = 0
    latest: LastValue = field(default_factory=LastValue)
    low: float | None = None
    high: float | None = None
    non_finite: int = 0
    unit: str = ""
    curve: Curve | None = None

    @property
    def last(self) -> float | None:
        """The mean of the ranks at the last step."""
        return self.latest.value

    @property
    def last_step(self) -> int | None:
        """The last step of the newest attempt."""
        return self.latest.step

    def add(self, value: Value, step: int | None, time: int, rank: int, attempt: int) -> None:
        """Add a point; a distribution counts with its mean, minimum and maximum."""
        self.count += 1
        number = mean_of(value)
        low, high = _ends(value, number)
        if number is not None and number - number != 0:  # true only for NaN and infinities
            self.non_finite += 1
        else:
            if low is not None and (self.low is None or low < self.low):
                self.low = low
            if high is not None and (self.high is None or high > self.high):
                self.high = high
        if number is not None:
            self.latest.add(number, rank, attempt, step, time)
        if self.curve is not None and rank == self.rank and number is not None:
            self.curve.add(number)

    def extend(self, values: Sequence[Value], stamps: "Stamps", rank: int, attempt: int) -> None:
        """Add many points: the same as one by one, and faster where all are finite numbers."""
        numbers = _finite(values)
        if numbers is None:
            for value, step, time in zip(values, stamps.steps, stamps.times, strict=True):
                self.add(value, step, time, rank, attempt)
            return
        self.count += len(numbers)
        low, high = min(numbers), max(numbers)
        if self.low is None or low < self.low:
            self.low = low
        if self.high is None or high > self.high:
            self.high = high
        last = stamps.last
        self.latest.add(numbers[last], rank, attempt, stamps.steps[last], stamps.times[last])
        if self.curve is not None and rank == self.rank:
            self.curve.extend(numbers)


class Stamps:
    """The steps and times of many points, and which of them is the last: the latest at the highest step."""

    __slots__ = ("last", "steps", "times")

    def __init__(self, steps: list[int | None], times: list[int]) -> None:
        self.steps, self.times = steps, times
        highest = max((step for step in steps if step is not None), default=None)
        self.last = steps.index(highest)
        if steps.count(highest) > 1:
            there = [at for at, step in enumerate(steps) if step == highest]
            self.last = max(there, key=lambda at: (times[at], at))


def _finite(values: Sequence[Value]) -> Sequence[float] | None:
    """Return the values when all are finite numbers; None when one is not, or their sum overflows."""
    if not _PLAIN.issuperset(map(type, values)):
        return None
    numbers = cast(Sequence[float], values)
    try:
        total = sum(numbers)
        return numbers if total - total == 0 else None  # false if a NaN or infinity is among them
    except OverflowError:
        return None


def _ends(value: Value, mean: float | None) -> tuple[float | None, float | None]:
    if isinstance(value, (int, float, Summary)):
        return mean, mean
    return (mean if value.low is None else value.low, mean if value.high is None else value.high)


def new_key(key: str, rank: int) -> KeySummary:
    """Return a new summary; only important keys get a curve, which keeps ten thousand keys cheap."""
    return KeySummary(key, rank, curve=Curve() if importance(key) < len(_WORDS) else None)


@dataclass(slots=True)
class SpanSummary:
    """All ended spans of one name; times in nanoseconds."""

    name: str
    errors: int = 0
    durations: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, span: Span) -> None:
        """Add an ended span."""
        self.durations.append(span.duration or 0)
        self.errors += span.status == STATUS_ERROR

    @property
    def count(self) -> int:
        """How many ended."""
        return len(self.durations)

    @property
    def mean(self) -> float:
        """The mean duration."""
        return sum(self.durations) / len(self.durations)

    @property
    def p50(self) -> float:
        """The median duration, exact."""
        return median(self.durations)

    @property
    def longest(self) -> int:
        """The longest duration."""
        return max(self.durations)
