"""Aggregates the values of all ranks at a step into one."""

from collections.abc import Callable, Sequence

OPEN_STEPS = 4
"""The most steps that wait for missing ranks; beyond that the oldest is aggregated without them."""

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "mean": lambda values: sum(values) / len(values),
    "sum": sum,
    "spread": lambda values: max(values) - min(values),
    "count": len,
}


class OverRanks:
    """Collects the values of a key by step, and waits for the ranks that reported earlier steps."""

    def __init__(self, aggregate: str, world: int) -> None:
        self._aggregate = AGGREGATES[aggregate]
        self._expected = max(world, 1)
        self._steps: dict[int | None, dict[int, float]] = {}

    def take(self, rank: int, step: int | None, value: float) -> tuple[int | None, float] | None:
        """Add the value of a rank; return a step that is now complete, with its aggregate."""
        if step is None:  # without steps, aggregate the latest value of each rank
            values = self._steps.setdefault(None, {})
            values[rank] = value
            return None, self._of(values)
        values = self._steps.setdefault(step, {})
        values[rank] = value
        if len(values) >= self._expected:
            del self._steps[step]
            self._expected = len(values)
            return step, self._of(values)
        if len(self._steps) > OPEN_STEPS:
            oldest = min(each for each in self._steps if each is not None)
            values = self._steps.pop(oldest)
            self._expected = max(len(values), *(len(each) for each in self._steps.values()))
            return oldest, self._of(values)
        return None

    def _of(self, values: dict[int, float]) -> float:
        found = list(values.values())
        broken = next((each for each in found if each != each), None)  # min and max would ignore a NaN
        return float(self._aggregate(found)) if broken is None else broken
