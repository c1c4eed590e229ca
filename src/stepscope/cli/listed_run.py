"""A summary of a run for lists: every frame is checked and counted, only what a list shows is decoded."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope.journal import layout
from stepscope.journal.key_summary import leading
from stepscope.journal.run_edits import Edits
from stepscope.journal.run_summary import SELF, RunSummary, on_disk
from stepscope.journal.segments import Tail, find_writer
from stepscope.model.last_value import LastValue
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Value, mean_of
from stepscope.wire import frames

VALUES = 4
"""How many keys a list shows."""
_LAST_BATCHES = 32
_OF_THE_MACHINE = (SELF, "system")


@dataclass(slots=True)
class ListedRun:
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
    values: dict[str, float] = field(default_factory=dict)
    """The last values of a few keys."""
    units: dict[str, str] = field(default_factory=dict)
    """Their units, where they have one."""
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


class _LastBatches:
    """Decodes the starts of records, and keeps the last batches with metrics, to decode these in full later."""

    def __init__(self) -> None:
        self._payloads: deque[memoryview] = deque(maxlen=_LAST_BATCHES)

    def unpack(self, payload: memoryview) -> tuple[int, list[Any], int]:
        """Read a batch."""
        seq, records, bad = frames.unpack_starts(payload)
        if any(type(each) is frames.MetricStart and each.category not in _OF_THE_MACHINE for each in records):
            self._payloads.append(payload)
        return seq, records, bad

    def metrics(self) -> Iterator[list[Metric]]:
        """The metrics of each of the last batches, the newest batch first."""
        for payload in reversed(self._payloads):
            records = frames.unpack_batch(payload)[1]
            yield [each for each in records if isinstance(each, Metric) and each.category not in _OF_THE_MACHINE]


class _LastValues:
    """The last values of the leading keys, read from the last batches of a run's processes."""

    def __init__(self) -> None:
        self._keys: dict[str, LastValue] = {}
        self._units: dict[str, str] = {}
        self._wanted: frozenset[str] = frozenset()

    def take(self, who: Writer, batches: _LastBatches) -> None:
        """Add a process; the first with metrics determines the keys, of the others no more is decoded than it takes."""
        missing = set(self._wanted)
        for metrics in batches.metrics():
            for record in metrics:
                for key, value in record.points():
                    if not self._wanted or key in self._wanted:
                        self._add(who, record, key, value)
                        missing.discard(key)
            if self._wanted and not missing:
                break
        self._wanted = self._wanted or frozenset(leading(self._keys, VALUES))

    def _add(self, who: Writer, record: Metric, key: str, value: Value) -> None:
        number = mean_of(value)
        if number is not None:
            self._keys.setdefault(key, LastValue()).add(number, who.rank, who.attempt, record.step, record.time)
        if record.instrument is not None and record.instrument.unit:
            self._units[key] = record.instrument.unit

    def values(self) -> dict[str, float]:
        """The last values of the leading keys."""
        found = {key: self._keys[key].value for key in leading(self._wanted, VALUES)}
        return {key: value for key, value in found.items() if value is not None}

    def units(self) -> dict[str, str]:
        """The units of those keys that have one."""
        return {key: unit for key, unit in self._units.items() if key in self._wanted}


def _last_values(writers: Iterable[Writer], batches: Mapping[str, _LastBatches]) -> _LastValues:
    """The last values of the newest attempt that has any."""
    found = _LastValues()
    by_attempt: dict[int, list[Writer]] = {}
    for who in writers:
        by_attempt.setdefault(who.attempt, []).append(who)
    for attempt in sorted(by_attempt, reverse=True):
        for who in sorted(by_attempt[attempt], key=lambda each: each.rank):
            found.take(who, batches[who.id])
        if found.values():
            break
    return found


def listed_run(home: Path, run: str) -> ListedRun:
    """Summarise a run without decoding most of it."""
    summary, disk, last = RunSummary(run, details=False), {}, {}
    damaged = 0
    for name in layout.list_writers(home, run):
        folder = layout.writer_folder(home, run, name)
        writer = find_writer(folder)
        disk[writer.id], last[writer.id] = on_disk(folder, writer), _LastBatches()
        summary.take(Batch(writer, 0, []))
        tail = Tail(folder, unpack=last[writer.id].unpack)
        for batch in tail.read_all():
            summary.take(batch)
        damaged += tail.damaged
    edited = max((edit.time for edit in summary.edits), default=0)
    summary.edits += Edits(home).of(run)
    values = _last_values((each.writer for each in summary.writers.values()), last)
    now = summary.described
    return ListedRun(
        run=run,
        project=summary.project,
        name=now.name,
        notes=now.notes,
        tags=now.tags,
        archived=now.archived,
        status=summary.status(disk, time.time()),
        attempts=len(summary.attempts),
        ranks=len(summary.ranks),
        last_step=summary.last_step,
        values=values.values(),
        units=values.units(),
        alerts=summary.alerts.total(),
        started=summary.started,
        ended=summary.ended,
        size=sum(each.size for each in disk.values()),
        damaged=damaged,
        edited=edited,
    )
