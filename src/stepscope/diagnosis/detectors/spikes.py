"""A spike: a loss or a gradient norm far above its own course for a few steps."""

import math
from collections import deque
from statistics import median

from stepscope.diagnosis.detector import Point, RunState
from stepscope.diagnosis.finding import Finding, number, withdrawn
from stepscope.diagnosis.series import Series, spread

NEIGHBOURS = 9
"""So many values before it are where a value is expected."""
LEAST = 4
"""A spike needs so many values before it."""
EARLY = 40
"""With fewer values the noise is not known well, and a spike must stand out more."""
SIGMAS = 8.0
EARLY_SIGMAS = 12.0
BEYOND = {"loss": 2.0, "side_loss": 2.5, "grad_norm": 2.0}
"""A spike is so many times farther out than anything before it..."""
RATIO = {"loss": 1.7, "side_loss": 4.0, "grad_norm": 12.0}
"""... and so many times the expected value, where ratios mean something."""
PERSISTS = 8
"""After so many values in a row it is no spike but a new level."""
RENEW = 8
"""The noise is estimated again after so many values."""


class Spikes:
    """Watches one loss or gradient norm."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._usual: deque[float] = deque(maxlen=100)
        self._residuals: deque[float] = deque(maxlen=100)
        self._farthest = 0.0
        self._logs: bool | None = None
        self._row: list[tuple[int, float]] = []
        self._sigma = 0.0
        self._size = 0.0
        self._since_learnt = 0

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a value against the few before it."""
        if self._logs is not series.positive:
            self._restart(series)
        x = math.log(point.value) if series.positive else point.value
        if len(self._usual) < LEAST:
            self._usual.append(x)
            return None
        expected = median(list(self._usual)[-NEIGHBOURS:])
        away = x - expected
        limit = self._limit(expected)
        if away < limit:
            self._row = []
            self._learn(x, away)
            return None
        if _explained(run, point.step):
            self._learn(x, away)
            return None
        self._row.append((point.step, point.value))
        if len(self._row) >= PERSISTS:
            self._usual.clear()
            self._usual.extend(math.log(value) if series.positive else value for _, value in self._row)
            begun, self._row = self._row[0][0], []
            return withdrawn("spike", series.key, series.rank, begun)
        if len(self._row) > 1 and point.value <= max(value for _, value in self._row[:-1]):
            return None
        return self._finding(series, point, expected, limit)

    def _restart(self, series: Series) -> None:
        """Change the scale: ratios while all values are positive, differences from the first that is not."""
        self._logs = series.positive
        values = list(series.values)[:-1]
        self._usual.clear()
        self._residuals.clear()
        self._farthest = self._sigma = 0.0
        scaled = series.scaled(values)
        for at, x in enumerate(scaled):
            if at >= LEAST:
                self._learn(x, x - median(scaled[max(at - NEIGHBOURS, 0) : at]))
            else:
                self._usual.append(x)

    def _learn(self, x: float, away: float) -> None:
        self._usual.append(x)
        self._residuals.append(away)
        self._since_learnt += 1
        self._farthest = max(self._farthest * 0.9995, abs(away))

    def _limit(self, expected: float) -> float:
        """How far above the expected value is too far."""
        ratio = RATIO[self._role]
        least = math.log(ratio) if self._logs else 1e-9
        if len(self._residuals) < EARLY:
            window = list(self._usual)
            wide = max(window) - min(window)
            sigma = spread(window) if not self._residuals else max(spread(list(self._residuals)), wide / 6)
            far = max(EARLY_SIGMAS * sigma, 2.0 * wide)
            return max(far, least, 0.0 if self._logs else (ratio - 1) * abs(expected))
        if self._since_learnt >= RENEW or not self._sigma:
            self._since_learnt = 0
            self._sigma = spread(self._residuals)
            self._size = median(abs(x) for x in self._usual)
        floor = 0.0 if self._logs else max(ratio * self._size, 1e-9)
        return max(SIGMAS * self._sigma, BEYOND[self._role] * self._farthest, least, floor)

    def _finding(self, series: Series, point: Point, expected: float, limit: float) -> Finding:
        first = self._row[0][0]
        usual = math.exp(expected) if series.positive else expected
        high = math.exp(expected + limit) if series.positive else expected + limit
        low = math.exp(expected - limit) if series.positive else expected - limit
        times = (
            f", {point.value / usual:.3g} times the usual {number(usual)}"
            if usual > 0
            else f" (usually {number(usual)})"
        )
        return Finding(
            "spike",
            "ERROR" if self._role == "loss" else "WARN",
            f"{series.key} spiked to {number(point.value)} at step {point.step}{times}",
            step=first,
            last=point.step,
            ranks=(series.rank,),
            key=series.key,
            value=point.value,
            expected=(low, high),
            cause="a bad batch, or a learning rate that is too high for it",
            advice="Look at the batch of that step; clip gradients, or lower the learning rate if it comes again.",
            time=point.time,
            weight=(math.log(point.value) - expected if series.positive else point.value - expected)
            / max(limit, 1e-12),
        )


def _explained(run: RunState, step: int) -> bool:
    """Whether a new stage, or a learning rate that was raised, explains a higher value."""
    return bool(run.changes) and bool(run.changed(step - 5, step))
