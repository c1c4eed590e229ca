"""How runs end in MLflow: as their ranks say, and as FAILED where rank 0 died and said nothing."""

import contextlib
import os
from collections.abc import Callable, Sequence

from stepscope.journal.layout import is_alive, slug
from stepscope.model.errors import Retry
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Writer
from stepscope.model.records import Event
from stepscope.sinks.mlflow.entries import Entry
from stepscope.sinks.mlflow.runs import Found, Runs
from stepscope.sinks.mlflow.server import Refused, Server
from stepscope.wire import mlflow
from stepscope.wire.mlflow import pair_batches

LEAVE_SECONDS = 5.0
"""How long the last words about dead trainers may take."""
_SEVERITY = ("RUNNING", *mlflow.STATUSES.values())
"""Statuses, mildest first: within an attempt the worst that any rank said stands."""


def is_dead(writer: Writer) -> bool:
    """Tell whether the process of a writer was on this host and is no more."""
    here = slug(os.uname().nodename).replace(".", "-")
    return writer.host == here and not is_alive(writer.pid, writer.wall_ns)


class Ends:
    """The ends of the runs of one server."""

    def __init__(self, server: Server, runs: Runs, dead: Callable[[Writer], bool] = is_dead) -> None:
        self._server, self._runs, self._dead = server, runs, dead
        self._firsts: dict[str, tuple[Found, Writer, int]] = {}
        """The run, its rank 0 in the newest attempt, and the time of its last record."""

    def take(self, run: Found, entries: Sequence[Entry]) -> None:
        """Set the status that the ranks of the newest attempt give the run: the worst, and well only by rank 0."""
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
        """End the runs whose rank 0 is dead; what it said itself, if that comes later, stands above this."""
        self._server.allow(LEAVE_SECONDS)
        for run, writer, time in self._firsts.values():
            if run.status == "RUNNING" and not run.presumed and writer.attempt == run.attempt and self._dead(writer):
                with contextlib.suppress(Refused, Retry):
                    self._update(run, "FAILED", time, presumed=True)
        self._firsts.clear()
