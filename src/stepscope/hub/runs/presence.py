"""The last record of each writer since the hub started, and the end it reported."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.store.write.metric_rows import as_rows
from stepscope.hub.threads import Topic
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.model.states import WriterFacts, beat_interval, ending_of

MAX_RUNS = 20_000
_SELF = "stepscope"


class Presence:
    """Facts about the writers seen since the hub started, also by other hubs on the same store; any thread may read.

    A journal may be read late, so the time of a record counts and not that of its arrival, unless the record is from
    the future of this machine's clock.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, stored: Sequence[Topic[Sequence[ReceivedBatch]]] = ()
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, dict[str, WriterFacts]] = {}
        for topic in stored:
            topic.subscribe(self.take)

    def take(self, items: Sequence[ReceivedBatch]) -> None:
        """Update the facts from batches."""
        now = self._clock()
        with self._lock:
            for item in items:
                writer, records = item.batch.writer, item.batch.records
                if as_rows(records) is None and all(map(_is_edit, records)):
                    continue
                run = self._runs.pop(writer.run, None) or {}
                known = run.get(writer.id) or _unseen(writer)
                run[writer.id] = learn(known, records, now)
                self._runs[writer.run] = run
            while len(self._runs) > MAX_RUNS:
                del self._runs[next(iter(self._runs))]

    def forget(self, run: str) -> None:
        """Forget a run that was deleted."""
        with self._lock:
            self._runs.pop(run, None)

    def facts(self, run: str) -> dict[str, WriterFacts]:
        """Copy the facts about a run's writers, by id; empty when nothing arrived since the hub started."""
        with self._lock:
            return dict(self._runs.get(run, {}))

    def runs(self) -> frozenset[str]:
        """The runs with records since the hub started."""
        with self._lock:
            return frozenset(self._runs)


def _unseen(writer: Writer) -> WriterFacts:
    interval = beat_interval(writer.resource)
    return WriterFacts(writer.attempt, 0.0, beats=False, interval=interval, main=writer.main, rank=writer.rank)


def _is_edit(record: Record) -> bool:
    """Whether a record can be made long after the run, by an edit, so that it is no sign of a process."""
    return type(record) is Event and record.name in (names.EVENT_EDITED, names.EVENT_CONFIG)


def learn(facts: WriterFacts, records: Sequence[Record], now: float) -> WriterFacts:
    """Update the facts about a writer from its records."""
    reported_end, reported_at, beats = facts.reported_end, facts.reported_at, facts.beats
    if (rows := as_rows(records)) is not None:
        seen = max(facts.seen, min(int(rows.times.max()) / 1e9, now))
        return replace(facts, seen=seen, beats=beats or rows.category == _SELF)
    newest = max([record.time for record in records], default=0)
    seen = max(facts.seen, min(newest / 1e9, now))
    if not beats:
        beats = _SELF in {record.category for record in records if type(record) is Metric}
    for record in [record for record in records if type(record) is Event]:
        if record.name == names.EVENT_FINISHED:
            reported_end = ending_of(record.attrs.get("status", "finished"))
            reported_at = max(min(record.time / 1e9, now), seen)
    return replace(facts, seen=seen, reported_end=reported_end, reported_at=reported_at, beats=beats)
