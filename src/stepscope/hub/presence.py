"""Who is there: when each writer was last heard of, and what it said of its end."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import cast, get_args

from stepscope.hub.backlog import Item
from stepscope.hub.states import State, WriterFacts, run_state
from stepscope.model import names
from stepscope.model.records import Event, Metric, Record

MOST_RUNS = 20_000
_SELF = "stepscope"
_STATES = frozenset(get_args(State))


class Presence:
    """Facts of the writers heard of since the hub started; `take` listens to the pump, any thread may read.

    A journal read late says nothing about now, so the time of a record counts and not that of its arrival,
    unless the record is from the future of this machine's clock.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, dict[str, WriterFacts]] = {}

    def take(self, items: Sequence[Item]) -> None:
        """Learn from batches."""
        now = self._clock()
        with self._lock:
            for item in items:
                writer, records = item.batch.writer, item.batch.records
                run = self._runs.pop(writer.run, None) or {}
                known = run.get(writer.id) or WriterFacts(writer.attempt, 0.0, beats=False, main=writer.main)
                run[writer.id] = learn(known, records, now)
                self._runs[writer.run] = run
            while len(self._runs) > MOST_RUNS:
                del self._runs[next(iter(self._runs))]

    def facts(self, run: str) -> dict[str, WriterFacts]:
        """Copy what is known of a run's writers, by id; empty when nothing came since the hub started."""
        with self._lock:
            return dict(self._runs.get(run, {}))

    def state(self, run: str) -> State | None:
        """Tell how a run fares; None when nothing came since the hub started."""
        return run_state(self.facts(run).values(), self._clock())

    def states(self) -> dict[str, State]:
        """Tell how all runs fare of which something came since the hub started, by id."""
        now = self._clock()
        with self._lock:
            states = {run: run_state(writers.values(), now) for run, writers in self._runs.items()}
        return {run: state for run, state in states.items() if state is not None}


def learn(facts: WriterFacts, records: Sequence[Record], now: float) -> WriterFacts:
    """Add what records tell to what is known of their writer."""
    said, said_at, beats = facts.said, facts.said_at, facts.beats
    newest = max([record.time for record in records], default=0)
    seen = max(facts.seen, min(newest / 1e9, now))
    if not beats:
        beats = _SELF in {record.category for record in records if type(record) is Metric}
    for record in [record for record in records if type(record) is Event]:
        if record.name == names.EVENT_FINISHED:
            status = record.attrs.get("status", "finished")
            said = cast(State, status) if status in _STATES else "finished"
            said_at = min(record.time / 1e9, now)
    return WriterFacts(facts.attempt, seen, said, said_at, beats, facts.main)
