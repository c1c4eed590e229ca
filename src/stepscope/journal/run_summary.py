"""Summarise a run from its batches: its writers, metrics, spans, events, alerts and exceptions."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from stepscope.journal.key_summary import KeySummary, SpanSummary, Stamps, new_key
from stepscope.journal.run_edits import Edits, edit_of
from stepscope.journal.segments import RunReader, find_writer
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.model.run_description import Description, Edit, apply, read_tags
from stepscope.model.states import WriterFacts, ending_of

SELF = "stepscope"
"""The category of Stepscope's own counters."""
_STEPPED = frozenset((Metric, Span))
_SAID = ("notes", "group", "job_type")
RECENT = 50
"""Events, alerts and exceptions that are kept in full; all are counted."""


def _recent_events() -> deque[Event]:
    return deque(maxlen=RECENT)


def _recent_alerts() -> deque[Alert]:
    return deque(maxlen=RECENT)


class Stepped(Protocol):
    """A record with a step, or the part of one that has it."""

    @property
    def axis(self) -> str | None:
        """The name of the step."""

    @property
    def step(self) -> int | None:
        """The step, if it has one."""


@dataclass(slots=True)
class WriterSummary:
    """One process of the run."""

    writer: Writer
    records: int = 0
    first: int | None = None
    last: int | None = None
    steps: dict[str | None, int] = field(default_factory=dict)
    """The furthest step on each axis."""
    said: str | None = None
    """The reported end; None when there is none."""
    said_at: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    """Its own counters as last written."""
    damaged: int = 0
    unreadable: int = 0
    clock_shift: int = 0
    """How far its clock was set since the start, in ns."""

    def note(self, records: Sequence[Record]) -> None:
        """Count records, and note their times and steps."""
        self.records += len(records)
        times = [record.time for record in records]
        self.first = min(times) if self.first is None else min(self.first, min(times))
        ends = [record.time + (record.duration or 0) for record in records if isinstance(record, Span)]
        self.last = max([*times, *ends, self.last or 0])
        self.reach_all([record for record in records if type(record) in _STEPPED])

    def reach_all(self, records: Sequence["Stepped"]) -> None:
        """Note the steps of records, those that have one."""
        axes = {record.axis for record in records}
        if len(axes) == 1:
            steps = [record.step for record in records if record.step is not None]
            if steps:
                self.reach(axes.pop(), max(steps))
            return
        for record in records:
            if record.step is not None:
                self.reach(record.axis, record.step)

    def reach(self, axis: str | None, step: int) -> None:
        """Note a step on an axis; a lower one changes nothing."""
        self.steps[axis] = max(step, self.steps.get(axis, step))

    def end(self, event: Event) -> None:
        """Note the reported end and its time, which is never before that of earlier records."""
        self.said, self.said_at = str(event.attrs.get("status", "finished")), max(event.time, self.last or 0)

    def set_clock(self, event: Event) -> None:
        """Note that the clock was set: earlier times are converted to the present clock."""
        seconds = event.attrs.get("seconds")
        if isinstance(seconds, (int, float)) and math.isfinite(seconds):
            self.clock_shift += int(seconds * 1e9)
            self.last = event.time

    def facts(self, changed: float, alive: bool | None) -> WriterFacts:
        """Return the facts that determine its state, given when its journal changed and whether its process exists."""
        said = None if self.said is None else ending_of(self.said)
        who = self.writer
        return WriterFacts(
            who.attempt, (self.last or 0) / 1e9, said, self.said_at / 1e9, main=who.main, rank=who.rank,
            touched=changed, alive=alive,
        )  # fmt: skip

    @property
    def started(self) -> int | None:
        """When it started, in ns of its present clock."""
        if self.clock_shift and self.writer.wall_ns:
            return min(self.writer.wall_ns + self.clock_shift, self.last or self.writer.wall_ns)
        return min((moment for moment in (self.writer.wall_ns, self.first) if moment), default=None)

    @property
    def last_step(self) -> int | None:
        """The furthest step, on the plain axis where there is one, else on the newest axis."""
        for axis in (None, "step"):
            if axis in self.steps:
                return self.steps[axis]
        return next(reversed(self.steps.values()), None)


@dataclass(slots=True)
class RunSummary:
    """The summary of a run; `take` adds batches, those of one writer in order."""

    run: str = ""
    project: str = ""
    name: str | None = None
    notes: str = ""
    tags: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    job_type: str = ""
    edits: list[Edit] = field(default_factory=list)
    """Edits recorded by its own processes, and later edits found by `read_run`."""
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    writers: dict[str, WriterSummary] = field(default_factory=dict)
    keys: dict[str, KeySummary] = field(default_factory=dict)
    spans: dict[str, SpanSummary] = field(default_factory=dict)
    open_spans: dict[bytes, tuple[int, Span]] = field(default_factory=dict)
    """Spans that have not ended, by span id, each with the rank it is on."""
    logs: Counter[str] = field(default_factory=Counter)
    """Log lines by severity word."""
    events: Counter[str] = field(default_factory=Counter)
    """Events by name."""
    alerts: Counter[str] = field(default_factory=Counter)
    """Alerts by name."""
    recent_events: deque[Event] = field(default_factory=_recent_events)
    recent_alerts: deque[Alert] = field(default_factory=_recent_alerts)
    exceptions: deque[Event] = field(default_factory=_recent_events)
    _known: dict[str | None, dict[str, KeySummary]] = field(default_factory=dict, repr=False)
    """The keys by category, so that the full name of a known key is not built again."""

    def take(self, batch: Batch) -> None:
        """Add a batch."""
        if not batch.records:
            self._writer(batch.writer)
            return
        writer, records, rank = self._writer(batch.writer), batch.records, batch.writer.rank
        writer.note(records)
        metrics = [record for record in records if type(record) is Metric]
        if metrics:
            self._take_metrics(metrics, writer, rank)
        if len(metrics) < len(records):
            for record in records:
                if type(record) is not Metric:
                    self._take_record(record, writer)

    def _writer(self, writer: Writer) -> WriterSummary:
        found = self.writers.get(writer.id)
        if found is not None:
            return found
        newest = all(writer.attempt >= other.writer.attempt for other in self.writers.values())
        self.run = self.run or writer.run
        if newest:
            self.project = writer.project or self.project
            self.name = writer.name or self.name
        self.writers[writer.id] = WriterSummary(writer)
        return self.writers[writer.id]

    def _take_record(self, record: Record, writer: WriterSummary) -> None:
        if isinstance(record, Span):
            self._take_span(writer.writer.rank, record)
        elif isinstance(record, Log):
            self.logs[names.severity_word(record.severity)] += 1
        elif isinstance(record, Event):
            self._take_event(record, writer)
        elif isinstance(record, Alert):
            self.alerts[record.name] += 1
            self.recent_alerts.append(record)

    def _take_metrics(self, metrics: list[Metric], writer: WriterSummary, rank: int) -> None:
        """Add the metrics of a batch, grouped by their keys."""
        shapes: list[tuple[str | None, ...]] = [(metric.category, *metric.values) for metric in metrics]
        if shapes.count(shapes[0]) == len(shapes):
            self._take_alike(metrics, writer, rank)
            return
        alike: dict[tuple[str | None, ...], list[Metric]] = {}
        for shape, metric in zip(shapes, metrics, strict=True):
            alike.setdefault(shape, []).append(metric)
        known = {(category, key) for category, *keys in alike for key in keys}
        if len(known) == sum(len(shape) - 1 for shape in alike):
            groups = list(alike.values())
        else:  # a key is in several, and its points must keep their order
            pairs = groupby(zip(shapes, metrics, strict=True), itemgetter(0))
            groups = [[metric for _, metric in pair] for _, pair in pairs]
        for group in groups:
            self._take_alike(group, writer, rank)

    def _take_alike(self, metrics: list[Metric], writer: WriterSummary, rank: int) -> None:
        """Add metrics of one category with the same keys in the same order."""
        category = metrics[0].category
        if category == SELF:
            for metric in metrics:
                writer.counters.update(metric.values)
            return
        known = self._known.setdefault(category, {})
        stamps = Stamps([metric.step for metric in metrics], [metric.time for metric in metrics])
        columns = zip(*[metric.values.values() for metric in metrics], strict=True)
        for key, values in zip(metrics[0].values, columns, strict=True):
            if key not in known:
                name = key if category is None else f"{category}/{key}"
                known[key] = self.keys.setdefault(name, new_key(name, rank))
            known[key].extend(values, stamps, rank)

    def _take_span(self, rank: int, span: Span) -> None:
        if span.duration is None:
            self.open_spans[span.span_id] = rank, span
            return
        self.open_spans.pop(span.span_id, None)
        known = self.spans.get(span.name)
        if known is None:
            known = self.spans[span.name] = SpanSummary(span.name)
        known.add(span)

    def _take_event(self, event: Event, writer: WriterSummary) -> None:
        self.events[event.name] += 1
        if event.name == names.EVENT_STARTED:
            self._take_start(event)
        elif event.name == names.EVENT_EDITED:
            edit = edit_of(writer.writer, event, len(self.edits))
            self.edits += [edit] if edit is not None else []
        elif event.name == names.EVENT_CLOCK:
            writer.set_clock(event)
        elif event.name == names.EVENT_FINISHED:
            writer.end(event)
        elif event.name == names.EVENT_EXCEPTION:
            self.exceptions.append(event)
        else:
            self.recent_events.append(event)

    def _take_start(self, event: Event) -> None:
        config = event.attrs.get("config")
        if isinstance(config, dict):
            self.config |= config
        said = {key: event.attrs[key] for key in _SAID if isinstance(event.attrs.get(key), str)}
        self.notes, self.group = said.get("notes", self.notes), said.get("group", self.group)
        self.job_type = said.get("job_type", self.job_type)
        self.tags |= read_tags(event.attrs.get("tags"))
        ours = {"config", "tags", *said}
        self.environment |= {key: value for key, value in event.attrs.items() if key not in ours}

    @property
    def described(self) -> Description:
        """Name, notes and tags with all edits applied."""
        return apply(Description(self.name, self.notes, self.tags), self.edits)

    @property
    def attempts(self) -> list[int]:
        """The attempts there were, in order."""
        return sorted({each.writer.attempt for each in self.writers.values()})

    @property
    def ranks(self) -> list[int]:
        """The ranks that wrote, in order."""
        return sorted({each.writer.rank for each in self.writers.values()})

    @property
    def newest(self) -> list[WriterSummary]:
        """The writers of the newest attempt that determine the state of the run."""
        return newest_attempt(self.writers.values())

    @property
    def last_step(self) -> int | None:
        """The furthest step any rank of the newest attempt has reached."""
        steps = [step for each in self.newest if (step := each.last_step) is not None]
        return max(steps, default=None)

    @property
    def started(self) -> int | None:
        """When the first writer began, in ns."""
        return min((each.started for each in self.writers.values() if each.started), default=None)

    @property
    def ended(self) -> int | None:
        """The time of the last record, in ns."""
        return max((each.last for each in self.writers.values() if each.last), default=None)

    @property
    def counters(self) -> dict[str, float]:
        """Stepscope's own counters, added up over the writers."""
        total: Counter[str] = Counter()
        for each in self.writers.values():
            numbers = {key: value for key, value in each.counters.items() if isinstance(value, (int, float))}
            total.update(numbers)
        return dict(total)


def newest_attempt(writers: Iterable[WriterSummary]) -> list[WriterSummary]:
    """The main writers of the newest attempt; where only forked ones are left, those."""
    everyone = list(writers)
    newest = max((each.writer.attempt for each in everyone), default=0)
    present = [each for each in everyone if each.writer.attempt == newest]
    return [each for each in present if each.writer.main] or present


def read_run(home: Path, run: str) -> RunSummary:
    """Summarise a run from its journals, attempt by attempt, rank by rank."""
    summary = RunSummary(run=run)
    reader = RunReader(home, run)
    for batch in reader.read():
        summary.take(batch)
    for name, tail in reader.tails.items():
        writer = summary.writers.get(name)
        if writer is None:
            writer = summary.writers[name] = WriterSummary(tail.writer or find_writer(tail.folder))
        writer.damaged, writer.unreadable = tail.damaged, tail.unreadable
    summary.edits += Edits(home).of(run)
    return summary
