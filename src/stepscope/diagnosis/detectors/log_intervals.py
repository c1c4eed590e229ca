"""Time from one logged loss to the next, for runs that have neither spans nor a metric of their speed."""

from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.detectors.throughput import BUSY, LOSS, MIN_LOST_IN_ALL, MIN_LOST_SECONDS, Throughput
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series

INTERVAL = "time from log to log"
FEW, EPOCH = 100, 1.0
"""Of so few values, so many seconds apart, each may be a whole epoch..."""
BEFORE, AFTER, SLOWER = 8, 6, 1.3
"""... and the last of them are compared with those before: each must take so many times as long."""


class LogIntervals:
    """Watches when the first training loss of a rank is logged."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOSS, BUSY)
    ROLES: ClassVar[tuple[str, ...]] = ("loss",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_last", "_pending", "_reported", "_run", "_series", "_watch", "_watched")

    def __init__(self, series: Series, run: RunState) -> None:
        self._watched, self._run = series, run
        self._series = Series(INTERVAL, series.rank, Role("step_time"))
        self._watch = Throughput.unweighed(self._series, run)
        self._last: tuple[int, int] | None = None
        self._pending: Finding | None = None
        """A slowdown that has cost little so far."""
        self._reported = False

    def usual(self, ahead: Values) -> int:
        """Count the next values: all, where the time of a step is known from elsewhere, else until it is judged."""
        if self._is_known():
            return len(ahead.steps)
        steps, run = ahead.steps, self._run
        if self._last is None or self._last[0] == run.resumed or self._series.count < FEW:
            return 0
        spacing = 2 * max(self._watched.spacing, 1.0)
        near = leading(0 < b - a <= spacing for a, b in pairwise((self._last[0], *steps)))
        return min(self._series.room, near)

    def learn(self, taken: Values) -> None:
        """Take values that complete no block of times."""
        last, self._last = self._last, (taken.steps[-1], taken.times[-1])
        if self._is_known() or last is None:
            return
        places = pairwise((last, *zip(taken.steps, taken.times, strict=True)))
        took = [max((until - since) / 1e9 / (step - before), 1e-9) for (before, since), (step, until) in places]
        self._series.extend(taken.steps, taken.times, took)

    def _is_known(self) -> bool:
        """Return whether the time of a step is known from elsewhere, or was judged, or is that of another series."""
        run, watched = self._run, self._watched
        if self._reported or run.usual_step or not run.roles.isdisjoint(("step_time", "throughput")):
            return True
        return run.of_role("loss", watched.rank, held_out=False)[0] is not watched

    def take(self) -> Finding | None:
        """Add the time since the value before, for each step."""
        watched, run = self._watched, self._run
        last, self._last = self._last, (watched.step, watched.time)
        if last is None or self._is_known():
            return None
        if last[0] == run.resumed or not 0 < watched.step - last[0] <= 2 * max(watched.spacing, 1.0):
            return None
        took = (watched.time - last[1]) / 1e9 / (watched.step - last[0])
        closed = self._series.add(watched.step, watched.time, max(took, 1e-9))
        found = self._few() or (self._watch.take() if closed else None)
        if found is not None:
            self._pending = found if found.weight > 0 else None
        if self._pending is None or not (closed or found) or not self._is_worth_it(self._pending):
            return None
        self._reported = True
        return replace(self._pending, last=watched.step)

    def _few(self) -> Finding | None:
        """Compare the last intervals with those before, one by one."""
        series, values = self._series, list(self._series.values)
        if not BEFORE + AFTER <= series.count < FEW:
            return None
        before, after = values[-BEFORE - AFTER : -AFTER], values[-AFTER:]
        begun, was, now = series.steps[-AFTER], median(before), median(after)
        if was < EPOCH or min(after) < SLOWER * max(before) or self._run.restaged(begun - 1, begun):
            return None
        text = f"each step takes {seconds(now)} since step {begun}, {seconds(was)} before"
        busy = self._run.busy(series.rank)
        kind, text = (BUSY, f"{text}; {busy}") if busy else (LOSS, text)
        return kind.about(series, begun, text, (min(before), max(before)), value=now, weight=now / was)

    def _is_worth_it(self, found: Finding) -> bool:
        """Return whether a slowdown goes on and has cost something, in each step and in all."""
        usual = (found.expected or (0.0, 0.0))[1]
        lost = median(list(self._series.values)[-AFTER:]) - usual
        return lost > MIN_LOST_SECONDS and lost * (self._series.step - (found.step or 0)) > MIN_LOST_IN_ALL
