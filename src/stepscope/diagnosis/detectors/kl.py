"""KL blow-up: of one update, also for estimators that fluctuate around zero, and to a reference model."""

import re
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, jitter, spread

BLOWUP = Kind(
    "kl_blowup",
    "WARN",
    "the policy moves too far in one update",
    "Lower the learning rate or the number of epochs per batch; stop updates early at a target KL.",
    explains=("spike", "clip_saturated", "entropy_collapse", "value_function", "kl_drift"),
)
NORMAL, CRITICAL = 0.05, 0.1
TIMES = 5.0
SIGMAS = 10.0
LEAST = 10
RENEW = 8
"""The limit is estimated again after this many usual values."""
RUN_AWAY, LEAP, FLOOR = 8.0, 2.0, 2.0
"""A KL to a reference model grows in every training. It runs away when its last values are this many times those of a
while ago, each above all of those by the second factor, and above this floor."""
LAST, PAUSE, BEFORE = 8, 16, 76
"""How many last values are compared with how many before, and how many lie between."""


_CODED = re.compile(r"(^|[^a-z])(elbo|recon|reconstruction|recons|rec_loss|vae)([^a-z]|$)", re.IGNORECASE)


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
        if self._is_of_a_code():
            return None
        if not (extreme or len(self._row) == 3) or series.step - self._reported_at < 50 * series.spacing:
            return None
        self._reported_at = series.step
        text = f"{series.key} rose to {number(value)} at step {begun}, usually {number(self._middle)}"
        severity: Literal["WARN", "ERROR"] = "ERROR" if abs(value) > CRITICAL else "WARN"
        return BLOWUP.about(series, begun, text, (self._middle - SIGMAS * self._wide, limit), severity=severity)

    def _is_of_a_code(self) -> bool:
        """Return whether it is what a code costs, as in an autoencoder: it rises where something is learnt."""
        run, rank = self._run, self._series.rank
        losses = (*run.of_role("loss", rank), *run.of_role("side_loss", rank))
        return not run.reinforcement and any(_CODED.search(each.key) for each in losses)


def _judge_reference(series: Series, run: RunState) -> Finding | None:
    """Judge a KL to a reference model against its values a while ago."""
    values = list(series.values)
    if series.value < FLOOR or len(values) < LAST + PAUSE + BEFORE:
        return None
    before, last = values[-LAST - PAUSE - BEFORE : -LAST - PAUSE], values[-LAST:]
    was = median(before)
    if median(last) < RUN_AWAY * max(was, 0.0) or min(last) < max(LEAP * max(before), FLOOR):
        return None
    usual = 2 * median(values[: len(values) // 2])
    begun = 1 + max((step for step, value in zip(series.steps, values, strict=True) if value < usual), default=0)
    text = f"{series.key} rose from {number(was)} to {number(series.value)} since step {begun}"
    return BLOWUP.about(series, begun, text, (0.0, RUN_AWAY * was))


ReferenceKl = judged_once("ReferenceKl", BLOWUP, ("reference_kl",), _judge_reference, each="value")
