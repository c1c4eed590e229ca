"""Throughput loss: a falling throughput or longer steps, from some step on."""

import math
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import Found, RunState, StepTimes
from stepscope.diagnosis.finding import Finding, Kind, number, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series, exp, jitter, spread
from stepscope.diagnosis.span_names import traits

LOSS = Kind(
    "throughput_loss",
    "WARN",
    "a slower machine (thermal throttling, other jobs, the network), or more work in each step",
    "Compare spans before and after that step.",
    explains=("throughput_loss", "gpu_idle"),
    lasts=True,
)
REGRESSION = Kind(
    "slower_than_before",
    "WARN",
    "a change of code, configuration or machine since the earlier runs",
    "Compare configuration, code version and spans with an earlier run.",
)
SLOWER = 0.06
"""Less than this, in logarithms, is not reported."""
SIGMAS = 6.0
WIDTHS = (6, 12)
"""This many blocks are compared with as many before them."""
LEAST_BLOCKS = 24
REGRESSED = math.log(1.15)
REGRESSION_STEPS = 50
EARLIER = 2
"""The number of earlier runs needed for a comparison."""


class Throughput:
    """Watches one throughput or step time metric."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS,)
    ROLES: ClassVar[tuple[str, ...]] = ("throughput", "step_time")
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "block"

    __slots__ = ("_reported", "_run", "_series", "_sign")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._reported = series, run, False
        self._sign = -1.0 if series.role.name == "step_time" else 1.0

    def take(self) -> Finding | None:
        """Compare the last blocks with those before."""
        series = self._series
        if self._reported or len(series.middles) < LEAST_BLOCKS or not series.positive:
            return None
        for width in WIDTHS:
            found = self._judge(width)
            if found is not None:
                self._reported = True
                return found
        return None

    def _judge(self, width: int) -> Finding | None:
        series, sign, scaled = self._series, self._sign, self._series.scaled
        if len(scaled) < 2 * width + 2:
            return None
        newest = min(sign * scaled[-1], sign * scaled[-2])
        if newest >= sign * scaled[-width - 1] or newest >= sign * scaled[-2 * width]:
            return None
        middles = [sign * value for value in scaled]
        before, after = middles[-2 * width : -width], middles[-width:]
        was, became, lowest = median(before), median(after), min(before)
        fell = was - became
        if fell < SLOWER or sum(value < lowest for value in after) < width - 1:
            return None
        wide = max(spread(before), spread(after), jitter(middles) / 2, 0.002)
        steady = abs(median(after[: width // 2]) - median(after[width // 2 :])) < 0.5 * fell
        prior = middles[len(middles) // 5 : -width]
        if fell < 0.9 * (max(prior) - min(prior)) or fell < SIGMAS * wide / math.sqrt(width) or not steady:
            return None
        begun = series.firsts[-width]
        if self._run.restaged(series.firsts[-width - 2], series.lasts[-width + 2]):
            return None
        usual, now, lost = exp(sign * was), exp(sign * became), 1 - exp(became - was)
        low, high = sorted((usual * exp(-SIGMAS * wide), usual * exp(SIGMAS * wide)))
        text = f"{series.key} went from {number(usual)} to {number(now)} at step {begun}: {lost:.0%} slower since"
        return LOSS.about(series, begun, text, (low, high), value=now, weight=lost)


class Pace:
    """Watches the duration of step spans, except those with an evaluation or a checkpoint."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS, REGRESSION)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._ranks: dict[int, tuple[Series, Throughput]] = {}
        self._compared = False

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""
        if any(traits(name).rare for name in times.own):
            return ()
        known = self._ranks.get(times.rank)
        if known is None:
            series = Series("time of a step", times.rank, Role("step_time"))
            known = self._ranks[times.rank] = (series, Throughput(series, self._run))
        series, watch = known
        if not series.add(times.step, times.ended, times.took):
            return ()
        found = watch.take() or self._regression(series)
        return () if found is None else (found,)

    def _regression(self, series: Series) -> Finding | None:
        """Compare the step time with earlier runs of the project."""
        earlier = self._run.earlier
        if self._compared or series.count < REGRESSION_STEPS or len(earlier) < EARLIER:
            return None
        self._compared = True
        now = median(series.middles)
        slower = slower_than_before(now, earlier)
        if slower is None:
            return None
        usual = median(earlier)
        text = f"a step takes {seconds(now)}, {slower:.2f} times as long as in the {len(earlier)} runs before"
        return REGRESSION.about(
            series, series.first_step, text, (min(earlier), max(earlier)), value=now, weight=now / usual
        )


def slower_than_before(now: float, earlier: tuple[float, ...]) -> float | None:
    """Return how many times as long a step takes as in earlier runs; None when within their normal range.

    Takes the median step time of this run and of each earlier one, in seconds.
    """
    if len(earlier) < EARLIER or now <= 0 or min(earlier) <= 0:
        return None
    logs = [math.log(each) for each in earlier]
    away = math.log(now) - median(logs)
    if away < max(REGRESSED, 4 * spread(logs)) or now <= max(earlier) * 1.05:
        return None
    return exp(away)
