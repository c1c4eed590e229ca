"""About how much memory records take: their texts and lists count, and a constant for the rest of each."""

from collections.abc import Iterable, Sequence
from typing import Any

from stepscope.hub.intake.sources import ReceivedBatch
from stepscope.hub.store.write.metric_rows import as_rows
from stepscope.model.records import Alert, Metric, Record, Span

RECORD_BYTES = 300
"""What a record takes without its values."""
_ITEM_BYTES = 32
"""A number, or a text without its letters."""
_SAMPLED = 8
_PLAIN = frozenset((int, float, bool, type(None)))


def measured(items: Iterable[ReceivedBatch]) -> list[ReceivedBatch]:
    """Return batches with the memory that their records take."""
    return [item._replace(bytes=held_bytes(item.batch.records)) for item in items]


def held_bytes(records: Sequence[Record]) -> int:
    """Estimate how much memory records take."""
    size = RECORD_BYTES * len(records)
    if as_rows(records) is not None:
        return size
    metrics = 0
    for record in records:
        if isinstance(record, Metric):
            metrics += 1
            continue
        if record.attrs:
            size += _of_values(record.attrs.values())
        if isinstance(record, Span):
            if record.message or record.events or record.links:
                size += len(record.message) + _of_values(record.events) + _of_values(record.links)
        elif isinstance(record, Alert):
            size += len(record.message)
        elif record.body is not None:
            size += _of_values((record.body,))
    return size + _of_metrics(records, metrics) if metrics else size


def _of_metrics(records: Sequence[Record], count: int) -> int:
    """Estimate what metrics hold by some of them: those of one batch are alike, and there are many."""
    every = max(1, len(records) // _SAMPLED)
    some = [record for record in records[::every] if type(record) is Metric]
    found = sum([_of_values(each.values.values()) + _of_values(each.attrs.values()) for each in some])
    return found * count // max(len(some), 1)


def _of_values(values: Iterable[Any]) -> int:
    size = 0
    for value in values:
        kind = type(value)
        size += _ITEM_BYTES
        if kind is str or kind is bytes:
            size += len(value)
        elif kind is dict:
            size += _of_values(value) + _of_values(value.values())
        elif kind is list or kind is tuple:
            size += _of_values(value)
        elif kind not in _PLAIN:
            size += _of_values([getattr(value, name) for name in getattr(value, "__struct_fields__", ())])
    return size
