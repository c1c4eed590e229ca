"""Many batches as the rows of one commit; records that can never be stored are identified."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import cast

from msgspec.structs import replace

from stepscope.hub.store.columns import Block
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.catalog import Catalog, Source
from stepscope.hub.store.write.histogram_rows import Distributions, Exemplars
from stepscope.hub.store.write.ledger import COUNTS
from stepscope.hub.store.write.metric_rows import MetricRows, Points, as_rows
from stepscope.hub.store.write.span_log_rows import Lines, Spans, Traces
from stepscope.model.errors import Reject
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Batch
from stepscope.model.records import (
    MAX_EARLY,
    Alert,
    Event,
    Log,
    Metric,
    Record,
    Span,
    began_at,
    has_steps_in_range,
    recorded_at,
)

UNFIT = (TypeError, ValueError, OverflowError, RecursionError, AttributeError)
"""What making a column raises for an invalid value."""
_NUMBERS = {int, float, bool}
_METRICS: set[type] = {Metric}
_STEPPED: set[type] = {Metric, Span}
_COUNTED: dict[type, str] = {Log: "logs", Event: "events", Alert: "alerts"}


@dataclass(slots=True)
class Gain:
    """What a batch added."""

    seen: int = 0
    began: int = 0
    """The time of its first record; 0 when none has a time."""
    step: int = NO_STEP
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


class Group:
    """The rows of one commit. With `careful`, metrics are checked for values that are not numbers."""

    def __init__(self, catalog: Catalog, *, careful: bool = False) -> None:
        self._careful = careful
        self._catalog = catalog
        self._points: Points | None = None
        self._distributions: Distributions | None = None
        self._exemplars: Exemplars | None = None
        self._spans = Spans()
        self._lines = Lines()
        self._traces = Traces()

    def add(self, source: Source, records: Sequence[Record]) -> Gain:
        """Add the records of a batch; OverflowError for a step that cannot be stored."""
        if not self._careful and (rows := as_rows(records)) is not None:
            return self._add_rows(source, rows)
        if not has_steps_in_range(records):
            raise OverflowError("a step is out of range")
        kinds = set(map(type, records))
        only = kinds <= _METRICS
        gain = Gain(began=_began(records, kinds, source.writer.wall_ns))
        metrics = cast(list[Metric], list(records) if only else [each for each in records if type(each) is Metric])
        if metrics:
            self._add_metrics(source, metrics, gain)
        if len(metrics) < len(records):
            self._add_others(source, records, gain, len(records) - len(metrics))
        return gain

    def _add_rows(self, source: Source, rows: MetricRows) -> Gain:
        points = self._points = Points(self._catalog) if self._points is None else self._points
        points.extend_rows(source, rows)
        timed = rows.times[rows.times > 0]
        gain = Gain(int(rows.times.max()), int(timed.min()) if len(timed) else 0)
        gain.step = NO_STEP if rows.steps is None else int(rows.steps.max())
        gain.counts["points"] = len(rows.values)
        return gain

    def _add_metrics(self, source: Source, metrics: list[Metric], gain: Gain) -> None:
        points = self._points = Points(self._catalog) if self._points is None else self._points
        since, before = points.records(), self._count()
        plain = not [True for metric in metrics if metric.attrs or metric.instrument is not None]
        if self._careful or not plain:
            gain.seen = max([metric.time for metric in metrics])
            if not _are_numbers(metrics):
                metrics = [part for metric in metrics if (part := self._numbers(source, metric)) is not None]
        points.extend(source, metrics, plain=plain)
        seen, gain.step = points.reach(since)
        gain.seen = max(gain.seen, seen)
        gain.counts["points"] = self._count() - before

    def _count(self) -> int:
        """How many points and distributions there are."""
        return sum(len(each) for each in (self._points, self._distributions) if each is not None)

    def _numbers(self, source: Source, metric: Metric) -> Metric | None:
        """Remove the distributions and exemplars of a record and return the rest, if any."""
        if ATTR_EXEMPLARS in metric.attrs:
            self._exemplars = Exemplars(self._catalog) if self._exemplars is None else self._exemplars
            self._exemplars.add(source, metric)
        plain = {key: value for key, value in metric.values.items() if isinstance(value, (int, float))}
        if len(plain) == len(metric.values):
            return metric
        self._distributions = Distributions(self._catalog) if self._distributions is None else self._distributions
        self._distributions.add(source, metric)
        return replace(metric, values=plain) if plain else None

    def _add_others(self, source: Source, records: Sequence[Record], gain: Gain, count: int) -> None:
        spans = [record for record in records if type(record) is Span]
        lines = [record for record in records if type(record) is Log or type(record) is Event or type(record) is Alert]
        if len(spans) + len(lines) < count:
            raise TypeError("an item is not a record")
        self._spans.extend(source, spans)
        gain.counts["spans"] = len(spans)
        if lines:
            self._lines.extend(source, lines)
            for line in lines:
                gain.counts[_COUNTED[type(line)]] += 1
        others = [*spans, *lines]
        self._traces.extend(source.run_numbers.number, others)
        gain.seen = max(
            [gain.seen, *[recorded_at(line) for line in lines], *[span.time + (span.duration or 0) for span in spans]]
        )
        gain.step = max([gain.step, *[record.step for record in others if record.step is not None]])

    def facts(self, commit: int) -> dict[str, Block]:
        """Make the rows, metrics before their totals; one of `UNFIT` when a record is invalid."""
        parts = (self._points, self._distributions, self._exemplars, self._spans, self._lines)
        made = [part.blocks(commit) for part in parts if part is not None]
        return {table: block for each in made for table, block in each.items()}

    def traces(self) -> dict[str, Block]:
        """Make the rows that locate traces."""
        return self._traces.blocks()


def _began(records: Sequence[Record], kinds: set[type], started: int) -> int:
    """The time at which the first record began; 0 when none has a time."""
    times = [record.time for record in records]
    if not (kinds <= _METRICS or (kinds <= _STEPPED and min(times) >= started - MAX_EARLY)):
        times = [began_at(record, started) for record in records]
    return min([time for time in times if time > 0], default=0)


def _are_numbers(metrics: Sequence[Metric]) -> bool:
    """Return whether metrics hold neither distributions nor exemplars; a fast check."""
    types = set(map(type, chain.from_iterable([metric.values.values() for metric in metrics])))
    return types <= _NUMBERS and not [True for metric in metrics if ATTR_EXEMPLARS in metric.attrs]


Part = tuple[Source, Sequence[Record]]


@dataclass(slots=True)
class Built:
    """The rows of a commit, what each batch added, and which of its records were rejected."""

    facts: dict[str, Block]
    traces: dict[str, Block]
    gains: list[Gain]
    refusals: dict[int, Reject]


def build(catalog: Catalog, parts: Sequence[Part], commit: int) -> Built:
    """Turn batches into rows, without the invalid records."""
    try:
        return _build(catalog, parts, commit, {})
    except UNFIT:
        pass
    refusals: dict[int, Reject] = {}
    good: list[Part] = []
    for index, (source, records) in enumerate(parts):
        bad = _unfit(catalog, source, records)
        if bad:
            reasons = sorted(set(bad.values()))
            refusals[index] = Reject("; ".join(reasons[:3]), tuple(bad))
        good.append((source, [record for at, record in enumerate(records) if at not in bad]))
    built = _build(catalog, good, commit, refusals, careful=True)
    for index, refusal in refusals.items():
        built.gains[index].counts["rejected"] = len(refusal.where)
    return built


def _build(
    catalog: Catalog, parts: Sequence[Part], commit: int, refusals: dict[int, Reject], *, careful: bool = False
) -> Built:
    group = Group(catalog, careful=careful)
    gains = [group.add(source, records) for source, records in parts]
    return Built(group.facts(commit), group.traces(), gains, refusals)


def _unfit(catalog: Catalog, source: Source, records: Sequence[Record]) -> dict[int, str]:
    """Find the invalid records, and why they are."""
    if _reason(catalog, source, records) is None:
        return {}
    reasons = ((index, _reason(catalog, source, [record])) for index, record in enumerate(records))
    return {index: reason for index, reason in reasons if reason is not None}


def _reason(catalog: Catalog, source: Source, records: Sequence[Record]) -> str | None:
    group = Group(catalog, careful=True)
    try:
        group.add(source, records)
        group.facts(0)
        group.traces()
    except UNFIT as error:
        return str(error) or type(error).__name__
    return None


MAX_ROWS = 1_000_000
"""The most rows of one commit; a larger group is split."""


def portions(batches: Sequence[Batch]) -> Iterable[Sequence[Batch]]:
    """Split a group that is too large for one commit."""
    start = rows = 0
    for index, batch in enumerate(batches):
        size = _rows(batch)
        if rows and rows + size > MAX_ROWS:
            yield batches[start:index]
            start, rows = index, 0
        rows += size
    if start < len(batches):
        yield batches[start:]


def _rows(batch: Batch) -> int:
    """Estimate the rows of a batch by its first record; counting all of them costs as much as storing some."""
    if (rows := as_rows(batch.records)) is not None:
        return len(rows.values)
    first = next(iter(batch.records), None)
    return len(batch.records) * (len(first.values) if isinstance(first, Metric) else 1)
