"""The state machine of one alert: pure, fed with time, step and value."""

import math
import sys
from dataclasses import dataclass
from typing import Literal

from stepscope.alerts.rule import Compiled, Duration

State = Literal["inactive", "pending", "firing", "recovering", "resolved", "no-data", "error"]
STATES: tuple[State, ...] = ("inactive", "pending", "firing", "recovering", "resolved", "no-data", "error")
OPEN: frozenset[State] = frozenset(("firing", "recovering", "no-data", "error"))
"""The states in which a notification was or will be sent."""
_CALM: frozenset[State] = frozenset(("inactive", "resolved"))
NS = 1_000_000_000


@dataclass(slots=True)
class Mark:
    """When something began: in time, in steps, and in points where there are no steps."""

    time: int
    step: int | None
    points: int

    def reached(self, duration: Duration, time: int, step: int | None, points: int) -> bool:
        """Return whether a duration has passed; for steps, the first step counts too."""
        if not duration.steps:
            return time - self.time >= duration.seconds * NS
        passed = points - self.points if step is None or self.step is None else step - self.step
        return passed + 1 >= duration.steps


@dataclass(slots=True, eq=False)
class Machine:
    """One rule on one series. Points come in the order of their writer; an earlier step restarts a pending wait."""

    rule: Compiled
    state: State = "inactive"
    calm: bool = True
    """Whether it is inactive or resolved: nothing is pending, so a healthy value changes nothing."""
    low: float = -math.inf
    high: float = math.inf
    """A value between `low` and `high` is healthy; `low` is NaN where bounds alone do not decide."""
    points: int = 0
    time: int = 0
    """When it was last updated."""
    breached: Mark | None = None
    recovered: Mark | None = None
    value: float | None = None
    error: str = ""

    def __post_init__(self) -> None:
        condition = self.rule.condition
        bounded = condition.kind in ("above", "below", "outside") and not condition.strict
        self.low, self.high = (condition.low, condition.high) if bounded else (math.nan, math.nan)
        if condition.kind == "not finite":
            self.low, self.high = -sys.float_info.max, sys.float_info.max

    def take(self, time: int, step: int | None, value: float, started: int = 0) -> State | None:
        """Evaluate a value; return the new state, None if unchanged. The warm-up is counted from `started`."""
        self.points += 1
        self.time = time
        if self._is_warming_up(time, step, started):
            self.value = value
            return None
        try:
            breaching = self._breaches(value)
        except Exception as error:  # a function of the user's
            self.value = value
            self.error = f"{type(error).__name__}: {error}"[:200]
            return self._move("error")
        self.value = value
        return self.judge(time, step, breaching, recovered=not breaching and self._has_recovered(value))

    def judge(self, time: int, step: int | None, breaching: bool, *, recovered: bool) -> State | None:
        """Apply a verdict; between the threshold and the recovery value neither flag is set."""
        self.time = time
        state = "firing" if self.state in ("no-data", "error") and self.breached is not None else self.state
        if breaching:
            self.recovered = None
            return self._move(self._breaching(state, time, step))
        if state == "pending":
            self.breached = None
            return self._move("inactive")
        if state in ("firing", "recovering") and recovered:
            return self._move(self._recovering(time, step))
        if state == "error":
            return self._move("inactive")
        return self._move(state)

    def tick(self, now: int) -> State | None:
        """Advance the time: waits in seconds continue, and missing data is detected."""
        if self.state == "recovering" and self.recovered is not None and not self.rule.keep_firing.steps:
            if self.recovered.reached(self.rule.keep_firing, now, None, self.points):
                return self._resolve()
            return None
        if self.rule.condition.kind == "finding":
            keep = self.rule.keep_firing.seconds
            return self._resolve() if self.state == "firing" and keep and now - self.time > keep * NS else None
        waits = self.state in ("pending", "firing", "recovering")
        if waits and self.rule.condition.kind != "absent" and self._is_stale(now):
            if self.state == "pending":
                self.breached = None
                return self._move("inactive")
            return self._move("no-data")
        return None

    def end(self) -> State | None:
        """Handle the end of the run."""
        if self.state == "pending":
            self.breached = None
            return self._move("inactive")
        return self._resolve() if self.state in OPEN else None

    def restore(self, state: State, began: int, step: int | None, value: float | None, time: int) -> None:
        """Restore the state known before a restart."""
        self.state, self.calm = state, state in _CALM
        self.breached = None if self.calm else Mark(began, step, self.points)
        self.recovered = Mark(time, None, self.points) if state == "recovering" else None
        self.value, self.time = value, time

    def _is_warming_up(self, time: int, step: int | None, started: int) -> bool:
        wait = self.rule.warm_up
        if wait.steps:
            return (self.points if step is None else step) < wait.steps
        return bool(wait.seconds) and bool(started) and time - started < wait.seconds * NS

    def _breaches(self, value: float) -> bool:
        if value != value:
            return self.rule.rule.nan == "breach"
        condition = self.rule.condition
        if condition.kind == "changes":
            return self.value is not None and value != self.value
        return condition.breaches(value)

    def _has_recovered(self, value: float) -> bool:
        limit = self.rule.rule.recovery
        if limit is None or value != value:
            return True
        return value <= limit if self.rule.condition.kind == "above" else value >= limit

    def _breaching(self, state: State, time: int, step: int | None) -> State:
        begun = self.breached
        if state in _CALM or state == "error" or begun is None or _is_before(step, begun.step):
            begun = self.breached = Mark(time, step, self.points)
        if state in ("firing", "recovering"):
            return "firing"
        hold = self.rule.hold
        return "firing" if not hold or begun.reached(hold, time, step, self.points) else "pending"

    def _recovering(self, time: int, step: int | None) -> State:
        keep = self.rule.keep_firing
        if not keep:
            self.breached = None
            return "resolved"
        if self.recovered is None or _is_before(step, self.recovered.step):
            self.recovered = Mark(time, step, self.points)
        if self.recovered.reached(keep, time, step, self.points):
            self.breached = self.recovered = None
            return "resolved"
        return "recovering"

    def _resolve(self) -> State | None:
        self.breached = self.recovered = None
        return self._move("resolved")

    def _is_stale(self, now: int) -> bool:
        return now - self.time > self.rule.no_data * NS

    def _move(self, state: State) -> State | None:
        if state == self.state:
            return None
        self.state, self.calm = state, state in _CALM
        return state


def _is_before(step: int | None, begun: int | None) -> bool:
    return step is not None and begun is not None and step < begun
