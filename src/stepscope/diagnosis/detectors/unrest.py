"""Unrest: a training loss that begins to swing, far more than it did before, around whatever level it has."""

from collections import deque
from itertools import pairwise
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.detectors.not_learning import OSCILLATION
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, spread

WINDOW = 48
"""Swings are measured over this many values..."""
CALM, KEPT = 4, 8
"""... against that many windows before, at least and at most."""
TIMES, BEYOND = 4.0, 1.5
"""They are this many times as wide as usual, and wider than any of these windows by the second factor..."""
SHARE = 0.12
"""... and this share of the level, in two windows in a row."""
TURNS = 3
"""Values that swing cross their trend this often in a window; a jump that is being relearnt crosses it twice."""


class Unrest:
    """Watches one training loss."""

    KINDS: ClassVar[tuple[Kind, ...]] = (OSCILLATION,)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_judged", "_reported", "_run", "_series", "_since", "_widths")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._widths: deque[float] = deque(maxlen=KEPT)
        self._judged = 0
        self._since: int | None = None
        self._reported = False

    def take(self) -> Finding | None:
        """Measure a window of values as soon as it is full."""
        series, run = self._series, self._run
        if self._reported or series.count - self._judged < WINDOW or run.reinforcement or not series.positive:
            return None
        self._judged = series.count
        values = list(series.values)[-WINDOW:]
        level, away = median(values), _deviations(values)
        width = spread(away)
        begun = series.steps[-WINDOW]
        calm = self._widths
        wild = (
            len(calm) >= CALM
            and width > max(TIMES * median(calm), BEYOND * max(calm), SHARE * level)
            and sum(a < 0 < b or b < 0 < a for a, b in pairwise(away)) >= TURNS
        ) and not run.changed(begun - WINDOW, series.step)
        if not wild:
            self._since = None
            calm.append(width)
            return None
        if self._since is None:
            first = next(at for at, each in enumerate(away) if abs(each) > BEYOND * max(calm))
            self._since = series.steps[first - WINDOW]
            return None
        self._reported = True
        low, high = number(min(values)), number(max(values))
        text = f"{series.key} swings between {low} and {high} since step {self._since}: "
        text += f"{width / max(median(calm), 1e-12):.0f} times as wide as before"
        return OSCILLATION.about(series, self._since, text, (level - 2 * max(calm), level + 2 * max(calm)))


def _deviations(values: list[float]) -> list[float]:
    """Return how far values are from the line through the middles of their halves."""
    half = len(values) // 2
    first, second = median(values[:half]), median(values[half:])
    slope = (second - first) / half
    start = first - slope * (half - 1) / 2
    return [value - start - slope * at for at, value in enumerate(values)]
