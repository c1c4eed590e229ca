"""A reporter that keeps metrics for Prometheus and writes them in its text format."""

import bisect
import math
import re
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from stepscope.training.bus.definitions import Definition
from stepscope.training.bus.dispatch import BUS, Bus
from stepscope.training.bus.reporters import Reporter
from stepscope.training.counting import reject

MOST_SETS = 2000
"""Sets of tags a metric may have; values of further ones are counted as rejected."""
MOST_SAMPLES = 1000
"""Samples of a summary that its quantiles are made of: the last ones."""
QUANTILES = (0.5, 0.9, 0.99)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TYPES = {
    "counter": "counter",
    "sum": "gauge",
    "last_value": "gauge",
    "summary": "summary",
    "distribution": "histogram",
}
_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]")
_UNITS = {"ms": "milliseconds", "s": "seconds", "us": "microseconds", "ns": "nanoseconds", "By": "bytes"}
Labels = tuple[tuple[str, str], ...]


class Tally:
    """What is known of one metric with one set of tags."""

    __slots__ = ("count", "counts", "last", "samples", "total")

    def __init__(self, of: Definition) -> None:
        self.count = 0
        self.total = 0.0
        self.last = 0.0
        self.counts = [0] * (len(of.buckets) + 1)
        self.samples: deque[float] = deque(maxlen=MOST_SAMPLES if of.kind == "summary" else 0)

    def add(self, of: Definition, value: float) -> None:
        """Take a value."""
        self.count += 1
        self.total += value
        self.last = value
        if math.isnan(value):  # as Prometheus has it: no bucket but the last holds it, and no quantile is it
            self.counts[-1] += 1
            return
        self.counts[bisect.bisect_left(of.buckets, value)] += 1
        self.samples.append(value)


class PrometheusReporter(Reporter):
    """Keeps metrics, bounded in number, and writes them as a page that Prometheus reads."""

    def __init__(self, definitions: Iterable[Definition], bus: Bus = BUS) -> None:
        kept = list(definitions)
        self._lock = threading.Lock()
        self._tallies: dict[Definition, dict[Labels, Tally]] = {each: {} for each in kept}
        super().__init__(kept, self._keep, bus)

    def _keep(self, of: Definition, value: float, labels: dict[str, Any]) -> None:
        key = tuple((_word(name), str(labels[name])) for name in sorted(labels))
        with self._lock:
            tallies = self._tallies[of]
            if key not in tallies and len(tallies) >= MOST_SETS:
                reject("tags", labels)
                return
            tallies.setdefault(key, Tally(of)).add(of, float(value))

    def text(self) -> str:
        """Write all metrics that have a value."""
        lines: list[str] = []
        with self._lock:
            for of, tallies in self._tallies.items():
                if tallies:
                    name = metric_name(of)
                    lines += [f"# HELP {name} {_help(of)}", f"# TYPE {name} {_TYPES[of.kind]}"]
                    for labels, tally in tallies.items():
                        lines += _lines(of, name, labels, tally)
        return "".join(f"{line}\n" for line in lines)


def metric_name(of: Definition) -> str:
    """Prometheus's name of a metric: with its unit, and `_total` when it counts."""
    name = _word(of.name)
    unit = _UNITS.get(of.unit, "")
    if unit and not name.endswith(unit):
        name = f"{name}_{unit}"
    return f"{name}_total" if of.kind == "counter" and not name.endswith("_total") else name


def _lines(of: Definition, name: str, labels: Labels, tally: Tally) -> list[str]:
    if of.kind == "counter":
        return [_line(name, labels, tally.count)]
    if of.kind == "sum":
        return [_line(name, labels, tally.total)]
    if of.kind == "last_value":
        return [_line(name, labels, tally.last)]
    ends = [_line(f"{name}_sum", labels, tally.total), _line(f"{name}_count", labels, tally.count)]
    if of.kind == "summary":
        ordered = sorted(tally.samples)
        ranks = ((each, ordered[min(int(each * len(ordered)), len(ordered) - 1)]) for each in QUANTILES if ordered)
        return [*(_line(name, (*labels, ("quantile", str(each))), value) for each, value in ranks), *ends]
    below, found = 0, []
    for bound, count in zip((*of.buckets, math.inf), tally.counts, strict=True):
        below += count
        found.append(_line(f"{name}_bucket", (*labels, ("le", _number(bound))), below))
    return [*found, *ends]


def _line(name: str, labels: Labels, value: float) -> str:
    said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{said}}} {_number(value)}" if said else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _help(of: Definition) -> str:
    return (of.description or of.name).replace("\\", r"\\").replace("\n", r"\n")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _word(name: str) -> str:
    word = _NO_NAME.sub("_", name)
    return f"_{word}" if word[:1].isdigit() else word
