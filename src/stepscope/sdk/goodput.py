"""A run's goodput out of its journals, read on from where the last look ended; the training loop pays nothing."""

import threading
from collections.abc import Sequence
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.segments import Tail
from stepscope.model import names
from stepscope.model.goodput import TOKEN_KEYS, Goodput, Part, Sums, TokenCount, bucket_of, conclude
from stepscope.model.records import Metric, Record, Span

MOST_OPEN = 100_000
"""Spans whose end is awaited because something below them ended; beyond that the oldest are forgotten."""
_OURS = ("stepscope", "system")


class Folding:
    """Folds what the writers of a run have journaled, each batch once."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self._run = home, run
        self._tails: dict[str, Tail] = {}
        self._below: dict[bytes, int] = {}
        """Nanoseconds of bucketed spans by the id of the span right above them, which has not ended."""
        self.sums = Sums()
        self._lock = threading.Lock()

    def look(self) -> Goodput:
        """Read what is new, and conclude; a journal that cannot be read now is read the next time."""
        with self._lock:
            try:
                self._read()
            except OSError:
                pass
            return conclude(self.sums)

    def _read(self) -> None:
        for name in layout.list_writers(self._home, self._run):
            tail = self._tails.get(name)
            if tail is None:
                tail = self._tails[name] = Tail(layout.writer_folder(self._home, self._run, name))
            for batch in tail.read_all():
                part = batch.writer.rank, batch.writer.attempt
                if batch.writer.wall_ns:
                    self.sums.reach(part, batch.writer.wall_ns, batch.writer.wall_ns)
                self.take(part, batch.records)

    def take(self, part: Part, records: Sequence[Record]) -> None:
        """Fold records of one writer, in the order they were written."""
        for record in records:
            lasted = record.duration or 0 if isinstance(record, Span) else 0
            self.sums.reach(part, record.time, record.time + lasted)
            if isinstance(record, Span):
                if record.duration is not None:
                    self._take_span(part, record, record.duration)
            elif isinstance(record, Metric) and record.category not in _OURS:
                self._take_metric(part, record)

    def _take_span(self, part: Part, span: Span, lasted: int) -> None:
        if span.name == names.SPAN_STEP:
            self.sums.steps[part] += 1
        below = self._below.pop(span.span_id, 0)
        bucket = bucket_of(span.name, span.attrs.get(names.ATTR_BUCKET))
        if bucket is None:
            return
        self.sums.spent[bucket, span.name] += lasted - below
        if span.parent_id is not None:
            self._below[span.parent_id] = self._below.get(span.parent_id, 0) + lasted
            if len(self._below) > MOST_OPEN:
                del self._below[next(iter(self._below))]

    def _take_metric(self, part: Part, metric: Metric) -> None:
        if metric.step is not None and metric.axis is None:
            self.sums.walk(part, metric.step, metric.step)
        for key, value in metric.points():
            if key.rpartition("/")[2] in TOKEN_KEYS and isinstance(value, (int, float)) and value == value:
                self.sums.tokens.setdefault((key, part), TokenCount()).add(value)
