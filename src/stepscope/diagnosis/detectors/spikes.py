"""Spike: a loss or gradient norm far above its trend for a few steps."""

import math
from collections import deque
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.detectors.level_shift import LEVEL_SHIFT
from stepscope.diagnosis.finding import Finding, Kind, Severity, number
from stepscope.diagnosis.series_history import Series, roughness, spread

SPIKE = Kind(
    "spike",
    "WARN",
    "a bad batch, or a learning rate that is too high for it",
    "Look at the batch of that step; clip gradients, or lower the learning rate if it recurs.",
    explains=("spike", "level_shift"),
    rules_out="a change for good: a level that lasts is another finding",
)
NEIGHBOURS = 9
"""The number of preceding values that predict a value."""
LEAST = 4
"""A spike needs this many values before it."""
EARLY = 40
"""With fewer values the noise is not known well, and a spike must stand out more."""
SIGMAS = 8.0
EARLY_SIGMAS = 12.0
TRENDING = 16
"""From so many values on the noise of an early series is that around its trend: a loss that falls is not wide."""
BEYOND = {"loss": 2.0, "side_loss": 2.5, "grad_norm": 2.0}
"""A spike deviates this many times more than anything before it..."""
RATIO = {"loss": 1.7, "side_loss": 4.0, "grad_norm": 12.0}
"""... and is this many times the expected value, where ratios are meaningful."""
HUGE, OFTEN = math.log(50.0), 3
"""A spike of a gradient norm is no mere remark when it is this large, in logarithms, or the third."""
PERSISTS = 8
"""After this many values in a row it is a new level and not a spike."""
WINDOW = 100
RENEW = 8
"""The noise is estimated again every this many values, and a quarter as often once the window is full."""
OUTLIER, HEAVY = 4.0, 3
"""A loss of which several values were above the others by so many times the noise has a heavy tail."""
DECAY = 0.9995
"""The decay of the largest deviation with each value."""


class Spikes:
    """Watches one loss or gradient norm."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SPIKE, LEVEL_SHIFT)
    ROLES: ClassVar[tuple[str, ...]] = ("loss", "side_loss", "grad_norm")
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = (
        "_alone", "_away", "_farthest", "_learnt", "_limit", "_logs", "_noise", "_outliers", "_recent", "_residuals",
        "_role", "_row", "_run", "_scaled", "_series", "_usual",
    )  # fmt: skip

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._role = series, run, series.role.name
        self._recent: list[float] = []
        self._usual: deque[float] = deque(maxlen=WINDOW)
        self._residuals: deque[float] = deque(maxlen=WINDOW)
        self._farthest = 0.0
        self._logs = True
        self._row: list[tuple[int, float]] = []
        self._limit = 0.0
        """How far above the expected value is too far; 0 while that is judged anew for each value."""
        self._learnt = 0
        self._alone = self._outliers = 0
        self._noise = math.inf
        self._scaled: list[float] = []
        self._away: list[float] = []
        """The values that `usual` looked at, scaled, and how far each is above the expected one."""

    def usual(self, ahead: Values) -> int:
        """Count the next values that are not too far above those before them, at most until the noise is renewed."""
        limit, recent, values = self._limit, self._recent, ahead.values
        if not limit or len(recent) < NEIGHBOURS or self._logs is not self._series.positive:
            return 0
        if self._logs and min(values) <= 0:
            return 0
        least = math.log(RATIO[self._role]) if self._logs else 0.0
        scaled = self._scaled = [math.log(value) for value in values] if self._logs else values
        all = [*recent, *scaled]
        away = self._away = [x - sorted(all[at : at + NEIGHBOURS])[4] for at, x in enumerate(scaled)]
        left = RENEW - self._learnt
        if max(away) < min(least, limit):  # the limit that is estimated again is not below that
            return len(away)
        return leading(each < limit for each in away[:left])

    def learn(self, taken: Values) -> None:
        """Take values that are not too far away."""
        count, at = len(taken.values), 0
        self._row = []
        self._recent = [*self._recent, *self._scaled[:count]][-NEIGHBOURS:]
        while at < count:
            upto = min(at + RENEW - self._learnt, count)
            away = self._away[at:upto]
            self._usual.extend(self._scaled[at:upto])
            self._residuals.extend(away)
            self._learnt += upto - at
            far, bound = max(max(away), -min(away)), OUTLIER * self._noise
            if far > bound:
                self._outliers += sum(each > bound for each in away)
            if far > self._farthest:
                self._farthest = far
                self._limit = max(self._limit, BEYOND[self._role] * far)
            if self._learnt >= RENEW:
                self._renew()
            at = upto

    def take(self) -> Finding | None:
        """Compare a value with the few before it."""
        series, recent = self._series, self._recent
        if self._logs is not series.positive:
            self._restart()
        value = series.value
        x = math.log(value) if self._logs else value
        count = len(recent)
        if count < (LEAST if self._role == "loss" else NEIGHBOURS):
            recent.append(x)
            self._usual.append(x)
            return None
        expected = sorted(recent)[4] if count == NEIGHBOURS else median(recent)
        away = x - expected
        limit = self._limit or self._early_limit(expected)
        if away < limit:
            if self._row:
                self._row = []
            self._learn(x, away)
            return None
        return self._judge(x, away, expected, limit)

    def _judge(self, x: float, away: float, expected: float, limit: float) -> Finding | None:
        """Evaluate a value outside the band."""
        series, run = self._series, self._run
        if self._is_of_policy(away) or (run.changes and run.changed(series.step - 5, series.step)):
            self._learn(x, away)
            return None
        self._row.append((series.step, series.value))
        if len(self._row) >= PERSISTS:
            level = series.on_scale([value for _, value in self._row])
            self._usual.clear()
            self._usual.extend(level)
            self._recent = level[-NEIGHBOURS:]
            begun, values, self._row = self._row[0][0], [value for _, value in self._row], []
            if self._role == "loss" and not run.reinforcement:
                return _lasting(series, begun, series.plain(expected), values)
            return SPIKE.withdrawn(series, begun)
        if len(self._row) > 1 and series.value <= max(value for _, value in self._row[:-1]):
            return None
        return self._finding(away, expected, limit)

    def _is_of_policy(self, away: float) -> bool:
        """Return whether this is the loss of a policy, which moves with its samples: no farther than a part of it."""
        if self._role != "loss" or not self._run.reinforcement:
            return False
        ratio = RATIO["side_loss"]
        return away < (math.log(ratio) if self._logs else ratio * median([abs(x) for x in self._usual]))

    def _restart(self) -> None:
        """Switch from ratios, used while all values are positive, to differences."""
        self._logs = self._series.positive
        self._recent.clear()
        self._usual.clear()
        self._residuals.clear()
        self._farthest = self._limit = 0.0
        self._noise, self._outliers = math.inf, 0
        for x in self._series.on_scale(list(self._series.values)[:-1]):
            if len(self._recent) < LEAST:
                self._recent.append(x)
                self._usual.append(x)
            else:
                self._learn(x, x - median(self._recent))

    def _learn(self, x: float, away: float) -> None:
        recent = self._recent
        recent.append(x)
        if len(recent) > NEIGHBOURS:
            del recent[0]
        self._usual.append(x)
        self._residuals.append(away)
        far = away if away > 0 else -away
        self._outliers += away > OUTLIER * self._noise
        self._learnt += 1
        if far > self._farthest:
            self._farthest = far
            if self._limit:
                self._limit = max(self._limit, BEYOND[self._role] * far)
        if self._learnt >= RENEW:
            self._renew()

    def _renew(self) -> None:
        residuals = self._residuals
        if len(residuals) < EARLY:
            return
        self._farthest *= DECAY**self._learnt
        self._learnt = -3 * RENEW if len(residuals) == WINDOW else 0
        ratio = RATIO[self._role]
        least = math.log(ratio) if self._logs else max(ratio * median([abs(x) for x in self._usual]), 1e-9)
        self._noise = spread(residuals)
        self._limit = max(SIGMAS * self._noise, BEYOND[self._role] * self._farthest, least)

    def _early_limit(self, expected: float) -> float:
        ratio, window = RATIO[self._role], self._usual
        residuals = self._residuals
        trending = len(residuals) >= TRENDING
        wide = max(residuals) - min(residuals) if trending else max(window) - min(window)
        noise = roughness(list(residuals)) if trending else spread(residuals or window)
        sigma = max(noise, wide / 6) if residuals else noise
        ratio = ratio**2 if len(self._recent) < NEIGHBOURS else ratio  # so few values hardly tell what is usual
        least = math.log(ratio) if self._logs else max((ratio - 1) * abs(expected), 1e-9)
        return max(EARLY_SIGMAS * sigma, 2.0 * wide, least)

    def _severity(self, away: float) -> Severity:
        """Return how bad a spike is: the first of a gradient norm alone, and one of many in a loss, are remarks."""
        if self._role == "loss":
            return "INFO" if self._logs and self._outliers >= HEAVY and len(self._row) == 1 else "ERROR"
        self._alone = self._alone + 1 if len(self._row) == 1 else self._alone
        harmless = self._role == "grad_norm" and "loss" in self._run.roles and self._alone < OFTEN
        return "INFO" if harmless and self._logs and away < HUGE else "WARN"

    def _finding(self, away: float, expected: float, limit: float) -> Finding:
        series = self._series
        usual = series.plain(expected)
        times = (
            f", {number(series.value / usual, 3)} times the usual {number(usual)}"
            if usual > 0
            else f" (usually {number(usual)})"
        )
        return SPIKE.about(
            series,
            self._row[0][0],
            f"{series.key} spiked to {number(series.value)} at step {series.step}{times}",
            series.band(expected, limit),
            severity=self._severity(away),
            weight=away / max(limit, 1e-12),
        )


def _lasting(series: Series, begun: int, usual: float, values: list[float]) -> Finding:
    """Return a jump that has lasted, whether or not the loss falls back later."""
    level = median(values)
    text = (
        f"{series.key} went up from {number(usual)} to {number(values[0])} at step {begun}, still {number(values[-1])}"
    )
    return LEVEL_SHIFT.about(
        series, begun, f"{text} {len(values)} values later", (0.0, usual * RATIO["loss"]), value=level, weight=1.0
    )
