"""Limits on the number of runs: a client that creates runs in a loop must not fill the memory or the store."""

import threading
import time
from collections.abc import Callable

from stepscope.hub.limits import Limits
from stepscope.hub.threads import Periodic

TOO_MANY_RUNS = "too many runs: the limit on new runs per day and receiver, or on runs in the store, is reached"
DAY_SECONDS = 24 * 3600.0
_COUNT_SECONDS = 60.0
_MAX_SEEN = 200_000


class RunLimits:
    """Counts the runs of each receiver. Safe to use from any thread.

    A token bucket per receiver allows `limits.runs` new runs at once and as many again per day, so that clients of one
    dialect do not use up the allowance of others. A run is new when this process has not seen it: looking it up would
    make requests wait for the store. It is looked up only while the store is at its limit of runs.
    """

    def __init__(
        self,
        limits: Limits,
        count: Callable[[], int] = lambda: 0,
        look_up: Callable[[str], str | None] = lambda run: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._count, self._look_up, self._clock = limits, count, look_up, clock
        self._lock = threading.Lock()
        self._seen: dict[str, None] = {}
        self._left: dict[str, tuple[float, float]] = {}
        """The number of runs that each receiver may still start, and as of when."""
        self._stored = 0
        self._is_counted = False
        self.counting = Periodic(self.count, first=1.0, every=_COUNT_SECONDS)
        """The thread that counts the runs in the store; start and stop it."""

    def count(self) -> None:
        """Count the runs in the store, unless no new one was seen since the last count."""
        if not self._is_counted:
            self._stored, self._is_counted = self._count(), True

    def admits(self, receiver: str, run: str) -> bool:
        """Return whether records of a run are accepted; a new run is counted."""
        if run in self._seen:
            return True
        if self._stored >= self._limits.all_runs and self._look_up(run) is None:
            self._is_counted = False  # some may have been deleted
            return False
        with self._lock:
            now, most = self._clock(), float(self._limits.runs)
            left, before = self._left.get(receiver, (most, now))
            left = min(left + (now - before) * most / DAY_SECONDS, most)
            is_admitted = left >= 1.0
            self._left[receiver] = (left - is_admitted, now)
            if is_admitted:
                if len(self._seen) >= _MAX_SEEN:
                    del self._seen[next(iter(self._seen))]
                self._seen[run] = None
                self._is_counted = False
        return is_admitted
