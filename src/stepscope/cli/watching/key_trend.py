"""One metric of a run in bounded memory: extremes of stretches of steps, on each rank, every spike kept."""

import math

from stepscope.model.last_value import LastValue
from stepscope.model.ports import Writer

MOST = 512
"""The most intervals; when there would be more, their length is doubled."""


class Part:
    """An interval of steps that still grows."""

    __slots__ = ("bad", "bad_step", "flags", "good", "high", "high_step", "last_bad_step", "low", "low_step")

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.low_step = self.high_step = self.bad_step = self.last_bad_step = 0
        self.good = self.bad = self.flags = 0

    def add(self, step: int, value: float) -> None:
        """Add a value."""
        if value - value != 0:  # only so for NaN and infinities
            self.bad_step = step if not self.bad else min(self.bad_step, step)
            self.last_bad_step = step if not self.bad else max(self.last_bad_step, step)
            self.bad += 1
            self.flags |= 1 if value != value else 2 if value > 0 else 4
            return
        self.good += 1
        if value < self.low:
            self.low, self.low_step = value, step
        if value > self.high:
            self.high, self.high_step = value, step

    def merge(self, other: "Part") -> None:
        """Merge another interval."""
        if other.bad:
            self.bad_step = other.bad_step if not self.bad else min(self.bad_step, other.bad_step)
            self.last_bad_step = other.last_bad_step if not self.bad else max(self.last_bad_step, other.last_bad_step)
        self.good, self.bad, self.flags = self.good + other.good, self.bad + other.bad, self.flags | other.flags
        if other.low < self.low:
            self.low, self.low_step = other.low, other.low_step
        if other.high > self.high:
            self.high, self.high_step = other.high, other.high_step


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
            part = parts[at] = Part()
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
                made.setdefault(at, Part()).merge(part)
        return made
