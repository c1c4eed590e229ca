"""A run as its journals tell it, read on and on: metrics, logs, alerts, open spans, who lives."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from stepscope.cli.watching.key_trend import KeyTrend
from stepscope.journal.layout import files_of, process_alive
from stepscope.journal.run_goodput import Folding
from stepscope.journal.segments import RunReader, find_writer
from stepscope.model import names
from stepscope.model.goodput_sums import conclude
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Span
from stepscope.model.states import WriterFacts, ending_of, run_state

KEPT = 200
"""Logs and alerts that are remembered."""
MOST_KEYS = 1000
PACE_SECONDS = 20.0
"""Steps per second are counted over so long."""
Clock = Callable[[], float]
Line = tuple[Writer, Log | Event | Alert]


class Recent:
    """The latest records by their own time, whatever the order in which they are read."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: list[Line] = []

    def add(self, who: Writer, record: Log | Event | Alert) -> None:
        """Take one."""
        self._lines.append((who, record))
        if len(self._lines) >= 2 * self._kept:
            self._lines = self.last(self._kept)

    def last(self, count: int) -> list[Line]:
        """The latest ones, the latest last."""
        return sorted(self._lines, key=lambda line: line[1].time)[-count:] if count > 0 else []


class Watched:
    """What a run did so far. `read` takes what is new and never reads anything twice."""

    def __init__(self, home: Path, run: str) -> None:
        self.run = run
        self._home = home
        self._reader = RunReader(home, run)
        self.writers: dict[str, Writer] = {}
        self.keys: dict[str, KeyTrend] = {}
        self.logs = Recent()
        self.alerts = Recent()
        self.open_spans: dict[bytes, tuple[Writer, Span]] = {}
        self.step: int | None = None
        self.started = 0
        self.seen = 0
        self.records = 0
        self._said: dict[str, tuple[str, float]] = {}
        """How and when writers reported their end."""
        self._seen: dict[str, float] = {}
        """The time of the last record of each writer."""
        self._files: dict[str, tuple[float, bool | None]] = {}
        """When each journal changed and whether its process existed, before the last `read`."""
        self._unread: set[str] = set()
        """Writers of which the last `read` left some."""
        self._steps: dict[str, int] = {}
        self._pace: deque[tuple[int, int]] = deque()
        self._goodput = Folding(home, run)

    def read(self, seconds: float = 0.25, clock: Clock = time.monotonic) -> bool:
        """Take what came, for about so long; False when there is nothing more for now."""
        tails = self._reader.look()
        self._files = {name: self._look(name, tail.folder) for name, tail in tails.items()}
        deadline = clock() + seconds
        self._unread.clear()
        for name, tail in tails.items():
            while batches := tail.read(1 << 20):
                for batch in batches:
                    self.take(batch)
                if clock() > deadline:
                    self._unread.add(name)
                    break
        return bool(self._unread)

    def take(self, batch: Batch) -> None:
        """Fold one batch in."""
        who = batch.writer
        self.writers[who.id] = who
        self.started = min(self.started or who.wall_ns, who.wall_ns) or self.started
        self.records += len(batch.records)
        newest = max([record.time for record in batch.records], default=0)
        self._seen[who.id] = max(self._seen.get(who.id, 0.0), newest / 1e9)
        self.seen = max(self.seen, newest)
        if who.wall_ns:
            self._goodput.sums.reach((who.rank, who.attempt), who.wall_ns, who.wall_ns)
        self._goodput.take((who.rank, who.attempt), batch.records)
        for record in batch.records:
            if isinstance(record, Metric):
                self._metric(who, record)
            elif isinstance(record, Span):
                self._span(who, record)
            elif isinstance(record, Alert):
                self._alert(who, record)
            else:
                self._line(who, record)

    def _metric(self, who: Writer, record: Metric) -> None:
        if record.step is None or record.category == "stepscope":
            return
        if record.category != "system":
            self._reach(who, record.step, record.time)
        for key, value in record.points():
            trend = self.keys.get(key)
            if trend is None:
                if len(self.keys) >= MOST_KEYS:
                    continue
                trend = self.keys[key] = KeyTrend(key)
            if not isinstance(value, (int, float)):
                value = value.total / value.count if value.count and value.total is not None else float("nan")
            trend.add(who.rank, record.step, +value)  # a bool is the number it equals

    def _reach(self, who: Writer, step: int, time: int) -> None:
        self._steps[who.id] = max(step, self._steps.get(who.id, step))
        newest = max(each.attempt for each in self.writers.values())
        if who.attempt == newest and (self.step is None or step != self.step):
            self.step = max((self._steps[id] for id, each in self.writers.items()
                             if each.attempt == newest and id in self._steps), default=step)  # fmt: skip
            self._pace.append((time, step))
            while self._pace and time - self._pace[0][0] > PACE_SECONDS * 1e9:
                self._pace.popleft()

    def _span(self, who: Writer, span: Span) -> None:
        if span.step is not None:
            self._steps[who.id] = max(span.step, self._steps.get(who.id, span.step))
        if span.duration is None:
            self.open_spans[span.span_id] = (who, span)
            return
        self.open_spans.pop(span.span_id, None)

    def _alert(self, who: Writer, record: Alert) -> None:
        self.alerts.add(who, record)
        self.logs.add(who, record)

    def _line(self, who: Writer, record: Log | Event) -> None:
        if isinstance(record, Event) and record.name == names.EVENT_FINISHED:
            self._said[who.id] = str(record.attrs.get("status", "finished")), self._seen[who.id]
        self.logs.add(who, record)

    @property
    def newest(self) -> list[Writer]:
        """The writers of the newest attempt."""
        last = max((who.attempt for who in self.writers.values()), default=1)
        return [who for who in self.writers.values() if who.attempt == last]

    def steps_per_second(self, status: str) -> float | None:
        """How fast it goes: of late while it runs, else over the whole run, as its goodput counts."""
        if status == "running" and len(self._pace) > 1:
            (first, low), (last, high) = self._pace[0], self._pace[-1]
            return (high - low) / ((last - first) / 1e9) if last > first and high > low else None
        return conclude(self._goodput.sums).steps_per_second

    def status(self) -> str:
        """The state of the run."""
        return run_state(map(self._facts, self.newest), time.time()) or "empty"

    def _facts(self, who: Writer) -> WriterFacts:
        said, said_at = self._said.get(who.id, (None, 0.0))
        changed, alive = self._files.get(who.id, (0.0, None))
        ending = None if said is None else ending_of(said)
        return WriterFacts(
            who.attempt, self._seen.get(who.id, 0.0), ending, said_at, main=who.main, rank=who.rank,
            touched=changed, alive=alive, unread=who.id in self._unread,
        )  # fmt: skip

    def _look(self, name: str, folder: Path) -> tuple[float, bool | None]:
        return files_of(folder).changed, process_alive(self.writers.get(name) or find_writer(folder))

    def living_spans(self) -> list[tuple[Writer, Span]]:
        """Spans that are open in a process of the newest attempt that has not ended, the oldest first."""
        living = {who.id for who in self.newest if who.id not in self._said}
        spans = [(who, span) for who, span in self.open_spans.values() if who.id in living]
        return sorted(spans, key=lambda each: each[1].time)
