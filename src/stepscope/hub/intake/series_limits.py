"""Limits on the series of a run and of all runs: random keys or attributes must not fill the memory or the store."""

import threading
import time
from collections.abc import Callable, Iterable

from stepscope.hub.limits import Limits
from stepscope.model.otel_names import ATTR_EXEMPLARS
from stepscope.model.records import Metric

MAX_RUNS = 5_000
"""Runs whose series are remembered; the oldest are forgotten."""
MAX_IN_ALL = 1_000_000
IDLE_SECONDS = 600.0
"""When there are too many in all, runs without records for this long are forgotten."""


class RunSeries:
    """The metric keys of a run, and hashes of its series: keys with attributes, instrument or axis."""

    __slots__ = ("keys", "series", "used")

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.series: set[int] = set()
        self.used = 0.0

    def __len__(self) -> int:
        return len(self.keys) + len(self.series)

    def has_all(self, metrics: Iterable[Metric]) -> bool:
        """Return whether the series of metrics with known keys are known."""
        others = [metric for metric in metrics if metric.attrs or metric.instrument or metric.axis or metric.category]
        return not others or self.series.issuperset([each for metric in others for each in _series_of(metric)])


class SeriesLimits:
    """Counts the series of each run. Safe to use from any thread."""

    def __init__(self, limits: Limits, most_in_all: int = MAX_IN_ALL, clock: Callable[[], float] = time.monotonic):
        self._limits = limits
        self._most_in_all = most_in_all
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, RunSeries] = {}
        self._count = 0

    def of(self, run: str) -> RunSeries:
        """Return the series of a run that sends records now."""
        found = self._runs.get(run)
        if found is None:
            with self._lock:
                while len(self._runs) >= MAX_RUNS:
                    self._forget(next(iter(self._runs)))
                found = self._runs.setdefault(run, RunSeries())
        found.used = self._clock()
        return found

    def admits(self, run: RunSeries, metric: Metric) -> bool:
        """Count the series of a metric; False when its run or all runs have too many."""
        keys = metric.values.keys() - run.keys
        series = set(_series_of(metric)) - run.series
        if not keys and not series:
            return True
        with self._lock:
            if len(run.keys) + len(keys) > self._limits.keys or len(run.series) + len(series) > self._limits.series:
                return False
            fresh = len(keys) + len(series)
            if self._count + fresh > self._most_in_all and not self._make_room(fresh):
                return False
            run.keys |= keys
            run.series |= series
            self._count += fresh
        return True

    def _make_room(self, wanted: int) -> bool:
        since = self._clock() - IDLE_SECONDS
        for name in [name for name, run in self._runs.items() if run.used < since]:
            self._forget(name)
        return self._count + wanted <= self._most_in_all

    def _forget(self, name: str) -> None:
        self._count -= len(self._runs.pop(name))


def _series_of(metric: Metric) -> list[int]:
    """Return hashes of what identifies the series of a metric besides its keys; none when that is nothing.

    Attributes in another order count as another series: a client sends them in one order, and sorting costs more.
    """
    attrs, made = metric.attrs, metric.instrument
    if not (attrs or made or metric.axis or metric.category):
        return []
    if ATTR_EXEMPLARS in attrs:
        attrs = {name: value for name, value in attrs.items() if name != ATTR_EXEMPLARS}
    kind = (made.type, made.unit, made.cumulative, made.monotonic, made.scope) if made is not None else ()
    try:
        shared = hash((*attrs.items(), kind, metric.axis, metric.category))
    except TypeError:  # lists and dicts
        shared = hash((str(attrs), kind, metric.axis, metric.category))
    return [hash((shared, key)) for key in metric.values]
