"""The runs of an MLflow server: metrics, params, tags and how a run ended, by its REST API."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from stepscope.model.errors import Reject, Retry
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, offer_key
from stepscope.model.records import Alert, Event, Log, Metric
from stepscope.model.writer import Writer
from stepscope.sinks.mlflow.ends import Ends, is_dead
from stepscope.sinks.mlflow.entries import Entry, by_run
from stepscope.sinks.mlflow.runs import Found, Runs
from stepscope.sinks.mlflow.server import Refused, Server
from stepscope.sinks.mlflow.target import Target
from stepscope.wire.mlflow import names, notes
from stepscope.wire.mlflow.points import points
from stepscope.wire.mlflow.requests import metric_batches, pair_batches

NO_LOGS = "MLflow has no place for logs"
GONE = "the run was deleted in MLflow; the rest goes to a new one"


class _Delivery:
    """How far the batches under way have come, so that a second offer sends only what is left."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self.key = key
        self.done: set[Hashable] = set()
        self.where: list[int] = []
        self.reasons: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()


class MetricsSink:
    """Sends metrics, params and tags to the MLflow run of each run; spans are not its business. Not thread-safe."""

    divisible = True

    def __init__(
        self, target: Target, *, clock: Callable[[], float] = time.monotonic, dead: Callable[[Writer], bool] = is_dead
    ) -> None:
        self.timeout = target.timeout
        self._server = Server(target, clock)
        self._runs = Runs(self._server, target, clock=clock)
        self._ends = Ends(self._server, self._runs, dead)
        self._under_way = _Delivery(())

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. The same point twice is stored once: MLflow's key holds all of it."""
        self._server.allow(self.timeout)
        key = offer_key(batches)
        if self._under_way.key != key:
            self._under_way = _Delivery(key)
        way = self._under_way
        for entries in by_run(batches).values():
            self._deliver(entries, way)
        self._under_way = _Delivery(())
        if way.where:
            raise Reject("; ".join(way.reasons), sorted(set(way.where)), together=True)
        logs = sum(isinstance(record, Log) for batch in batches for record in batch.records)
        return {**way.refused, **({NO_LOGS: logs} if logs else {})}

    def close(self) -> None:
        """End the runs of trainers that died, and close the connection."""
        self._ends.close()
        self._server.close()

    def _deliver(self, entries: list[Entry], way: _Delivery) -> None:
        """Deliver the records of one run."""
        if not any(isinstance(entry.record, (Metric, Event, Alert)) for entry in entries):
            return
        first = min(entries, key=lambda entry: (entry.writer.rank, entry.writer.attempt)).writer
        newest = max(entries, key=lambda entry: (entry.writer.attempt, -entry.writer.rank)).writer
        try:
            run = self._runs.open(first, _began(entries))
            self._begin_attempt(run, newest)
            self._send_params(run, entries, way)
            self._send_tags(run, entries, way)
            self._send_metrics(run, entries, way)
            self._ends.take(run, entries)
        except Refused as error:
            if error.is_absent:
                self._runs.forget(first)
                raise Retry(GONE) from error
            raise Retry(str(error)) from error

    def _begin_attempt(self, run: Found, writer: Writer) -> None:
        """Take a run into use, or open it again; the tag comes last, so that a kill in between repeats it all."""
        if writer.attempt <= run.attempt:
            return
        if run.status != "RUNNING" or run.presumed:
            self._server.post("runs/update", {"run_id": run.id, "status": "RUNNING"})
            run.status, run.presumed = "RUNNING", False
        for body in pair_batches(run.id, "tags", notes.attempt_tags(writer)):
            self._server.post("runs/log-batch", body)
        run.attempt = writer.attempt

    def _send_params(self, run: Found, entries: list[Entry], way: _Delivery) -> None:
        for _, writer, record in entries:
            if isinstance(record, Event) and record.name == EVENT_STARTED:
                config = record.attrs.get("config")
                if isinstance(config, dict):
                    self._log_params(run, notes.params(config), writer, way)

    def _log_params(self, run: Found, wanted: Mapping[str, str], writer: Writer, way: _Delivery) -> None:
        fresh = notes.fresh_params(wanted, run.params, writer)
        for body in pair_batches(run.id, "params", fresh):
            try:
                self._server.post("runs/log-batch", body)
            except Refused as error:
                if not error.blames_a_record:
                    raise
                self._log_params_singly(run, fresh, way)
                break
        run.params.update(fresh)

    def _log_params_singly(self, run: Found, fresh: Mapping[str, str], way: _Delivery) -> None:
        """Find out which of them MLflow does not take, perhaps because another host has just set it."""
        for key, value in fresh.items():
            try:
                self._server.post("runs/log-parameter", {"run_id": run.id, "key": key, "value": value})
            except Refused as error:
                if not error.blames_a_record:
                    raise
                way.refused["a part of the config was refused"] = 1

    def _send_tags(self, run: Found, entries: list[Entry], way: _Delivery) -> None:
        found: dict[str, str] = {}
        for _, _, record in entries:
            if isinstance(record, Event) and record.name == EVENT_STARTED:
                found |= {**notes.source_tags(record.attrs), **notes.described_tags(record.attrs)}
            elif isinstance(record, Event) and record.name == EVENT_EDITED:
                found |= notes.described_tags(record.attrs)
            elif isinstance(record, Alert) or (isinstance(record, Event) and record.name != EVENT_FINISHED):
                found |= [notes.note_tag(record)]
        where = [index for index, _, record in entries if isinstance(record, (Event, Alert))]
        for number, body in enumerate(pair_batches(run.id, "tags", found)):
            self._send(("tags", run.id, number), run, body, where, way)

    def _send_metrics(self, run: Found, entries: list[Entry], way: _Delivery) -> None:
        found = [
            (index, point)
            for index, writer, record in entries
            if isinstance(record, Metric)
            for point in points(writer, record)
        ]
        for number, (body, where) in enumerate(metric_batches(run.id, found)):
            self._send(("metrics", run.id, number), run, body, where, way)

    def _send(self, step: Hashable, run: Found, body: bytes, where: Sequence[int], way: _Delivery) -> None:
        if step in way.done:
            return
        try:
            self._server.post("runs/log-batch", body)
        except Refused as error:
            if not error.blames_a_record and not (error.status == 500 and self._is_well(run)):
                raise
            if error.blames_a_record or self._breaks(body):
                way.where += where
                way.reasons[str(error)] += 1
        way.done.add(step)

    def _breaks(self, body: bytes) -> bool:
        """Tell whether the server fails at a request once more: an error that came and went is no record's fault."""
        try:
            self._server.post("runs/log-batch", body)
        except Refused as error:
            if error.status != 500:
                raise
            return True
        return False

    def _is_well(self, run: Found) -> bool:
        """Tell whether the server can write at all: if so, a record is to blame for its error."""
        try:
            tags = {names.TAG_ATTEMPT: str(run.attempt)}
            self._server.post("runs/log-batch", pair_batches(run.id, "tags", tags)[0])
        except (Refused, Retry):
            return False
        return True


def _began(entries: Sequence[Entry]) -> int:
    """When a run began, in milliseconds: as its first process says, else with its first record."""
    said = [entry.writer.wall_ns for entry in entries if entry.writer.wall_ns > 0]
    return max(min(said or [entry.record.time for entry in entries]) // 1_000_000, 0)
