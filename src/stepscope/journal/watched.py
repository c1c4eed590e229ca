"""A run that is followed while it is recorded: trends of metrics, recent logs and alerts, open spans, state."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from stepscope.journal.key_trend import KeyTrend
from stepscope.journal.run_goodput import Folding
from stepscope.journal.run_summary import SELF, OnDisk, RunSummary, on_disk
from stepscope.journal.segments import RunReader, find_writer
from stepscope.model.goodput_sums import conclude
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log, Metric, Span, mean_of
from stepscope.model.sample_columns import is_sample

KEPT = 200
"""How many logs and alerts are kept."""
MAX_KEYS = 1000
PACE_SECONDS = 20.0
"""The period over which steps per second are counted."""
Clock = Callable[[], float]
Line = tuple[Writer, Log | Event | Alert]


class Recent:
    """The latest records by their own times, in whatever order they are read."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lines: list[Line] = []

    def add(self, who: Writer, record: Log | Event | Alert) -> None:
        """Add a record."""
        self._lines.append((who, record))
        if len(self._lines) >= 2 * self._kept:
            self._lines = self.last(self._kept)

    def last(self, count: int) -> list[Line]:
        """The latest ones, the latest last."""
        return sorted(self._lines, key=_written)[-count:] if count > 0 else []


def _written(line: Line) -> tuple[int, int, int]:
    who, record = line
    return record.time, who.attempt, who.rank


class Watched:
    """What a run did so far. `read` reads on, and reads nothing twice."""

    def __init__(self, home: Path, run: str) -> None:
        self.run = run
        self._reader = RunReader(home, run)
        self.summary = RunSummary(run, details=False)
        self.keys: dict[str, KeyTrend] = {}
        self.logs = Recent()
        self.alerts = Recent()
        self._disk: dict[str, OnDisk] = {}
        """The journals before the last `read`, by writer."""
        self._unread: set[str] = set()
        """Writers that the last `read` did not read to the end."""
        self._pace: deque[tuple[int, int]] = deque()
        self._attempt = 0
        self._goodput = Folding(home, run)

    def read(self, seconds: float = 0.25, clock: Clock = time.monotonic) -> bool:
        """Read what was written since the last call, for about so long; False when nothing is left for now."""
        tails = self._reader.look()
        for name, tail in tails.items():
            known = self.summary.writers.get(name)
            self._disk[name] = on_disk(tail.folder, known.writer if known else find_writer(tail.folder))
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
        """Add a batch."""
        who = batch.writer
        self.summary.take(batch)
        if who.attempt > self._attempt:
            self._attempt = who.attempt
            self._pace.clear()
        if who.wall_ns:
            self._goodput.sums.reach((who.rank, who.attempt), who.wall_ns, who.wall_ns)
        self._goodput.take((who.rank, who.attempt), batch.records)
        for record in batch.records:
            if isinstance(record, Metric):
                self._take_metric(who, record)
            elif isinstance(record, Log | Event | Alert) and not is_sample(record):
                self.logs.add(who, record)
                if isinstance(record, Alert):
                    self.alerts.add(who, record)

    def _take_metric(self, who: Writer, record: Metric) -> None:
        if record.step is None or record.category == SELF:
            return
        if record.category != "system" and who.attempt == self._attempt:
            self._note_pace(record.step, record.time)
        for key, value in record.points():
            trend = self.keys.get(key)
            if trend is None:
                if len(self.keys) >= MAX_KEYS:
                    continue
                trend = self.keys[key] = KeyTrend(key)
            number = mean_of(value)
            if number is not None:
                trend.add(who, record.step, record.time, number)

    def _note_pace(self, step: int, time: int) -> None:
        if not self._pace or step > self._pace[-1][1]:
            self._pace.append((time, step))
            while time - self._pace[0][0] > PACE_SECONDS * 1e9:
                self._pace.popleft()

    @property
    def newest(self) -> list[Writer]:
        """The writers of the newest attempt."""
        writers = (each.writer for each in self.summary.writers.values())
        return [who for who in writers if who.attempt == self._attempt]

    @property
    def step(self) -> int | None:
        """The furthest step of the newest attempt."""
        return self.summary.last_step

    def last(self, key: str) -> tuple[float | None, int]:
        """The last value of a metric, and how many points it has."""
        trend = self.keys[key]
        return trend.last, trend.count

    def trends(self, keys: Sequence[str]) -> list[KeyTrend]:
        """Metrics as they are drawn."""
        return [self.keys[key] for key in keys]

    @property
    def source(self) -> str:
        """Where it was read from, and how much there is."""
        return f"{self.records} records read"

    @property
    def records(self) -> int:
        """How many records were read."""
        return sum(each.records for each in self.summary.writers.values())

    @property
    def seconds(self) -> float | None:
        """Seconds from the first start to the last record."""
        started, ended = self.summary.started, self.summary.ended
        return (ended - started) / 1e9 if started and ended else None

    def steps_per_second(self, status: str) -> float | None:
        """Return the pace: the recent one of a running run, else that of the whole run, as its goodput counts."""
        if status == "running" and len(self._pace) > 1:
            (first, low), (last, high) = self._pace[0], self._pace[-1]
            return (high - low) / ((last - first) / 1e9) if last > first and high > low else None
        return conclude(self._goodput.sums).steps_per_second

    def status(self) -> str:
        """The state of the run."""
        return self.summary.status(self._disk, time.time(), self._unread)

    def living_spans(self) -> list[tuple[Writer, Span]]:
        """Open spans of the processes of the newest attempt that have not ended, the oldest first."""
        writers = self.summary.writers
        living = {who.id for who in self.newest if writers[who.id].reported_end is None}
        spans = [(who, span) for who, span in self.summary.open_spans.values() if who.id in living]
        return sorted(spans, key=lambda each: each[1].time)
