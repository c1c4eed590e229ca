"""The last value of a metric: one definition for the hub, the page, the terminal and reports."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MEANING = "the mean of the ranks at the last step"
"""What the last value of a metric is, for headings and legends."""


@dataclass(slots=True)
class LastValue:
    """The mean of the ranks at the highest step of the newest attempt, each rank with its latest value there.

    Points may be added in any order. Ranks without that step do not count; values without steps count as one step.
    """

    _place: tuple[int, bool, int] = (-1, False, 0)
    """Attempt, whether there is a step, and the step."""
    _ranks: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Time and value of each rank there."""

    def add(self, value: float, rank: int, attempt: int, step: int | None, time: int) -> None:
        """Add a point."""
        place = (attempt, step is not None, step or 0)
        if place < self._place:
            return
        if place > self._place:
            self._place, self._ranks = place, {rank: (time, value)}
        elif rank not in self._ranks or time >= self._ranks[rank][0]:
            self._ranks[rank] = (time, value)

    @property
    def value(self) -> float | None:
        """The value; None without points, NaN if it is NaN on one rank."""
        return mean([value for _, value in self._ranks.values()]) if self._ranks else None

    @property
    def step(self) -> int | None:
        """The step; None for values without one."""
        return self._place[2] if self._place[1] else None

    @property
    def time(self) -> int:
        """When the latest of the values was logged, in ns."""
        return max((time for time, _ in self._ranks.values()), default=0)

    @property
    def by_rank(self) -> dict[int, float]:
        """The values of which it is the mean."""
        return {rank: self._ranks[rank][1] for rank in sorted(self._ranks)}


def last_of(points: Iterable[tuple[float, int, int, int | None, int]]) -> LastValue:
    """Return the last value of points: value, rank, attempt, step and time of each."""
    last = LastValue()
    for point in points:
        last.add(*point)
    return last


def mean(values: Sequence[float]) -> float:
    """Return the mean; equal values keep their digits, and large ones do not overflow."""
    first = values[0]
    if all(value == first for value in values):
        return first
    if not all(map(math.isfinite, values)):
        return sum(values)
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)


def describe(ranks: int, step: int | None) -> str:
    """Say what a last value is: `mean of 4 ranks at step 199`."""
    what = f"mean of {ranks} ranks" if ranks > 1 else "last value"
    return what if step is None else f"{what} at step {step}"
