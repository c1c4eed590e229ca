"""KL blow-up, also for estimators that fluctuate around zero."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, jitter, spread

BLOWUP = Kind(
    "kl_blowup",
    "WARN",
    "the policy moves too far in one update",
    "Lower the learning rate or the number of epochs per batch; stop updates early at a target KL.",
    explains=("spike", "clip_saturated", "entropy_collapse", "value_function"),
)
NORMAL, CRITICAL = 0.05, 0.1
TIMES = 5.0
SIGMAS = 10.0
LEAST = 10
RENEW = 8
"""The limit is estimated again after this many usual values."""


class Kl:
    """Watches one KL divergence."""

    KINDS: ClassVar[tuple[Kind, ...]] = (BLOWUP,)
    ROLES: ClassVar[tuple[str, ...]] = ("kl",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_learnt", "_limit", "_middle", "_reported_at", "_row", "_run", "_series", "_usual", "_wide")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._row: list[tuple[int, float]] = []
        self._usual: list[float] = []
        self._reported_at = -(10**18)
        self._learnt = RENEW
        self._limit = self._middle = self._wide = 0.0

    def take(self) -> Finding | None:
        """Compare a value with the recent normal values."""
        usual, value = self._usual, self._series.value
        if len(usual) < LEAST:
            usual.append(value)
            return None
        if self._learnt >= RENEW:
            self._renew()
        if -self._limit <= value <= self._limit:
            if self._row:
                self._row = []
            usual.append(value)
            self._learnt += 1
            if value > self._limit / 1.5:
                self._learnt = RENEW
            return None
        return self._judge(value)

    def _renew(self) -> None:
        usual = self._usual
        del usual[:-64]
        self._learnt = 0
        self._middle, self._wide = median(usual), max(spread(usual), jitter(usual), 1e-4)
        target = self._run.setting("target_kl", "kl_target") or 0.0
        far = self._middle + SIGMAS * self._wide
        self._limit = max(TIMES * abs(self._middle), far, 1.5 * max(usual), 2 * target, NORMAL)

    def _judge(self, value: float) -> Finding | None:
        series, limit = self._series, self._limit
        self._row.append((series.step, value))
        begun = self._row[0][0]
        extreme = abs(value) > 4 * limit
        if len(self._row) > 12:
            self._usual.extend(each for _, each in self._row)
            self._row, self._learnt = [], RENEW
        if not (extreme or len(self._row) == 3) or series.step - self._reported_at < 50 * series.spacing:
            return None
        self._reported_at = series.step
        text = f"{series.key} rose to {number(value)} at step {begun}, usually {number(self._middle)}"
        severity: Literal["WARN", "ERROR"] = "ERROR" if abs(value) > CRITICAL else "WARN"
        return BLOWUP.about(series, begun, text, (self._middle - SIGMAS * self._wide, limit), severity=severity)
