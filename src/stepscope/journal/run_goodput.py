"""The goodput of a run, computed from its journals; each call reads on from where the last one ended."""

import threading
from collections.abc import Sequence
from pathlib import Path

from stepscope.journal.segments import RunReader
from stepscope.model import names
from stepscope.model.goodput_sums import TOKEN_KEYS, Goodput, Part, Sums, TokenCount, bucket_of, conclude, weight_of
from stepscope.model.records import Metric, Record, Span, began_at

MAX_OPEN = 100_000
"""The most unfinished spans for which the time of ended children is kept; beyond that the oldest are dropped."""
_OURS = ("stepscope", "system")


class Folding:
    """Sums up the time of a run by bucket; each batch counts once."""

    def __init__(self, home: Path, run: str) -> None:
        self._reader = RunReader(home, run)
        self._below: dict[bytes, int] = {}
        """Nanoseconds of bucketed spans, by the id of their unfinished parent."""
        self.sums = Sums()
        self._lock = threading.Lock()

    def look(self) -> Goodput:
        """Read new batches and return the result; an unreadable journal is retried by the next call."""
        with self._lock:
            try:
                self._read()
            except OSError:
                pass
            return conclude(self.sums)

    def _read(self) -> None:
        for batch in self._reader.read():
            part = batch.writer.rank, batch.writer.attempt
            if batch.writer.wall_ns:
                self.sums.reach(part, batch.writer.wall_ns, batch.writer.wall_ns)
            self.take(part, batch.records)

    def take(self, part: Part, records: Sequence[Record]) -> None:
        """Add records of one writer, in the order they were written."""
        for record in records:
            lasted = record.duration or 0 if isinstance(record, Span) else 0
            self.sums.reach(part, began_at(record, self.sums.begun.get(part, 0)), record.time + lasted)
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
        weight = weight_of(span.attrs.get(names.ATTR_SAMPLED))
        self.sums.spent[bucket, span.name] += (lasted - below) * weight
        if span.parent_id is not None:
            self._below[span.parent_id] = self._below.get(span.parent_id, 0) + lasted * weight
            if len(self._below) > MAX_OPEN:
                del self._below[next(iter(self._below))]

    def _take_metric(self, part: Part, metric: Metric) -> None:
        if metric.step is not None and metric.axis is None:
            self.sums.walk(part, metric.step, metric.step)
        for key, value in metric.points():
            if key.rpartition("/")[2] in TOKEN_KEYS and isinstance(value, (int, float)) and value == value:
                self.sums.tokens.setdefault((key, part), TokenCount()).add(value)
