"""The runs of an MLflow server: metrics, params, tags and how a run ended, by its REST API."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence

from stepscope.dialects.mlflow import wire as mlflow
from stepscope.dialects.mlflow.sink import Target
from stepscope.dialects.mlflow.sink.run_mapping import Ends, Entry, Found, Runs, by_run, is_dead
from stepscope.dialects.mlflow.sink.tracking_server import Refused, Server
from stepscope.dialects.mlflow.wire import metric_batches, pair_batches, points
from stepscope.extend.sink import SERVER_ERROR, Delivery
from stepscope.model.errors import Retry
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric
from stepscope.model.run_description import config_of

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
