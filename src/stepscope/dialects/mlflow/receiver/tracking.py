"""The state shared by all endpoints: the tracking database, the hub's journal and store."""

import json
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

import msgspec

from stepscope.dialects.mlflow.receiver import run_records
from stepscope.dialects.mlflow.receiver.errors import TOO_MANY, refused
from stepscope.dialects.mlflow.receiver.names_and_limits import LogBatch
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.dialects.mlflow.receiver.run_table import (
    MlflowRun,
    find_run,
    run_of_trace,
    set_latest,
    set_model_metrics,
    set_params,
    set_tags,
)
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.dialects.mlflow.receiver.tracking_rows import PARAMS, TAGS
from stepscope.extend.receiver import (
    SAFE,
    Engine,
    Ingest,
    Mark,
    Refused,
    Repeats,
    RunLink,
    StoreProgress,
    Upload,
    digest,
)
from stepscope.model.records import Record
from stepscope.wire.otlp.names import HEADER_EXPERIMENT, HEADER_RUN

READ_AS_NAN = "a metric's value was null or a bare NaN: kept as NaN"
_MAX_MARKS = 10_000
_pack = msgspec.msgpack.Encoder().encode


Body: TypeAlias = dict[str, Any]
"""The JSON of a response."""


class Call(NamedTuple):
    """One request: its fields, its path parameters, the project of its token, and its time in milliseconds."""

    fields: Fields
    path: Mapping[str, str]
    project: str | None
    now: int


class Reply(NamedTuple):
    """The response to a call, and the future it waits for: its records on disk."""

    body: Body
    safe: Sequence["Future[None]"] = ()
    run: str = ""
    """The run of the records."""


class Tracking:
    """The state of the receiver. Safe to use from any thread."""

    def __init__(
        self,
        database: TrackingDatabase,
        ingest: Ingest,
        engine: Callable[[], Engine],
        progress: StoreProgress,
        clock: Callable[[], int] = time.time_ns,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.database = database
        self.engine = engine
        self.clock = clock
        self.new_id = new_id
        self._ingest = ingest
        self._progress = progress
        self._repeats: Repeats[Future[None]] = Repeats()
        self._marks: dict[str, Mark] = {}
        """The journal position after the last acknowledged records of each run."""
        self._opened: Mark = progress.written

    @property
    def now(self) -> int:
        """Return the time in milliseconds."""
        return self.clock() // run_records.MILLION

    def admit_run(self, run: str) -> None:
        """Count a new run; Refused when there are too many."""
        try:
            self._ingest.admit_run(run)
        except Refused as error:
            raise refused(error.refusal.message, TOO_MANY) from None

    def submit(
        self, run: MlflowRun, records: Sequence[Record], project: str | None, read_as_nan: int = 0, key: bytes = b""
    ) -> "Future[None]":
        """Submit records of a run to the journal; the future completes once they are on disk.

        The store drops records whose key it has stored before.
        """
        upload = Upload(key)
        if records:
            self._ingest.add(upload, run_records.writer_of(run), list(records), project)
        upload.cut[READ_AS_NAN] += read_as_nan
        return self._ingest.submit(upload)

    def log(self, run_id: str, batch: LogBatch, project: str | None, *, single: bool = False) -> Reply:
        """Log metrics, params and tags of a run: all, or none when one is refused."""
        with self.database.write(durable=bool(batch.params or batch.tags)) as db:
            run = find_run(db, run_id, project, active=True)
            set_params(db, run, batch.params, single=single)
            set_tags(db, run, batch.tags)
            values = run_records.metrics(batch.points) if batch.points else []
            log = self.submit_once if values else self.submit
            safe = [log(run, values, project, read_as_nan=batch.read_as_nan)]  # synced while the database is written
            set_latest(db, run, batch.points)
            set_model_metrics(db, run, batch.points)
            start = self.record_start(db, run) if batch.params else []
        if start:  # also for known params: the process that added them may have died before it journaled them
            sent = "started", run_records.writer_of(run).id, sorted(batch.params.items())
            safe.append(self.submit_once(run, start, project, json.dumps(sent)))
        if batch.tags and (edit := run_records.edited(batch.tags, self.clock())):
            safe.append(self.submit(run, edit, project))
        return Reply({}, safe, run_id)

    def submit_once(
        self, run: MlflowRun, records: Sequence[Record], project: str | None, sent: str = "", read_as_nan: int = 0
    ) -> "Future[None]":
        """Journal records; those of a retried request are recognised and dropped, also by the hub's next process.

        `sent` is the client's data, needed to recognise records whose time is that of their arrival.
        """
        key = digest((run.run_id,), sent.encode() or _pack(records))
        known = self._repeats.find(key)
        if known is not None:
            self._ingest.repeat()
            return known
        safe = self.submit(run, records, project, read_as_nan, key)
        self._repeats.keep_when_safe(key, safe, safe, SAFE)
        return safe

    def record_start(self, db: sqlite3.Connection, run: MlflowRun) -> list[Record]:
        """Return a start event with the current params and tags."""
        return [run_records.started(PARAMS.read(db, run.number), TAGS.read(db, run.number), self.clock())]

    def find_link(self, headers: Mapping[str, str]) -> RunLink | None:
        """Return the run of a trace: the one in a header, or the only running one of the experiment."""
        run_id, experiment = headers.get(HEADER_RUN, "").strip(), headers.get(HEADER_EXPERIMENT, "").strip()
        if not run_id and not experiment.isdecimal():
            return None
        with self.database.read() as db:
            return run_of_trace(db, run_id, experiment, self.now)

    def note_safe(self, run: str) -> None:
        """Store the journal position after the run's acknowledged records."""
        if len(self._marks) >= _MAX_MARKS:
            self._marks = {run: mark for run, mark in self._marks.items() if not self._progress.is_stored(mark)}
        self._marks[run] = self._progress.written

    def stored(self, runs: Sequence[str]) -> "Future[None]":
        """Return a future that completes when all acknowledged records of some runs are in the store."""
        return self._progress.after(max([self._opened, *(self._marks.get(run, (0, 0)) for run in runs)]))

    def all_stored(self) -> "Future[None]":
        """Return a future that completes when all that the hub has acknowledged, in any dialect, is in the store."""
        return self._progress.after(self._progress.written)

    def stop_waiting(self) -> None:
        """Stop waiting for the journal of an earlier process, whose tail may be torn."""
        self._opened = (0, 0)
