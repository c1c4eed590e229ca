"""Summarise a run from its batches: its writers, metrics, spans, events, alerts and exceptions."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

from stepscope.journal import layout
from stepscope.journal.key_summary import KeySummary, SpanSummary, Stamps, new_key
from stepscope.journal.run_edits import Edits, edit_of
from stepscope.journal.segments import RunReader, find_writer
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import MAX_EARLY, Alert, Event, Log, Metric, Record, Span, began_at, recorded_at
from stepscope.model.run_description import Description, Edit, apply, read_tags
from stepscope.model.states import WriterFacts, ending_of, run_state
from stepscope.wire.frames import LogStart, MetricStart, SpanStart

SELF = "stepscope"
"""The category of Stepscope's own counters."""
_SPANS = (Span, SpanStart)
_STEPPED = frozenset((Metric, MetricStart, *_SPANS))
_METRICS_AND_STARTS = frozenset((Metric, MetricStart, SpanStart, LogStart))
_DESCRIPTION = ("notes", "group", "job_type", "parent")
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
    reported_end: str | None = None
    """The reported end; None when there is none."""
    reported_at: int = 0
    counters: dict[str, Any] = field(default_factory=dict)
    """Its own counters as last written."""
    damaged: int = 0
    unreadable: int = 0
    clock_shift: int = 0
    """How far its clock was set since the start, in ns."""

    def note(self, records: Sequence[Any], kinds: set[type]) -> None:
        """Count records of the given types, and note their times and steps."""
        self.records += len(records)
        times = [record.time for record in records] if kinds <= _STEPPED else [recorded_at(each) for each in records]
        if min(times) < self.writer.wall_ns - MAX_EARLY:
            times = [began_at(record, self.writer.wall_ns) for record in records]
        self.first = min(times) if self.first is None else min(self.first, min(times))
        ends = [] if kinds.isdisjoint(_SPANS) else [
            record.time + (record.duration or 0) for record in records if isinstance(record, _SPANS)
        ]  # fmt: skip
        self.last = max([*times, *ends, self.last or 0])
        self.reach_all(records if kinds <= _STEPPED else [each for each in records if type(each) in _STEPPED])

    def reach_all(self, records: Sequence["Stepped"]) -> None:
        """Note the steps of the records that have one."""
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
        self.reported_end = str(event.attrs.get("status", "finished"))
        self.reported_at = max(event.time, self.last or 0)

    def set_clock(self, event: Event) -> None:
        """Note that the clock was set: earlier times are converted to the present clock."""
        seconds = event.attrs.get("seconds")
        if isinstance(seconds, (int, float)) and math.isfinite(seconds):
            self.clock_shift += int(seconds * 1e9)
            self.last = event.time

    def facts(self, disk: "OnDisk", *, unread: bool = False) -> WriterFacts:
        """Return the facts that determine its state."""
        reported_end = None if self.reported_end is None else ending_of(self.reported_end)
        who = self.writer
        return WriterFacts(
            who.attempt, (self.last or 0) / 1e9, reported_end, self.reported_at / 1e9, main=who.main, rank=who.rank,
            touched=disk.changed, alive=disk.alive, unread=unread,
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


class OnDisk(NamedTuple):
    """The journal of a writer: its bytes, when it last changed, and whether the process existed before it was read."""

    size: int = 0
    changed: float = 0.0
    alive: bool | None = None


def on_disk(folder: Path, writer: Writer) -> OnDisk:
    """Look at the files and the process of a writer, without reading the journal."""
    return OnDisk(*layout.files_of(folder), layout.process_alive(writer))


def disk_of(home: Path, run: str) -> dict[str, OnDisk]:
    """Look at the files and processes of all writers of a run, by writer id."""
    folders = [layout.writer_folder(home, run, name) for name in layout.list_writers(home, run)]
    return {(writer := find_writer(folder)).id: on_disk(folder, writer) for folder in folders}


def _sets_clock(record: Record) -> TypeGuard[Event]:
    return type(record) is Event and record.name == names.EVENT_CLOCK


def _between_clocks(records: list[Record]) -> Iterable[list[Record]]:
    """Divide records where the clock was set: each part begins with that event, but for the first."""
    cuts = [index for index, record in enumerate(records) if index and _sets_clock(record)]
    return (records[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(records)], strict=True))


@dataclass(slots=True)
class RunSummary:
    """The summary of a run; `take` adds batches, those of one writer in order.

    Without `details`, metrics, spans that ended and logs are not summarised: batches may hold the starts of records.
    """

    run: str = ""
    details: bool = True
    project: str = ""
    name: str | None = None
    notes: str = ""
    tags: dict[str, Any] = field(default_factory=dict)
    group: str = ""
    job_type: str = ""
    parent: str = ""
    from_step: int | None = None
    edits: list[Edit] = field(default_factory=list)
    """Edits recorded by its own processes, and later edits found by `read_run`."""
    config: dict[str, Any] = field(default_factory=dict)
    rejected_keys: dict[str, Any] = field(default_factory=dict)
    """Keys of which a process could not record a value, with the reason."""
    environment: dict[str, Any] = field(default_factory=dict)
    writers: dict[str, WriterSummary] = field(default_factory=dict)
    keys: dict[str, KeySummary] = field(default_factory=dict)
    spans: dict[str, SpanSummary] = field(default_factory=dict)
    open_spans: dict[bytes, tuple[Writer, Span]] = field(default_factory=dict)
    """Spans that have not ended, by span id, each with its writer."""
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

    _started_by: tuple[int, int] = (0, 0)
    """Attempt and negative rank of the start that the description is from."""

    def take(self, batch: Batch) -> None:
        """Add a batch."""
        writer, records = self._writer(batch.writer), batch.records
        if not records:
            return
        kinds: set[type] = set(map(type, records))
        for part in _between_clocks(records) if Event in kinds else (records,):
            if _sets_clock(part[0]):
                writer.set_clock(part[0])
            writer.note(part, set(map(type, part)))
        if self.details and Metric in kinds:
            metrics = [record for record in records if type(record) is Metric]
            self._take_metrics(metrics, writer)
        if not kinds <= _METRICS_AND_STARTS:
            for record in records:
                if type(record) not in _METRICS_AND_STARTS:
                    self._take_record(record, writer)

    def _writer(self, writer: Writer) -> WriterSummary:
        found = self.writers.get(writer.id)
        if found is not None:
            return found
        self.run = self.run or writer.run
        others = (each.writer for each in self.writers.values())
        if all((writer.attempt, -writer.rank) >= (other.attempt, -other.rank) for other in others):
            self.project = writer.project or self.project
            self.name = writer.name or self.name
        self.writers[writer.id] = WriterSummary(writer)
        return self.writers[writer.id]

    def _take_record(self, record: Record, writer: WriterSummary) -> None:
        if isinstance(record, Span):
            self._take_span(writer.writer, record)
        elif isinstance(record, Log):
            if record.scope == names.SCOPE_SAMPLES:
                return
            self.logs[names.severity_word(record.severity)] += 1
        elif isinstance(record, Event):
            self._take_event(record, writer)
        elif isinstance(record, Alert):
            self.alerts[record.name] += 1
            self.recent_alerts.append(record)

    def _take_metrics(self, metrics: list[Metric], writer: WriterSummary) -> None:
        """Add the metrics of a batch, grouped by their keys."""
        shapes: list[tuple[str | None, ...]] = [(metric.category, *metric.values) for metric in metrics]
        if shapes.count(shapes[0]) == len(shapes):
            self._take_same_keys(metrics, writer)
            return
        by_shape: dict[tuple[str | None, ...], list[Metric]] = {}
        for shape, metric in zip(shapes, metrics, strict=True):
            by_shape.setdefault(shape, []).append(metric)
        known = {(category, key) for category, *keys in by_shape for key in keys}
        if len(known) == sum(len(shape) - 1 for shape in by_shape):
            groups = list(by_shape.values())
        else:  # a key is in several, and its points must keep their order
            pairs = groupby(zip(shapes, metrics, strict=True), itemgetter(0))
            groups = [[metric for _, metric in pair] for _, pair in pairs]
        for group in groups:
            self._take_same_keys(group, writer)

    def _take_same_keys(self, metrics: list[Metric], writer: WriterSummary) -> None:
        """Add metrics of one category with the same keys in the same order."""
        category, rank, attempt = metrics[0].category, writer.writer.rank, writer.writer.attempt
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
                known[key].unit = metrics[0].instrument.unit if metrics[0].instrument else ""
            known[key].extend(values, stamps, rank, attempt)

    def _take_span(self, writer: Writer, span: Span) -> None:
        if span.duration is None:
            self.open_spans[span.span_id] = writer, span
            return
        self.open_spans.pop(span.span_id, None)
        if not self.details:
            return
        known = self.spans.get(span.name)
        if known is None:
            known = self.spans[span.name] = SpanSummary(span.name)
        known.add(span)

    def _take_event(self, event: Event, writer: WriterSummary) -> None:
        self.events[event.name] += 1
        if event.name == names.EVENT_STARTED:
            self._take_start(event, writer.writer)
        elif event.name == names.EVENT_CONFIG:
            self.config |= event.attrs
        elif event.name == names.EVENT_REJECTED:
            keys = event.attrs.get("keys")
            self.rejected_keys |= keys if isinstance(keys, dict) else {}
        elif event.name == names.EVENT_EDITED:
            edit = edit_of(writer.writer, event, len(self.edits))
            self.edits += [edit] if edit is not None else []
        elif event.name == names.EVENT_FINISHED:
            writer.end(event)
        elif event.name == names.EVENT_EXCEPTION:
            self.exceptions.append(event)
        elif event.name != names.EVENT_CLOCK:
            self.recent_events.append(event)

    def _take_start(self, event: Event, writer: Writer) -> None:
        """Add configuration and environment; the description is that of the lowest rank of the newest attempt."""
        config = event.attrs.get("config")
        if isinstance(config, dict):
            self.config |= config
        texts = {key: event.attrs[key] for key in _DESCRIPTION if isinstance(event.attrs.get(key), str)}
        ours = {"config", "tags", "from_step", *texts}
        self.environment |= {key: value for key, value in event.attrs.items() if key not in ours}
        if (writer.attempt, -writer.rank) >= self._started_by:
            self._started_by = writer.attempt, -writer.rank
            self.notes, self.group, self.job_type, self.parent = (texts.get(key, "") for key in _DESCRIPTION)
            began = event.attrs.get("from_step")
            self.from_step = began if type(began) is int else None
            self.tags = read_tags(event.attrs.get("tags"))

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

    def status(self, disk: Mapping[str, OnDisk], now: float, unread: Iterable[str] = ()) -> str:
        """Return the state of the run; `unread` are the writers of which records are left to read."""
        left = frozenset(unread)
        facts = [each.facts(disk.get(each.writer.id, OnDisk()), unread=each.writer.id in left) for each in self.newest]
        return run_state(facts, now) or "empty"

    @property
    def counters(self) -> dict[str, float]:
        """Stepscope's own counters, added up over the writers; without the shares of its overhead."""
        total: Counter[str] = Counter()
        for each in self.writers.values():
            numbers = {key: value for key, value in each.counters.items() if isinstance(value, (int, float))}
            total.update({key: value for key, value in numbers.items() if not key.startswith(names.OVERHEAD)})
        return dict(total)

    @property
    def overhead(self) -> dict[str, float]:
        """What Stepscope took of the last seconds of a process, by part; of several processes the most."""
        found: dict[str, float] = {}
        for each in self.newest:
            for key, share in each.counters.items():
                if key.startswith(names.OVERHEAD) and isinstance(share, (int, float)):
                    found[key] = max(float(share), found.get(key, 0.0))
        return found


def newest_attempt(writers: Iterable[WriterSummary]) -> list[WriterSummary]:
    """The main writers of the newest attempt; where only forked ones are left, those."""
    all_writers = list(writers)
    newest = max((each.writer.attempt for each in all_writers), default=0)
    present = [each for each in all_writers if each.writer.attempt == newest]
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
