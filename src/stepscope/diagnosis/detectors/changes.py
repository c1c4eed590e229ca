"""Intentional changes that explain what follows: raised learning rates, new stages and epochs."""

from itertools import pairwise
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import Change, RunState, Values, leading
from stepscope.diagnosis.finding import Kind
from stepscope.diagnosis.series_history import Series

MOST = 64
RAISED = 1.3
STAGE_SHARE = 0.05
"""A stage with other values than before in a larger share of its values is a measurement..."""
FEW = 3
"""... but this many changes are always possible."""


class Changes:
    """Records the changes of one learning rate or stage for other detectors; reports no findings."""

    KINDS: ClassVar[tuple[Kind, ...]] = ()
    ROLES: ClassVar[tuple[str, ...]] = ("lr", "stage")
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_count", "_key", "_run", "_series", "_stage")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._stage = series, run, series.role.name == "stage"
        kind = "epoch" if self._stage and series.key.lower().endswith("epoch") else series.role.name
        self._key, self._count = f"{kind}:{series.key}", 0

    def usual(self, ahead: Values) -> int:
        """Count the next values that are no change."""
        series, values = self._series, ahead.values
        if series.count < 2:
            return 0
        if values.count(series.value) == len(values):
            return len(values)
        pairs = pairwise((series.value, *values))
        return leading(b == a or not self._is_change(a, b) for a, b in pairs)

    def learn(self, taken: Values) -> None:
        """Do nothing: they are no changes."""

    def _is_change(self, before: float, value: float) -> bool:
        return value == round(value, 6) if self._stage else value > RAISED * before > 0

    def take(self) -> None:
        """Record a sharply raised rate, or a stage with a new integer value."""
        series = self._series
        value, before = series.value, series.before
        if value == before or series.count < 2:
            return
        if self._is_change(before, value):
            self._count += 1
            if self._stage and self._count > max(FEW, STAGE_SHARE * series.count):
                self._run.changes = [each for each in self._run.changes if each.key != self._key]
                return
            self._run.changes.append(Change(series.step, self._key, before, value))
            del self._run.changes[:-MOST]
