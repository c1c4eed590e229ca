"""A reporter that aggregates metrics and writes them in Prometheus's text format."""

import bisect
import math
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from stepscope.model.errors import ConfigError
from stepscope.model.records import Histogram, Summary
from stepscope.training.bus.definitions import Definition, listed
from stepscope.training.bus.event_bus import BUS, Bus
from stepscope.training.bus.reporters import Reporter
from stepscope.training.inputs import reject
from stepscope.wire import openmetrics
from stepscope.wire.openmetrics import Family, FamilyType, Shown

MAX_SETS = 2000
"""The limit of tag sets per metric; values of further ones are counted as rejected."""
MAX_SAMPLES = 1000
"""The number of recent samples that the quantiles of a summary are computed from."""
QUANTILES = (0.5, 0.9, 0.99)

_TYPES: dict[str, FamilyType] = {
    "counter": "counter",
    "sum": "gauge",
    "last_value": "gauge",
    "summary": "summary",
    "distribution": "histogram",
}
_OWN_LABELS: dict[FamilyType, tuple[str, ...]] = {"summary": ("quantile",), "histogram": ("le",)}
_UNITS = {"ms": "milliseconds", "s": "seconds", "us": "microseconds", "ns": "nanoseconds", "By": "bytes"}
Labels = tuple[tuple[str, str], ...]


class Tally:
    """The state of one metric with one set of tags."""

    __slots__ = ("count", "counts", "last", "samples", "total")

    def __init__(self, of: Definition) -> None:
        self.count = 0
        self.total = 0.0
        self.last = 0.0
        self.counts = [0] * (len(of.buckets) + 1)
        self.samples: deque[float] = deque(maxlen=MAX_SAMPLES if of.kind == "summary" else 0)

    def add(self, of: Definition, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        self.last = value
        if math.isnan(value):  # as in Prometheus: in the last bucket only, and not in quantiles
            self.counts[-1] += 1
            return
        self.counts[bisect.bisect_left(of.buckets, value)] += 1
        self.samples.append(value)

    def shown(self, of: Definition) -> Shown:
        """Return the value to expose."""
        if of.kind == "counter":
            return self.count
        if of.kind == "sum":
            return self.total
        if of.kind == "last_value":
            return self.last
        if of.kind == "distribution":
            return Histogram(self.count, self.total, None, None, of.buckets, tuple(self.counts))
        ordered = sorted(self.samples)
        ranks = ((each, ordered[min(int(each * len(ordered)), len(ordered) - 1)]) for each in QUANTILES if ordered)
        return Summary(self.count, self.total, tuple(ranks))


class PrometheusReporter(Reporter):
    """Aggregates a bounded number of metrics and writes them as text for Prometheus to scrape.

    ConfigError for two metrics, or two tags of one metric, with the same name in Prometheus.
    """

    def __init__(self, definitions: Iterable[Definition], bus: Bus = BUS) -> None:
        kept = listed(definitions)
        _check(kept)
        self._lock = threading.Lock()
        self._tallies: dict[Definition, dict[Labels, Tally]] = {each: {} for each in kept}
        super().__init__(kept, self._keep, bus)

    def _keep(self, of: Definition, value: float, labels: dict[str, Any]) -> None:
        key = tuple(
            (openmetrics.label_name(name), _writable(openmetrics.label_value(labels[name]))) for name in sorted(labels)
        )
        with self._lock:
            tallies = self._tallies[of]
            if key not in tallies and len(tallies) >= MAX_SETS:
                reject("tags", labels)
                return
            tallies.setdefault(key, Tally(of)).add(of, float(value))

    def text(self) -> str:
        """Write all metrics that have a value."""
        with self._lock:
            families = [
                Family(
                    metric_name(of),
                    _TYPES[of.kind],
                    _writable(of.description or of.name),
                    [(dict(key), each.shown(of)) for key, each in found],
                )
                for of, tallies in self._tallies.items()
                if (found := tallies.items())
            ]
        return openmetrics.expose(families, "text").decode()


def metric_name(of: Definition) -> str:
    """The Prometheus name of a metric: with its unit, and `_total` for a counter."""
    name = openmetrics.metric_name(of.name)
    unit = _UNITS.get(of.unit, "")
    if unit and not name.endswith(unit):
        name = f"{name}_{unit}"
    return f"{name}_total" if of.kind == "counter" and not name.endswith("_total") else name


def _check(kept: list[Definition]) -> None:
    """ConfigError for two metrics with the same name, or two tags of one metric with the same label."""
    owners: dict[str, Definition] = {}
    for each in kept:
        kind = _TYPES[each.kind]
        for name in openmetrics.sample_names(metric_name(each), kind):
            other = owners.setdefault(name, each)
            if other is not each:
                both = f"{other.kind} {other.name!r} and {each.kind} {each.name!r}"
                raise ConfigError(
                    f"Prometheus: {both} would both be {name}; rename one with `event_name` and `measurement`"
                )
        labels = [*(openmetrics.label_name(tag) for tag in each.tags), *_OWN_LABELS.get(kind, ())]
        if len(set(labels)) < len(labels):
            listed_labels = ", ".join(labels)
            raise ConfigError(f"Prometheus: the labels of {each.name!r} would be {listed_labels}; rename a tag")


def _writable(text: str) -> str:
    """A string without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "replace").decode()
