"""Client telemetry: each event is stored once, and gaps in the numbering are recorded as losses."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope.dialects.tinker.receiver.session_records import (
    CATEGORY,
    SessionRecords,
    number_of,
    process_writer,
    session_writer,
)
from stepscope.dialects.tinker.receiver.telemetry_body import ClientBatch, ClientEvent, read_body
from stepscope.extend.receiver import Ingest, Ranges, Upload, replace_file
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.wire import foreign_names

MAX_KNOWN = 10_000
"""The number of processes in memory; others are reloaded from their files."""
LARGEST_GAP = 1_000_000
"""A larger jump is not a loss but an invalid position."""
KEPT_SECONDS = 30 * 24 * 3600.0
_MAX_RANGES = 1000
_decode = msgspec.json.Decoder(list[tuple[int, int]]).decode


class Gaps(NamedTuple):
    """The number of missing events, how many of them are new, and the range of the new gaps."""

    missing: int
    new: int
    first: int = 0
    last: int = 0


class EventGaps:
    """The event positions received, by process, in memory and in one small file each. Safe to use from any thread.

    The files preserve positions across restarts of the hub. If a file cannot be written, its content stays in memory.
    """

    def __init__(self, folder: Path, now: float | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, Ranges] = {}
        self._remove_old(time.time() if now is None else now)

    def add(self, process: str, positions: Iterable[int]) -> Gaps:
        """Add positions of a process; a second process that counts from 0 under the same name is not a gap."""
        with self._lock:
            known = self._known.pop(process, None) or self._read(process)
            self._known[process] = known
            while len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            before, began = _missing(known), _end(known)
            end = began
            for position in sorted(set(positions)):
                if position not in known and position <= end + LARGEST_GAP:
                    known.add(position)
                    end = max(end, position + 1)
            missing = _missing(known)
            fresh = [hole for hole in _holes(known) if hole[0] >= began] if missing > before else []
            return Gaps(missing, missing - before, *((fresh[0][0], fresh[-1][1]) if fresh else ()))

    def save(self, process: str) -> None:
        """Write the positions of a process to its file."""
        with self._lock:
            known = self._known.get(process)
            ranges = list(known)[-_MAX_RANGES:] if known is not None else []
        if ranges:
            ranges[0] = (0 if len(ranges) == _MAX_RANGES else ranges[0][0], ranges[0][1])
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(self._folder / f"{process}.json", msgspec.json.encode(ranges))

    def forget(self, process: str) -> None:
        """Reload a process from its file, since the events added later were not stored."""
        with self._lock:
            self._known.pop(process, None)

    def _read(self, process: str) -> Ranges:
        try:
            return Ranges(_decode((self._folder / f"{process}.json").read_bytes()))
        except (OSError, ValueError):
            return Ranges()

    def _remove_old(self, now: float) -> None:
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.stat().st_mtime < now - KEPT_SECONDS:
                    path.unlink()


def _end(known: Ranges) -> int:
    return max((last for _, last in known), default=-1) + 1


def _missing(known: Ranges) -> int:
    return _end(known) - sum(last - first + 1 for first, last in known)


def _holes(known: Ranges) -> list[tuple[int, int]]:
    """Return the gaps before and between the received positions."""
    found, reached = [], 0
    for first, last in known:
        if first > reached:
            found.append((reached, first - 1))
        reached = last + 1
    return found


LOST = "event lost by its client"
EVENT_LOST = "tinker.events_lost"


class TelemetryReceiver:
    """Receives telemetry bodies. Safe to use from any thread."""

    def __init__(
        self,
        ingest: Ingest,
        records: SessionRecords,
        folder: Path,
        joined: Callable[[ClientEvent], Event] = lambda event: event.record,
    ) -> None:
        self._ingest = ingest
        self._records = records
        self._gaps = EventGaps(folder)
        self._joined = joined
        """Adds the trace of its request to the record of an event, where known."""

    def take(self, data: bytes, project: str | None) -> "Future[None]":
        """Parse a body and submit its events; the future completes once they are on disk, or with Retry."""
        batches, bad = read_body(data)
        upload = Upload()
        upload.rejected += bad
        processes: list[str] = []
        for batch in batches:
            writer = process_writer(batch.run, f"{batch.session}/{batch.process}", batch.resource)
            for event in batch.events:
                record = self._joined(event)
                who = session_writer(batch.run) if record.name == names.EVENT_FINISHED else writer
                is_taken = self._records.add(upload, who, [record], project, request=number_of(event.id))
            if is_taken:  # all events of a batch are of one run
                processes.append(writer.id)
                self._add_gaps(upload, writer, batch, project)
        safe = self._ingest.submit(upload)
        safe.add_done_callback(lambda done: self._settle(done, processes))
        return safe

    def _add_gaps(self, upload: Upload, writer: Writer, batch: ClientBatch, project: str | None) -> None:
        """Record events that are missing by their positions, or that arrived late."""
        positions = [event.index for event in batch.events if event.index is not None]
        gaps = self._gaps.add(writer.id, positions)
        if not gaps.new:
            return
        upload.cut[LOST] += max(gaps.new, 0)
        moment = max(event.record.time for event in batch.events)
        request = number_of(writer.id, "gaps", str(gaps.missing), str(gaps.last))
        self._records.add(upload, writer, _lost(gaps, moment, batch.session), project, request=request)

    def _settle(self, done: "Future[None]", processes: list[str]) -> None:
        """Save the positions of stored events, and forget those of events that failed."""
        is_safe = not done.cancelled() and done.exception() is None
        for process in processes:
            (self._gaps.save if is_safe else self._gaps.forget)(process)


def _lost(gaps: Gaps, moment: int, session: str) -> list[Record]:
    """Return a metric with the number of missing events, and an event when it grew."""
    found: list[Record] = [Metric(moment, None, None, CATEGORY, {"lost_events": gaps.missing})]
    if gaps.new > 0:
        attrs = {"count": gaps.new, "first": gaps.first, "last": gaps.last, foreign_names.ATTR_SESSION_ID: session}
        found.append(Event(moment, None, None, None, None, 13, EVENT_LOST, attrs))
    return found
