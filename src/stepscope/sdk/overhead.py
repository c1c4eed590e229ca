"""What Stepscope costs the process it runs in, by part, and whether there is room for optional work."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

GRACE_SECONDS = 0.25
"""Optional work that is always done, so that a short run is complete; also the most that can be saved up."""
MIN_SHARE = 0.1
"""The part of the budget that is left to optional work when calls and flusher take all of it."""
SAMPLES = 15
SPAN_TIMES = 3.0
"""The cost of a whole span, as a multiple of opening it, which is what is timed."""
REQUIRED = ("calls", "flusher", "copies")
CALLS = ("log", "step", "span")


class Overhead:
    """Seconds by part. Approximate: parts are added by several threads without a lock, and calls are sampled.

    Optional work spends a credit that grows by `budget` seconds a second, and more slowly the more the calls, the
    flusher and copies of logged arrays take, which are not optional.
    """

    def __init__(self, budget: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Start from zero; called in a child after a fork."""
        self._seconds: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._since = self._at = self._clock()
        self._credit = GRACE_SECONDS if self.budget > 0 else 0.0
        self._growth = self.budget

    def add(self, part: str, seconds: float, *, optional: bool = True) -> None:
        """Add the seconds that some work took; what the program asked for is not optional."""
        self._seconds[part] = self._seconds.get(part, 0.0) + seconds
        if optional:
            self._credit -= seconds

    def seconds(self, part: str) -> float:
        """Return what a part took so far."""
        return self._seconds.get(part, 0.0)

    def exceeds(self, part: str, share: float) -> bool:
        """Return whether a part takes more than the budget, and took more than a moment so far."""
        return share > self.budget and self.seconds(part) > GRACE_SECONDS

    def affords(self) -> bool:
        """Return whether optional work may be done now."""
        now = self._clock()
        self._credit = min(self._credit + self._growth * (now - self._at), GRACE_SECONDS)
        self._at = now
        return self._credit > 0

    def shares(self, *, calls: float, flusher: float) -> dict[str, float]:
        """Return the share of the time since the last call that each part took, and all together.

        `calls` and `flusher` are seconds since the start; of `flusher`, the diagnosis is reported apart.
        """
        seconds = dict(self._seconds)
        seconds["calls"] = calls
        seconds["flusher"] = max(flusher - seconds.get("diagnosis", 0.0), 0.0)
        now = self._clock()
        lasted = max(now - self._since, 1e-3)
        found = {part: max(spent - self._reported.get(part, 0.0), 0.0) / lasted for part, spent in seconds.items()}
        self._reported, self._since = seconds, now
        required = sum(found.get(part, 0.0) for part in REQUIRED)
        self._growth = max(self.budget - required, self.budget * MIN_SHARE)
        return {**found, "total": sum(found.values())}


class CallTimes:
    """Times one call of `log`, `step` and `span` each second: the others run the plain methods.

    For that call an attribute of the run shadows the method. It removes itself when it is called.
    """

    def __init__(self, run: Any, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._run, self._clock = run, clock
        self._taken: dict[str, deque[int]] = {name: deque(maxlen=SAMPLES) for name in CALLS}
        self._armed: dict[str, Callable[..., Any]] = {}
        self._seconds = 0.0
        self._counted: dict[str, int] = {}

    def arm(self) -> None:
        """Time the next call of each method."""
        for name in CALLS:
            if name not in vars(self._run):
                self._armed[name] = vars(self._run)[name] = self._timed(name)

    def disarm(self) -> None:
        """Time no further calls."""
        for name in CALLS:
            if vars(self._run).get(name) is self._armed.pop(name, self):
                vars(self._run).pop(name, None)

    def _timed(self, name: str) -> Callable[..., Any]:
        run, clock, taken = self._run, self._clock, self._taken[name]
        method = getattr(type(run), name)

        def once(*args: Any, **kwargs: Any) -> Any:
            if vars(run).get(name) is not once:  # the program kept this function, or put its own in its place
                return method(run, *args, **kwargs)
            vars(run).pop(name, None)
            began = clock()
            found = method(run, *args, **kwargs)
            taken.append(clock() - began)
            return found

        return once

    def seconds(self, written: Mapping[str, int]) -> float:
        """Return what all calls took so far, from the number of records of each kind and the median of the samples."""
        log, opening = _median(self._taken["log"]), _median([*self._taken["step"], *self._taken["span"]])
        for kind, cost in (("metric", log), ("span", opening * SPAN_TIMES)):
            count = written.get(kind, 0)
            self._seconds += max(count - self._counted.get(kind, 0), 0) * cost / 1e9
            self._counted[kind] = count
        return self._seconds


def _median(values: Any) -> float:
    ordered = sorted(values)
    return float(ordered[(len(ordered) - 1) // 2]) if ordered else 0.0
