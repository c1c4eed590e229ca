"""Client telemetry: each event is stored once, and gaps in the numbering are recorded as losses."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from stepscope.dialects.tinker.receiver.event_gaps import EventGaps, Gaps
from stepscope.dialects.tinker.receiver.session_records import (
    CATEGORY,
    SessionRecords,
    number_of,
    process_writer,
    session_writer,
)
from stepscope.dialects.tinker.receiver.telemetry_body import ClientBatch, ClientEvent, read_body
from stepscope.extend.receiver import Ingest, Upload
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.wire import foreign_names

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
