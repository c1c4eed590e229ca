"""Retry storms: counters of retries, timeouts or failures that rise much faster than before."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.detectors.log_anomalies import RETRIES
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

MIN_BLOCKS = 6
BLOCKS = 2
"""This many blocks in a row are far above all before them."""
TIMES = 10.0
LEAST = 5.0
"""The smallest counter increase that is reported."""


class Retries:
    """Watches one counter of retries, timeouts or failures, per step or cumulative."""

    KINDS: ClassVar[tuple[Kind, ...]] = (RETRIES,)
    ROLES: ClassVar[tuple[str, ...]] = ("failures",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_falls", "_last", "_rates", "_reported", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._reported = series, False
        self._last = 0.0
        self._falls = False
        self._rates: list[tuple[int, float]] = []
        """The step at which each block began, and how many there were for a value of it."""

    def take(self) -> Finding | None:
        """Compare the last blocks with those before; a counter that never falls is cumulative."""
        series = self._series
        middle, begun = series.middles[-1], series.firsts[-1]
        if middle < self._last and not self._falls:
            self._falls = True
            self._rates.clear()
        rate = middle if self._falls else (middle - self._last) / max(series.block_size, 1)
        self._last = middle
        self._rates.append((begun, rate))
        del self._rates[:-64]
        if self._reported or len(self._rates) < MIN_BLOCKS + BLOCKS:
            return None
        before = [each for _, each in self._rates[1:-BLOCKS]]
        newest = [each for _, each in self._rates[-BLOCKS:]]
        high = max(LEAST, TIMES * median(before), 2 * max(before))
        if min(newest) < high:
            return None
        self._reported = True
        begun = self._rates[-BLOCKS][0]
        text = f"{series.key}: {number(min(newest))} per report since step {begun}, usually {number(median(before))}"
        return RETRIES.about(series, begun, text, (0.0, high), value=newest[-1], weight=2.0)
