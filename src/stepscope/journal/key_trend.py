"""One metric of a run in bounded memory: extremes of stretches of steps, on each rank, every spike kept."""

import math

from stepscope.model.last_value import LastValue
from stepscope.model.ports import Writer

MOST = 512
"""The most intervals; when there would be more, their length is doubled."""


class Part:
    """An interval of steps that still grows: its ends, the extremes and mean of its finite values, and the others."""

    __slots__ = ("bad", "first", "flags", "good", "high", "last", "low", "mean")

    def __init__(self, step: int) -> None:
        self.first = self.last = step
        self.low, self.high, self.mean = math.inf, -math.inf, 0.0
        self.good = self.bad = self.flags = 0

    def add(self, step: int, value: float) -> None:
        """Add a value."""
        self.first, self.last = min(self.first, step), max(self.last, step)
        if value - value != 0:  # only so for NaN and infinities
            self.bad += 1
            self.flags |= 1 if value != value else 2 if value > 0 else 4
        else:
            self._take(value, value, value, 1)

    def merge(self, other: "Part") -> None:
        """Merge another interval."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.bad, self.flags = self.bad + other.bad, self.flags | other.flags
        if other.good:
            self._take(other.low, other.high, other.mean, other.good)

    def _take(self, low: float, high: float, mean: float, good: int) -> None:
        whole = self.good + good
        self.mean = self.mean * (self.good / whole) + mean * (good / whole)  # a sum of floats may be no float
        self.low, self.high, self.good = min(self.low, low), max(self.high, high), whole


class KeyTrend:
    """A metric over its steps: one row of intervals for each rank, all of the same length."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.width = 1
        self.count = 0
        self.latest = LastValue()
        self._ranks: dict[int, dict[int, Part]] = {}
        self._low = self._high = 0

    @property
    def last(self) -> float | None:
        """The mean of the ranks at the last step."""
        return self.latest.value

    def add(self, who: Writer, step: int, time: int, value: float) -> None:
        """Add a point."""
        rank = who.rank
        at = step // self.width
        parts = self._ranks.setdefault(rank, {})
        part = parts.get(at)
        if part is None:
            part = parts[at] = Part(step)
            self._low, self._high = (min(at, self._low), max(at, self._high)) if self.count else (at, at)
        part.add(step, value)
        self.count += 1
        self.latest.add(value, rank, who.attempt, step, time)
        while self._high - self._low >= MOST:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        for rank, parts in self._ranks.items():
            made: dict[int, Part] = {}
            for at, part in parts.items():
                if at // 2 in made:
                    made[at // 2].merge(part)
                else:
                    made[at // 2] = part
            self._ranks[rank] = made
        self._low, self._high = self._low // 2, self._high // 2

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last interval."""
        return self._low, self._high

    def drawn(self) -> dict[int, Part]:
        """The intervals of all ranks merged."""
        made: dict[int, Part] = {}
        for parts in self._ranks.values():
            for at, part in parts.items():
                made.setdefault(at, Part(part.first)).merge(part)
        return made
