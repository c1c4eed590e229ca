"""The runs of an MLflow server, by its REST API: found or created, their metrics, params and tags, and how they end."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.dialects.mlflow import wire as mlflow
from stepscope.dialects.mlflow.sink import Target
from stepscope.dialects.mlflow.sink.tracking_server import Experiments, NoAnswer, Refused, Server, retry_of
from stepscope.dialects.mlflow.wire import metric_batches, pair_batches, points, start_tags
from stepscope.extend.sink import SERVER_ERROR, Delivery, is_alive, slug
from stepscope.model.errors import Retry
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record
from stepscope.model.run_description import config_of


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


SETTLE_SECONDS = 3.0
"""After a create without a response, how long searches must find nothing before it is repeated."""
FOLLOW_SECONDS = 20.0
"""How long other hosts wait for the host of rank 0 to create the run."""
MAX_SIBLINGS = 100


@dataclass(slots=True)
class Found:
    """A run as MLflow has it."""

    id: str
    experiment: str
    status: str
    attempt: int
    """The newest attempt it was used for; 0 when it was created and never used."""
    creator: str
    start: int
    params: dict[str, str]
    presumed: bool = False
    """Whether its end is only presumed; then `status` is RUNNING here."""


class Runs:
    """The runs of one server. `find` only searches; `open` creates, and deletes what an interrupted create left."""

    def __init__(self, server: Server, target: Target, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._target, self._clock, self._host = server, target, clock, socket.gethostname()
        self.experiments = Experiments(server, target)
        self._known: dict[str, Found] = {}
        self._asked_at: dict[str, float] = {}
        """When the run of another rank was first searched without success."""
        self._unanswered: dict[str, float] = {}
        """When a create got no response."""

    def find(self, writer: Writer) -> Found | None:
        """Find the run of a writer; None when it does not exist yet, Retry when the server does not respond."""
        known = self._known.get(writer.run)
        if known is None:
            found = self._search(writer)
            if found:
                known = self._known[writer.run] = found[0]
        return known

    def known(self, writer: Writer) -> Found | None:
        """Return the run of a writer if it was found before; no request is made."""
        return self._known.get(writer.run)

    def open(self, writer: Writer, began: int) -> Found:
        """Find the run of a writer, or create it with its start in milliseconds; Retry when neither succeeds."""
        known = self._known.get(writer.run)
        if known is not None:
            return known
        try:
            known = self.settle(writer)
            if known is None:
                self._await_turn(writer)
                self._create(writer, began)
                known = self.settle(writer)  # two may have created it in one moment: both choose the same
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise Retry(str(error)) from error
        if known is None:
            raise Retry("the run was created, but MLflow does not list it yet")
        self._known[writer.run] = known
        self._unanswered.pop(writer.run, None)
        return known

    def settle(self, writer: Writer) -> Found | None:
        """Choose among all runs with our tag; delete those that were created here and never used."""
        found = self._search(writer)
        for other in found[1:]:
            if not other.attempt and other.creator == self._host:
                self._server.post("runs/delete", {"run_id": other.id})
        return found[0] if found else None

    def forget(self, writer: Writer) -> None:
        """Forget a run that no longer exists."""
        self._known.pop(writer.run, None)

    def _search(self, writer: Writer) -> list[Found]:
        """All runs with our tag, the one to use first: used ones before unused ones, then by age and id."""
        try:
            if self._target.run_id:
                return [_read(self._server.get("runs/get", run_id=self._target.run_id)["run"])]
            query = {
                "experiment_ids": [self.experiments.find(writer.project)],
                "filter": f"tags.\"{mlflow.TAG_RUN}\" = '{mlflow.run_mark(writer.run)}'",
                "max_results": MAX_SIBLINGS,
            }
            found = [_read(each) for each in self._server.post("runs/search", query).get("runs", ())]
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise retry_of(error) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Retry(f"the response is not from an MLflow server: {error!r}") from error
        return sorted(found, key=lambda each: (not each.attempt, each.start, each.id))

    def _await_turn(self, writer: Writer) -> None:
        """Leave the create to the shipper of rank 0, and wait for one without a response to become visible."""
        now = self._clock()
        if writer.rank and now - self._asked_at.setdefault(writer.run, now) < FOLLOW_SECONDS:
            raise Retry(f"the run {writer.run} is not in MLflow yet: the shipper of rank 0 creates it", after=2.0)
        if now - self._unanswered.get(writer.run, float("-inf")) < SETTLE_SECONDS:
            raise Retry("a create request had no response: waiting to see whether the run exists", after=1.0)

    def _create(self, writer: Writer, began: int) -> None:
        tags = {**self._target.tags, **start_tags(writer, self._host)}
        body = {
            "experiment_id": self.experiments.find(writer.project),
            "start_time": began,
            "run_name": writer.name or writer.run,
            "tags": [{"key": mlflow.legal_key(key), "value": str(value)} for key, value in tags.items()],
        }
        try:
            self._server.post("runs/create", body, once=True)
        except NoAnswer:
            self._unanswered[writer.run] = self._clock()
            raise


def _read(run: dict[str, Any]) -> Found:
    info, data = run["info"], run.get("data", {})
    tags = {each["key"]: each.get("value", "") for each in data.get("tags", ())}
    attempt = str(tags.get(mlflow.TAG_ATTEMPT, ""))
    presumed = attempt != "" and tags.get(mlflow.TAG_PRESUMED) == attempt
    return Found(
        id=str(info["run_id"]),
        experiment=str(info["experiment_id"]),
        status="RUNNING" if presumed else str(info.get("status", "RUNNING")),
        attempt=int(attempt) if attempt.isdigit() else 0,
        creator=str(tags.get(mlflow.TAG_CREATOR, "")),
        start=int(info.get("start_time", 0)),
        params={each["key"]: each.get("value", "") for each in data.get("params", ())},
        presumed=presumed,
    )


LEAVE_SECONDS = 5.0
"""Time limit for ending the runs of dead trainers."""
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
