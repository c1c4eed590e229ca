"""Records of batches, parted by run, each with who wrote it and where it stood."""

from collections.abc import Sequence
from typing import NamedTuple

from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Record


class Entry(NamedTuple):
    """A record, who wrote it, and its index among all that were offered."""

    at: int
    writer: Writer
    record: Record


def by_run(batches: Sequence[Batch]) -> dict[str, list[Entry]]:
    """Part the records of batches by run, in order."""
    found: dict[str, list[Entry]] = {}
    at = 0
    for batch in batches:
        entries = found.setdefault(batch.writer.run, [])
        entries += [Entry(index, batch.writer, record) for index, record in enumerate(batch.records, at)]
        at += len(batch.records)
    return found
