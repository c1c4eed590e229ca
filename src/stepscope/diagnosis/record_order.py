"""Merges the records of several writers in the order in which they were written."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stepscope.model.ports import Batch
from stepscope.model.records import Metric, Record, Span

OPEN_NS = 1_000_000_000
"""A span is reported as open this long after its start at the earliest."""


class Written(NamedTuple):
    """A record with its time of writing and its writer."""

    at: int
    rank: int
    attempt: int
    host: str
    record: Record


def written_at(record: Record) -> int:
    """Return when a record was written: the end of a span, the time of others."""
    if type(record) is Span:
        return record.time + (OPEN_NS if record.duration is None else record.duration)
    return record.time


def is_watched(record: Record) -> bool:
    """Return whether a record is diagnosed: of instruments, only gauges without attributes are."""
    if not isinstance(record, Metric) or record.instrument is None:
        return True
    return record.instrument.type == "gauge" and not record.attrs


def by_writer(batches: Iterable[Batch]) -> Iterator[Written]:
    """Yield the records of batches, with times that never decrease within a writer."""
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
    """Return the records of batches in the order of writing, of one time by rank; a writer keeps its order."""
    return sorted(by_writer(batches), key=lambda each: (each.at, each.rank))
