"""A summary of a run for lists: every frame is checked and counted, only what a list shows is decoded."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope.journal import layout
from stepscope.journal.key_summary import leading
from stepscope.journal.run_edits import Edits
from stepscope.journal.run_summary import SELF, RunSummary, on_disk
from stepscope.journal.segments import Tail, find_writer
from stepscope.model.ports import Batch
from stepscope.model.records import Metric, Value
from stepscope.wire import frames

VALUES = 4
"""How many keys a list shows."""
_LAST_BATCHES = 32
_OF_THE_MACHINE = (SELF, "system")


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

    def values(self) -> dict[str, Value]:
        """The last value of each key in the last batches."""
        found: dict[str, Value] = {}
        for payload in self._payloads:
            for record in frames.unpack_batch(payload)[1]:
                if isinstance(record, Metric) and record.category not in _OF_THE_MACHINE:
                    found.update((key, +value if isinstance(value, bool) else value) for key, value in record.points())
        return found


def glance(home: Path, run: str) -> Glance:
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
    first = min(summary.newest, key=lambda each: each.writer.rank, default=None)
    values = last[first.writer.id].values() if first is not None else {}
    now = summary.described
    return Glance(
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
        values={key: values[key] for key in leading(values, VALUES)},
        alerts=summary.alerts.total(),
        started=summary.started,
        ended=summary.ended,
        size=sum(each.size for each in disk.values()),
        damaged=damaged,
        edited=edited,
    )
