"""The order in which the records of several writers are diagnosed: by the time at which they were written."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepscope.model.ports import Batch
from stepscope.model.records import Metric, Record, Span

OPEN_NS = 1_000_000_000
"""A span is reported as open so long after it began, or later."""


class Written(NamedTuple):
    """A record, when it was written, and by whom."""

    at: int
    rank: int
    attempt: int
    host: str
    record: Record


def written_at(record: Record) -> int:
    """When a record was written: a span when it ended."""
    if isinstance(record, Span):
        return record.time + (OPEN_NS if record.duration is None else record.duration)
    return record.time


def is_watched(record: Record) -> bool:
    """Whether a record is diagnosed: of instruments, only gauges without attributes have a course of their own."""
    if not isinstance(record, Metric) or record.instrument is None:
        return True
    return record.instrument.type == "gauge" and not record.attrs


def by_writer(batches: Iterable[Batch]) -> Iterator[Written]:
    """Yield the records of batches; of one writer, none is before the one it wrote earlier."""
    latest: dict[str, int] = {}
    for batch in batches:
        who = batch.writer
        at = latest.get(who.id, 0)
        for record in batch.records:
            if is_watched(record):
                at = max(at, written_at(record))
                yield Written(at, who.rank, who.attempt, who.host, record)
        latest[who.id] = at


def in_order(batches: Iterable[Batch]) -> list[Written]:
    """Return the records of batches in the order in which they were written; of one writer, as they came."""
    return sorted(by_writer(batches), key=lambda each: each.at)
