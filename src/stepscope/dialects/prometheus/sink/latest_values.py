"""The latest value of every series, bounded in number; stale series expire."""

import threading
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Histogram, Instrument, Metric, Summary, Value, mean_of
from stepscope.wire.openmetrics import Family, FamilyType, Shown, labels_of, metric_name, sample_names
from stepscope.wire.otlp.encode.metric_points import Temporality

_TAKEN = ("_total", "_count", "_sum", "_bucket")
"""Suffixes of the samples of counters, histograms and summaries, which a gauge must not have."""
TOO_MANY = "more series than `max_series`"
TWO_KINDS = "a name that is already a metric of another kind"
TWO_KEYS = "a name that another metric already has in Prometheus"
SETS = "a set: Prometheus has no such type"
STEP_KEY = "train.step"
SCOPE_LABEL = "otel_scope_name"
OWN_LABELS = frozenset(("project", "rank", "run", "le", "quantile", SCOPE_LABEL))
"""Labels that no attribute may have; an attribute of that name is called `exported_...`."""
SWEEP_SECONDS = 1.0
"""Seconds between two scans for stale series when there is no room for new ones: each visits all series."""
_SAMPLES = ("histogram", "distribution", "timing")
_STEP_METRIC = Instrument(cumulative=False)

Labels = tuple[tuple[str, str], ...]


class _Sample(NamedTuple):
    """A value to add to its series."""

    key: str
    type: FamilyType
    value: Shown
    help: str = ""


class _Latest(NamedTuple):
    key: str
    time: int
    value: Shown


class _Known(NamedTuple):
    type: FamilyType
    help: str
    series: dict[Labels, _Latest]


class Series:
    """Written by one thread and read by others. The value with the latest time wins, in whatever order records come."""

    def __init__(self, *, namespace: str, most: int, stale_seconds: float) -> None:
        self._namespace, self._most, self._stale = namespace, most, stale_seconds * 1e9
        self._families: dict[str, _Known] = {}
        self._owners: dict[str, str] = {}
        """The family that has a sample of each name."""
        self._count = 0
        self.clashes = 0
        """Count of attributes that had to share a label with another one, or take another name."""
        self._swept = float("-inf")
        """The time limit for stale series at the last scan."""
        self._temporality = Temporality("cumulative", most)
        self._lock = threading.Lock()

    def take(self, writer: Writer, record: Metric, now: float) -> list[str]:
        """Keep the values of a record unless it is stale; return the reason for each rejected value."""
        oldest = now * 1e9 - self._stale
        if record.time < oldest:
            return []
        identity = {"project": writer.project, "rank": str(writer.rank), "run": writer.run}
        refused = []
        if record.step is not None:
            axis = {"axis": record.axis} if record.axis else {}
            sample = _Sample(STEP_KEY, "gauge", record.step, "The last step that was recorded.")
            refused.append(self._keep(sample, record.time, _as_key({**identity, **axis}), oldest))
        instrument = record.instrument or _STEP_METRIC
        if instrument.type == "set":
            return [*filter(None, refused), SETS]
        carried, clashes = labels_of(record.attrs, OWN_LABELS)
        self.clashes += clashes
        scope = {SCOPE_LABEL: instrument.scope} if instrument.scope else {}
        labels = _as_key({**carried, **scope, **identity})
        added = self._temporality.convert(writer, _as_sums(record, instrument)) or record
        self._temporality.commit()
        for key, value in added.points():
            for sample in _samples(instrument, key, value):
                refused.append(self._keep(sample, record.time, labels, oldest))
        return [reason for reason in refused if reason]

    def families(self, now: float) -> list[Family]:
        """List the families with what is fresh."""
        with self._lock:
            self._sweep(now * 1e9 - self._stale)
            return [
                Family(name, known.type, known.help, [(dict(key), each.value) for key, each in known.series.items()])
                for name, known in sorted(self._families.items())
            ]

    def _keep(self, sample: _Sample, time: int, labels: Labels, oldest: float) -> str:
        """Keep a value if it is the latest of its series; return the reason when it is rejected."""
        name = metric_name(sample.key, self._namespace)
        if sample.type == "counter":
            name = name.removesuffix("_total")
        elif sample.type == "gauge" and name.endswith(_TAKEN):
            name += "_value"
        with self._lock:
            known = self._families.get(name)
            if any(self._owners.get(taken, name) != name for taken in sample_names(name, sample.type)):
                return TWO_KINDS
            if known is not None and known.type != sample.type:
                return TWO_KINDS
            before = known.series.get(labels) if known is not None else None
            if before is not None and before.key != sample.key:
                return TWO_KEYS
            if before is None and self._count >= self._most:
                if abs(oldest - self._swept) >= SWEEP_SECONDS * 1e9:
                    self._sweep(oldest)
                if self._count >= self._most:
                    return TOO_MANY
            if before is None or time >= before.time:
                self._count += before is None
                if known is None:
                    described = sample.help or f"The latest value of {sample.key}."
                    known = self._families[name] = _Known(sample.type, described, {})
                    self._owners.update(dict.fromkeys(sample_names(name, sample.type), name))
                known.series[labels] = _Latest(sample.key, time, sample.value)
        return ""

    def _sweep(self, oldest: float) -> None:
        """Remove stale series."""
        self._swept = oldest
        for name, known in list(self._families.items()):
            for key in [key for key, each in known.series.items() if each.time < oldest]:
                del known.series[key]
                self._count -= 1
            if not known.series:
                del self._families[name]
                for taken in sample_names(name, known.type):
                    self._owners.pop(taken, None)


def _as_key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _as_sums(record: Metric, instrument: Instrument) -> Metric:
    """Convert samples and sampled counts to values that can be added: a sample is a histogram of one value."""
    rate = record.attrs.get(names.ATTR_SAMPLE_RATE)
    weight = 1 / rate if isinstance(rate, float) and 0 < rate < 1 else 1.0
    if instrument.type in _SAMPLES:
        count = round(weight)
        values: dict[str, Value] = {
            key: Histogram(count, float(value) * count, None, None, (), (count,))
            for key, value in record.values.items()
            if isinstance(value, (int, float))
        }
        if values:
            return structs.replace(record, values=values, instrument=structs.replace(instrument, cumulative=False))
    elif instrument.type == "sum" and weight != 1.0:
        values = {
            key: value * weight if isinstance(value, (int, float)) else value for key, value in record.values.items()
        }
        return structs.replace(record, values=values)
    return record


def _samples(instrument: Instrument, key: str, value: Value) -> Iterator[_Sample]:
    """Return the Prometheus type of a value; samples, and histograms without bounds, are plain summaries."""
    text = instrument.description
    if isinstance(value, (int, float)):
        is_counter = instrument.type == "sum" and instrument.monotonic
        yield _Sample(key, "counter" if is_counter else "gauge", value, text)
    elif isinstance(value, Summary):
        yield _Sample(key, "summary", value, text)
    elif instrument.type == "gauge":
        # Logged at a step, it tells of that step alone: its counts may fall, and `_count` is for those that grow.
        gauges = (("_values", value.count), ("_mean", mean_of(value)), ("_min", value.low), ("_max", value.high))
        yield from (_Sample(key + suffix, "gauge", number, text) for suffix, number in gauges if number is not None)
    else:
        has_buckets = isinstance(value, Histogram) and bool(value.bounds)
        yield _Sample(key, "histogram" if has_buckets else "summary", value, text)
