"""The MLflow sink: runs, with metrics, params, tags and their ends, and traces, linked to their runs, each apart."""

import contextlib
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from stepscope.dialects.mlflow import wire as mlflow
from stepscope.dialects.mlflow.sink.tracking_server import (
    SERVICE,
    Found,
    NoAnswer,
    NoRestApi,
    Refused,
    Runs,
    Server,
    Target,
    read_target,
)
from stepscope.dialects.mlflow.wire import TRACES, metric_batches, pair_batches, points
from stepscope.extend.sink import (
    SELF_TELEMETRY,
    SERVER_ERROR,
    Delivery,
    compress,
    is_alive,
    not_from,
    slug,
)
from stepscope.model.errors import Retry
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.model.run_description import config_of
from stepscope.wire.otlp.encode.encode_request import BAD_IDS, Request, encode
from stepscope.wire.otlp.names import CONTENT_TYPES, HEADER_EXPERIMENT, HEADER_RUN
from stepscope.wire.otlp.replies import NotOtlp, read_http_reply


class Entry(NamedTuple):
    """A record, its writer, and its index among all records of the call."""

    at: int
    writer: Writer
    record: Record


def by_run(batches: Sequence[Batch]) -> dict[str, list[Entry]]:
    """Group the records of batches by run, in order."""
    found: dict[str, list[Entry]] = {}
    at = 0
    for batch in batches:
        entries = found.setdefault(batch.writer.run, [])
        entries += [Entry(index, batch.writer, record) for index, record in enumerate(batch.records, at)]
        at += len(batch.records)
    return found


LEAVE_SECONDS = 5.0
"""Time limit for ending the runs of dead trainers, and for the last links of traces."""
_SEVERITY = ("RUNNING", *mlflow.STATUSES.values())
"""Statuses, mildest first: within an attempt the worst that any rank reported counts."""


def is_dead(writer: Writer) -> bool:
    """Return whether the process of a writer was on this host and is gone."""
    here = slug(os.uname().nodename).replace(".", "-")
    return writer.host == here and not is_alive(writer.pid, writer.wall_ns)


class Ends:
    """The ends of the runs of one server."""

    def __init__(self, server: Server, runs: Runs, dead: Callable[[Writer], bool] = is_dead) -> None:
        self._server, self._runs, self._dead = server, runs, dead
        self._firsts: dict[str, tuple[Found, Writer, int]] = {}
        """The run, its rank 0 in the newest attempt, and the time of its last record."""

    def take(self, run: Found, entries: Sequence[Entry]) -> None:
        """Set the status from the ranks of the newest attempt: the worst, and success only by rank 0."""
        for _, writer, record in entries:
            if not writer.main or writer.attempt < run.attempt:
                continue
            if writer.rank == 0:
                self._firsts[writer.run] = run, writer, record.time
            if isinstance(record, Event) and record.name == EVENT_FINISHED:
                status = mlflow.STATUSES.get(str(record.attrs.get("status", "finished")), "FINISHED")
                if not (status == "FINISHED" and writer.rank):
                    self._end(run, writer, status, record.time)

    def _end(self, run: Found, writer: Writer, status: str, time: int) -> None:
        if run.status in _SEVERITY and _SEVERITY.index(status) <= _SEVERITY.index(run.status):
            return
        self._update(run, status, time, presumed=False)
        run.status = status
        self._runs.settle(writer)

    def _update(self, run: Found, status: str, time: int, *, presumed: bool) -> None:
        if presumed or run.presumed:
            tags = {mlflow.TAG_PRESUMED: str(run.attempt) if presumed else "no"}
            self._server.post("runs/log-batch", pair_batches(run.id, "tags", tags)[0])
            run.presumed = presumed
        self._server.post("runs/update", {"run_id": run.id, "status": status, "end_time": max(time // 1_000_000, 0)})

    def close(self) -> None:
        """End the runs whose rank 0 is dead; an end that the trainer reported itself, even later, overrides this."""
        self._server.allow(LEAVE_SECONDS)
        for run, writer, last in self._firsts.values():
            if run.status == "RUNNING" and not run.presumed and writer.attempt == run.attempt and self._dead(writer):
                with contextlib.suppress(Refused, Retry):
                    self._update(run, "FAILED", last, presumed=True)
        self._firsts.clear()


NO_LOGS = "MLflow has no log records"
GONE = "the run was deleted in MLflow; the rest goes to a new one"


class MetricsSink:
    """Sends metrics, params and tags to the MLflow run of each run; spans are ignored. Not thread-safe."""

    divisible = True

    def __init__(
        self, target: Target, *, clock: Callable[[], float] = time.monotonic, dead: Callable[[Writer], bool] = is_dead
    ) -> None:
        self.timeout = target.timeout
        self._server = Server(target, clock)
        self._runs = Runs(self._server, target, clock=clock)
        self._ends = Ends(self._server, self._runs, dead)
        self._delivery: Delivery[list[Entry]] = Delivery(clock)

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. A point that is sent twice is stored once."""
        self._server.allow(self.timeout)
        if self._delivery.begin(batches, self.timeout):
            self._delivery.parts = list(by_run(batches).values())
            logs = sum(isinstance(record, Log) for batch in batches for record in batch.records)
            self._delivery.refuse(NO_LOGS, logs)
        self._delivery.send(self._deliver)
        return self._delivery.end()

    def close(self) -> None:
        """End the runs of trainers that died, and close the connection."""
        self._ends.close()
        self._server.close()

    def _deliver(self, entries: list[Entry], timeout: float) -> None:
        """Deliver the records of one run, within the time limit of the call."""
        if not any(isinstance(entry.record, (Metric, Event, Alert)) for entry in entries):
            return
        first = min(entries, key=lambda entry: (entry.writer.rank, entry.writer.attempt)).writer
        newest = max(entries, key=lambda entry: (entry.writer.attempt, -entry.writer.rank)).writer
        try:
            run = self._runs.open(first, _began(entries))
            self._begin_attempt(run, newest)
            self._send_params(run, entries)
            self._send_tags(run, entries)
            self._send_metrics(run, entries)
            self._ends.take(run, entries)
        except Refused as error:
            if error.is_absent:
                self._runs.forget(first)
                raise Retry(GONE) from error
            raise Retry(str(error)) from error

    def _begin_attempt(self, run: Found, writer: Writer) -> None:
        """Mark a run as used, or reopen it; the tag is set last, so that a kill in between repeats it all."""
        if writer.attempt <= run.attempt:
            return
        if run.status != "RUNNING" or run.presumed:
            self._server.post("runs/update", {"run_id": run.id, "status": "RUNNING"})
            run.status, run.presumed = "RUNNING", False
        for body in pair_batches(run.id, "tags", mlflow.attempt_tags(writer)):
            self._server.post("runs/log-batch", body)
        run.attempt = writer.attempt

    def _send_params(self, run: Found, entries: list[Entry]) -> None:
        for _, writer, record in entries:
            config = config_of(record) if isinstance(record, Event) else None
            if config is not None:
                self._log_params(run, mlflow.params(config), writer)

    def _log_params(self, run: Found, wanted: Mapping[str, str], writer: Writer) -> None:
        fresh = mlflow.fresh_params(wanted, run.params, writer)
        for body in pair_batches(run.id, "params", fresh):
            try:
                self._server.post("runs/log-batch", body)
            except Refused as error:
                if not error.blames_a_record:
                    raise
                self._log_params_singly(run, fresh)
                break
        run.params.update(fresh)

    def _log_params_singly(self, run: Found, fresh: Mapping[str, str]) -> None:
        """Find which params MLflow rejects, possibly because another host has just set them."""
        refused = False
        for key, value in fresh.items():
            try:
                self._server.post("runs/log-parameter", {"run_id": run.id, "key": key, "value": value})
            except Refused as error:
                if not error.blames_a_record:
                    raise
                refused = True
        self._delivery.refuse("a part of the config was refused", int(refused))

    def _send_tags(self, run: Found, entries: list[Entry]) -> None:
        found: dict[str, str] = {}
        for _, _, record in entries:
            if isinstance(record, Event) and record.name == EVENT_STARTED:
                found |= {**mlflow.source_tags(record.attrs), **mlflow.described_tags(record.attrs)}
            elif isinstance(record, Event) and record.name == EVENT_EDITED:
                found |= mlflow.described_tags(record.attrs)
            elif isinstance(record, Alert) or (isinstance(record, Event) and record.name != EVENT_FINISHED):
                found |= [mlflow.note_tag(record)]
        where = [index for index, _, record in entries if isinstance(record, (Event, Alert))]
        for number, body in enumerate(pair_batches(run.id, "tags", found)):
            self._send(("tags", run.id, number), body, where)

    def _send_metrics(self, run: Found, entries: list[Entry]) -> None:
        found = [
            (index, point)
            for index, writer, record in entries
            if isinstance(record, Metric)
            for point in points(writer, record)
        ]
        for number, (body, where) in enumerate(metric_batches(run.id, found)):
            self._send(("metrics", run.id, number), body, where)

    def _send(self, step: Hashable, body: bytes, where: Sequence[int]) -> None:
        if step in self._delivery.done:
            return
        try:
            self._server.post("runs/log-batch", body)
        except Refused as error:
            if error.status == SERVER_ERROR:
                self._delivery.fail(Retry(str(error)), where)
            elif error.blames_a_record:
                self._delivery.reject(str(error), where, together=True)
            else:
                raise
        self._delivery.done.add(step)


def _began(entries: Sequence[Entry]) -> int:
    """When a run started, in milliseconds: from its first process, else from its first record."""
    started = [entry.writer.wall_ns for entry in entries if entry.writer.wall_ns > 0]
    return max(min(started or [entry.record.time for entry in entries]) // 1_000_000, 0)


MAX_SPANS = 500
"""Spans of whole traces in one request; MLflow stores all of a request or nothing."""
SERVER_ERRORS = frozenset({422, SERVER_ERROR})
"""MLflow answers 422 for a locked database as well as for a span it cannot read."""
LINK_SECONDS, LOOK_SECONDS = 4.0, 10.0
"""How long spans wait for their run to be created, and the interval of searches afterwards."""
AFTERWARDS_SECONDS = 2.0
"""How long the run of already sent spans is searched."""
MAX_LINKS = 100
MAX_UNLINKED = 10_000


class TracesSink:
    """Sends spans, by trace; other records are ignored. Not thread-safe.

    It never creates a run: if there is none after a while, spans are sent without it and linked later. With
    the id of an experiment nothing is looked up before the spans are sent. A server without MLflow's REST API, such as
    a plain collector, gets them without an experiment.
    """

    divisible = True

    def __init__(self, target: Target, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout = target.timeout
        self._clock = clock
        self._server = Server(target, clock)
        self._runs = Runs(self._server, target, clock=clock)
        self._delivery: Delivery[list[Entry]] = Delivery(clock)
        self._waiting: dict[str, float] = {}
        """When the run of some spans was first searched without success."""
        self._looked: dict[str, float] = {}
        self._unlinked: dict[str, tuple[Writer, list[str]]] = {}
        """Traces that MLflow has without their run, and their writers."""
        self._no_rest_api = float("-inf")
        """When the REST API was last found missing."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send the spans that have ended and are not sent yet. A span sent twice is stored once: it has an id."""
        self._server.allow(self.timeout)
        if self._delivery.begin(batches, self.timeout):
            for entries in by_run(batches).values():
                sound = []
                for entry in entries:
                    if isinstance(span := entry.record, Span) and span.duration is not None:
                        if len(span.trace_id) == 16 and len(span.span_id) == 8:
                            sound.append(entry)
                        else:
                            self._delivery.refuse(BAD_IDS)
                if sound:
                    self._delivery.parts.append(sound)
        self._delivery.send(self._deliver)
        return self._delivery.end()

    def close(self) -> None:
        """Link traces that are not linked yet, if their runs exist by now, and close the connection."""
        self._server.allow(LEAVE_SECONDS)
        for writer, _ in list(self._unlinked.values()):
            with contextlib.suppress(Retry):
                if (run := self._runs.find(writer)) is not None:
                    self._link(writer, run)
        self._unlinked.clear()
        self._server.close()

    def _deliver(self, entries: list[Entry], timeout: float) -> None:
        """Deliver the spans of one run, within the time limit of the call."""
        writer = entries[0].writer
        run, experiment = self._target_of(writer)
        headers = {
            "content-type": CONTENT_TYPES["protobuf"],
            "content-encoding": "gzip",
            **({HEADER_EXPERIMENT: experiment} if experiment is not None else {}),
            **({HEADER_RUN: run.id} if run is not None else {}),
        }
        for number, request in enumerate(_requests(entries)):
            step = writer.run, number
            if step not in self._delivery.done:
                self._send(request, headers)
                self._delivery.done.add(step)
        spans = [entry.record for entry in entries if isinstance(entry.record, Span)]
        self._link(writer, run, [f"tr-{span.trace_id.hex()}" for span in spans if not span.parent_id])
        if run is None and self._runs.experiments.given is not None:
            self._link_later(writer)

    def _target_of(self, writer: Writer) -> tuple[Found | None, str | None]:
        """The run and the experiment of spans; neither where the server has no REST API."""
        given = self._runs.experiments.given
        if given is not None:
            return self._runs.known(writer), given
        if self._clock() - self._no_rest_api < LOOK_SECONDS:
            return None, None
        try:
            run = self._find(writer)
            return run, run.experiment if run is not None else self._runs.experiments.find(writer.project)
        except NoRestApi:
            self._no_rest_api = self._clock()
            return None, None

    def _link_later(self, writer: Writer) -> None:
        """Periodically search the run of spans that were sent without it, and link them."""
        now = self._clock()
        if now - self._looked.get(writer.run, float("-inf")) < LOOK_SECONDS:
            return
        self._looked[writer.run] = now
        self._server.allow(AFTERWARDS_SECONDS)
        with contextlib.suppress(Retry):
            run = self._runs.find(writer)
            if run is not None:
                self._link(writer, run)
        self._server.allow(self.timeout)

    def _find(self, writer: Writer) -> Found | None:
        """Find the run; it may be created soon, and spans wait for it only briefly."""
        now = self._clock()
        since = self._waiting.setdefault(writer.run, now)
        if now - since >= LINK_SECONDS and now - self._looked.get(writer.run, float("-inf")) < LOOK_SECONDS:
            return None
        self._looked[writer.run] = now
        try:
            run = self._runs.find(writer)
        except NoRestApi:
            raise
        except NoAnswer:  # time of an outage does not count
            del self._waiting[writer.run]
            raise
        except Retry:
            if now - since >= LINK_SECONDS:
                return None
            raise
        if run is None and now - since < LINK_SECONDS:
            raise Retry(f"the run {writer.run} is not in MLflow yet", after=1.0)
        if run is not None:
            del self._waiting[writer.run], self._looked[writer.run]
        return run

    def _send(self, request: Request, headers: Mapping[str, str]) -> None:
        try:
            answer = self._server.send("POST", TRACES, compress(request.body), headers)
            content_type = answer.headers.get("content-type", "")
            partial = read_http_reply(request.signal, "protobuf", content_type, answer.body)
            self._delivery.refuse(partial.message or "partial success", partial.rejected)
        except NotOtlp:
            raise not_from(SERVICE, answer) from None
        except Refused as error:
            if error.status == 422 and HEADER_EXPERIMENT not in headers:
                raise Retry(f"{error}: MLflow's REST API does not answer; give `experiment_id`") from error
            if error.status in SERVER_ERRORS:
                self._delivery.fail(Retry(str(error)), request.where)
            elif error.is_absent:
                self._runs.experiments.forget()
                raise Retry(str(error)) from error
            elif error.status in (400, 404, 405, 413, 415, 501):
                self._delivery.reject(str(error), request.where, together=error.status in (400, 413))
            else:
                raise Retry(str(error)) from error

    def _link(self, writer: Writer, run: Found | None, traces: Sequence[str] = ()) -> None:
        """Remember traces without a run and link them once it exists; failures are ignored."""
        if run is None:
            waiting = self._unlinked.setdefault(writer.run, (writer, []))[1]
            waiting += traces[: MAX_UNLINKED - len(waiting)]
            return
        waiting = self._unlinked.pop(writer.run, (writer, []))[1]
        while waiting:
            try:
                self._server.post("traces/link-to-run", {"trace_ids": waiting[:MAX_LINKS], "run_id": run.id})
            except (Refused, Retry):
                self._unlinked[writer.run] = writer, waiting
                return
            del waiting[:MAX_LINKS]


def _requests(entries: list[Entry]) -> Iterator[Request]:
    """Encode spans, those of a trace together, and give each request the indices of its records."""
    traces: dict[bytes, list[Entry]] = {}
    for entry in entries:
        if isinstance(entry.record, Span):
            traces.setdefault(entry.record.trace_id, []).append(entry)
    chunk: list[Entry] = []
    for trace in traces.values():
        if chunk and len(chunk) + len(trace) > MAX_SPANS:
            yield from _encode(chunk)
            chunk = []
        chunk += trace
    yield from _encode(chunk)


def _encode(chunk: list[Entry]) -> Iterator[Request]:
    pairs = [(writer, [record]) for _, writer, record in chunk]
    for request in encode(pairs).requests:
        where = [chunk[index].at for index in request.where]
        yield Request(request.signal, request.body, request.count, where)


class Mlflow(msgspec.Struct, frozen=True, kw_only=True):
    """A tracking server, and which part to deliver: runs (metrics, params, tags, status) or traces."""

    target: Target
    part: Literal["runs", "traces"] = "runs"

    remote: ClassVar[bool] = True
    excluded: ClassVar[tuple[str, ...]] = (*SELF_TELEMETRY, "kind:log")

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Mlflow":
        """Read options and MLflow's variables."""
        return cls(target=read_target(options, env))

    @property
    def parts(self) -> "tuple[Mlflow, ...]":
        """The same server twice, with a cursor for its runs and one for its traces."""
        return (self, Mlflow(target=self.target, part="traces")) if self.target.traces else (self,)

    @property
    def place(self) -> str:
        """The server, the experiment, and which part."""
        target = self.target
        inside = target.experiment or "experiment by project"
        chosen = f" run {target.run_id}" if target.run_id else ""
        return f"{target.uri} {inside}{chosen} {self.part}"

    @property
    def probes(self) -> tuple[str, ...]:
        """The kinds of record that show whether it works."""
        return ("span",) if self.part == "traces" else ("metric", "event")

    def open(self) -> Sink:
        """Make the sink of the part."""
        return (TracesSink if self.part == "traces" else MetricsSink)(self.target)
