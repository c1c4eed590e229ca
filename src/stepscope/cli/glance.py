"""A summary of a run for lists: every frame is checked and counted, only what a list shows is decoded."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from stepscope.journal import layout
from stepscope.journal.key_summary import leading
from stepscope.journal.layout import Files, files_of, process_alive
from stepscope.journal.run_edits import Edits, edit_of
from stepscope.journal.run_summary import SELF, WriterSummary, newest_attempt
from stepscope.journal.segments import find_writer
from stepscope.model import names
from stepscope.model.records import LOG, METRIC, SPAN, Alert, Event, Metric, Record, Span, Value
from stepscope.model.run_description import Description, Edit, apply, read_tags
from stepscope.model.states import run_state
from stepscope.wire import frames

VALUES = 4
"""How many keys a list shows."""
_LAST_BATCHES = 32
_OF_THE_MACHINE = (SELF, "system")


class _MetricStart(msgspec.Struct, array_like=True, tag=METRIC, gc=False):
    time: int
    step: int | None
    axis: str | None
    category: str | None


class _SpanStart(msgspec.Struct, array_like=True, tag=SPAN, gc=False):
    time: int
    duration: int | None
    step: int | None
    axis: str | None


class _LogStart(msgspec.Struct, array_like=True, tag=LOG, gc=False):
    time: int
    step: int | None
    axis: str | None


_STEPPED = frozenset((_MetricStart, _SpanStart, Metric, Span))
_starts = msgspec.msgpack.Decoder(list[_MetricStart | _SpanStart | _LogStart | Event | Alert])


@dataclass(slots=True)
class Glance:
    """A run as a list shows it."""

    run: str
    project: str = ""
    name: str | None = None
    notes: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    archived: bool = False
    status: str = "empty"
    imported: float | None = None
    """The share of its journals that a hub has read, while it is importing them."""
    attempts: int = 0
    ranks: int = 0
    last_step: int | None = None
    values: dict[str, Value] = field(default_factory=dict)
    """The last values of a few keys, of the lowest rank of the newest attempt."""
    alerts: int = 0
    findings: int | None = None
    """How many findings it has; None when no hub has diagnosed it."""
    started: int | None = None
    ended: int | None = None
    size: int = 0
    damaged: int = 0
    edited: int = 0
    """When one of its own processes last edited its name, notes or tags, in ns."""

    @property
    def duration(self) -> float | None:
        """Seconds from the first start to the last record."""
        return (self.ended - self.started) / 1e9 if self.started and self.ended else None


class _Writer:
    """One writer's folder, read only as far as a list needs."""

    def __init__(self, folder: Path) -> None:
        self.files: Files = files_of(folder)
        self.alerts = 0
        self.damaged = 0
        self.started: Event | None = None
        self.edits: list[Edit] = []
        """Edits that the process made to its run."""
        self.batches: deque[memoryview] = deque(maxlen=_LAST_BATCHES)
        self.seen = WriterSummary(find_writer(folder))
        self.alive = process_alive(self.seen.writer)
        for path in layout.list_segments(folder):
            self._skim(path)

    def _skim(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError:
            return
        for found in frames.scan(data):
            if isinstance(found, frames.Damage):
                self.damaged += 1
            elif frames.is_head(found.payload):
                continue
            else:
                self._take_batch(found.payload)

    def _take_batch(self, payload: memoryview) -> None:
        records = self._decode(payload)
        if not records:
            return
        seen = self.seen
        times = [record.time for record in records]
        seen.first = times[0] if seen.first is None else seen.first
        ends = [record.time + (record.duration or 0) for record in records if isinstance(record, _SpanStart | Span)]
        seen.last = max([*times, *ends, seen.last or 0])
        kinds = set(map(type, records))
        if not kinds.isdisjoint((Event, Alert)):
            for record in records:
                if isinstance(record, Event | Alert):
                    self._take_rare(record)
        if kinds <= _STEPPED:
            seen.reach_all(records)
        else:
            seen.reach_all([record for record in records if type(record) in _STEPPED])
        if _MetricStart in kinds and any(
            type(each) is _MetricStart and each.category not in _OF_THE_MACHINE for each in records
        ):
            self.batches.append(payload)

    def _take_rare(self, record: Event | Alert) -> None:
        if isinstance(record, Alert):
            self.alerts += 1
        elif record.name == names.EVENT_FINISHED:
            self.seen.end(record)
        elif record.name == names.EVENT_STARTED:
            self.started = record
        elif record.name == names.EVENT_EDITED and (edit := edit_of(self.seen.writer, record, len(self.edits))):
            self.edits.append(edit)

    def _decode(
        self, payload: memoryview
    ) -> list[_MetricStart | _SpanStart | _LogStart | Event | Alert] | list[Record]:
        try:
            return _starts.decode(payload[frames.BATCH_BYTES - 5 :])
        except (ValueError, RecursionError):
            pass
        try:
            return frames.unpack_batch(payload)[1]
        except (ValueError, RecursionError):
            self.damaged += 1
            return []

    def values(self) -> dict[str, Value]:
        """The last value of each key in the last batches that hold any."""
        found: dict[str, Value] = {}
        for record in self._last_records():
            if isinstance(record, Metric) and record.category not in _OF_THE_MACHINE:
                found.update((key, +value if isinstance(value, bool) else value) for key, value in record.points())
        return found

    def _last_records(self) -> Iterator[Record]:
        for payload in self.batches:
            try:
                yield from frames.unpack_batch(payload)[1]
            except (ValueError, RecursionError):
                continue


def glance(home: Path, run: str) -> Glance:
    """Summarise a run without decoding most of it."""
    writers = [_Writer(layout.writer_folder(home, run, name)) for name in layout.list_writers(home, run)]
    seen = Glance(run)
    for each in sorted(writers, key=lambda each: (each.seen.writer.attempt, -each.seen.writer.rank)):
        seen.project = each.seen.writer.project or seen.project
        seen.name = each.seen.writer.name or seen.name
        seen.alerts += each.alerts
        seen.damaged += each.damaged
        seen.size += each.files.size
    seen.attempts = len({each.seen.writer.attempt for each in writers})
    seen.ranks = len({each.seen.writer.rank for each in writers})
    seen.started = min((start for each in writers if (start := each.seen.started)), default=None)
    seen.ended = max((end for each in writers if (end := each.seen.last)), default=None)
    _look_at_newest(seen, writers)
    _describe(seen, home, writers)
    return seen


def _describe(seen: Glance, home: Path, writers: list[_Writer]) -> None:
    """Fill in the description that the run started with and later edits."""
    starts = [(each.seen.writer.attempt, -each.seen.writer.rank, each.started) for each in writers if each.started]
    began = max(starts, key=lambda start: start[:2])[2].attrs if starts else {}
    recorded = Description(seen.name, str(began.get("notes") or ""), read_tags(began.get("tags")))
    own = [edit for each in writers for edit in each.edits]
    seen.edited = max((edit.time for edit in own), default=0)
    now = apply(recorded, [*own, *Edits(home).of(seen.run)])
    seen.name, seen.notes, seen.tags, seen.archived = now.name, now.notes, now.tags, now.archived


def _look_at_newest(seen: Glance, writers: list[_Writer]) -> None:
    by_id = {each.seen.writer.id: each for each in writers}
    newest = [by_id[each.writer.id] for each in newest_attempt(each.seen for each in writers)]
    if not newest:
        return
    steps = [step for each in newest if (step := each.seen.last_step) is not None]
    seen.last_step = max(steps, default=None)
    facts = [each.seen.facts(each.files.changed, each.alive) for each in newest]
    seen.status = run_state(facts, time.time()) or "empty"
    values = min(newest, key=lambda each: each.seen.writer.rank).values()
    seen.values = {key: values[key] for key in leading(values, VALUES)}
