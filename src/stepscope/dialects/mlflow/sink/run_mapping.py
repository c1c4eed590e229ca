"""The MLflow run of each run: found by a tag, created once, ended as its ranks report or when rank 0 has died."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stepscope.dialects.mlflow import wire as mlflow
from stepscope.dialects.mlflow.sink import Target
from stepscope.dialects.mlflow.sink.tracking_server import Experiments, NoAnswer, Refused, Server, retry_of
from stepscope.dialects.mlflow.wire import pair_batches, start_tags
from stepscope.extend.sink import is_alive, slug
from stepscope.model.errors import Retry
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Record


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
