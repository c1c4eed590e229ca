"""A source without the records that its sink is not to get."""

from collections import Counter
from typing import Any

import msgspec

from stepscope.model.ports import Batch
from stepscope.pump import Source
from stepscope.sinks.record_filter import RecordFilter
from stepscope.wire import frames

MOST_READS = 64
"""Reads in a row of which nothing passes, before the caller gets its turn."""
FILTERED = "filtered"
_encode = msgspec.msgpack.Encoder().encode


class Filtered:
    """Hands on the records of a source that pass a filter, packed or not; what does not pass is settled with the rest.

    The records that are left out are no outcome of the sink: they are counted as `filtered`, once they are settled.
    """

    def __init__(self, source: Source, records: RecordFilter) -> None:
        self._source, self._filter = source, records
        self._left_out = 0
        self.counts: Counter[str] = Counter()
        """Where they are counted."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next batches with a record that passes; empty ones when many reads in a row had none."""
        batches: list[Batch] = []
        for _ in range(MOST_READS):
            batches = self._source.read(limit)
            passed = [self._passing(batch) for batch in batches]
            full = [batch for batch in passed if batch.records]
            if full or not batches:
                return full
            self.settle()
        return [batch._replace(records=[]) for batch in batches]

    def settle(self) -> None:
        """Take note that all that was read is delivered or left out."""
        self._source.settle()
        self.counts[FILTERED] += self._left_out
        self._left_out = 0

    def rewind(self) -> None:
        """Forget what was read since the last `settle`."""
        self._source.rewind()
        self._left_out = 0

    def _passing(self, batch: Batch) -> Batch:
        kept = [record for record in map(self._apply, batch.records) if record is not None]
        self._left_out += len(batch.records) - len(kept)
        return batch._replace(records=kept)

    def _apply(self, record: Any) -> Any:
        """What of a record passes, packed if it came so; None for nothing."""
        if not isinstance(record, msgspec.Raw):
            return self._filter.apply(record)
        try:
            found = frames.unpack_record(record)
        except ValueError:  # for the sink to judge
            return record
        kept = self._filter.apply(found)
        if kept is None or kept is found:
            return None if kept is None else record
        return msgspec.Raw(_encode(kept))
