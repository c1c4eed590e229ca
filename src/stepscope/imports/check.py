"""Compares an imported run with its source, record by record."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from stepscope.imports.importer import EVENT_POSITION, writer_of
from stepscope.imports.source import FoundRun, Part
from stepscope.journal.segments import read_writer
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.records import Event, Record
from stepscope.wire.frames import unpack_record


class Comparison(NamedTuple):
    """The result: how many records are the same, and the first difference."""

    records: int
    difference: str = ""

    @property
    def same(self) -> bool:
        """Whether everything in the source was imported, and nothing else."""
        return not self.difference


def compare(home: Path, run: FoundRun) -> Comparison:
    """Read the source again and compare it with the journals."""
    count = 0
    for part in run.parts:
        pairs = zip_longest(_source_records(part), _journal_records(home, run, part))
        for theirs, ours in pairs:
            if not _same(theirs, ours):
                return Comparison(count, f"{part.name}: record {count + 1} is {theirs} in the source and {ours} here")
            count += 1
    return Comparison(count)


def _same(one: Record | None, other: Record | None) -> bool:
    return one == other or repr(one) == repr(other)  # a NaN equals nothing, but is spelled the same


def _source_records(part: Part) -> Iterator[Record]:
    for chunk in part.read(None, lambda reason, count: None):
        yield from map(unpack_record, chunk.records)


def _journal_records(home: Path, run: FoundRun, part: Part) -> Iterator[Record]:
    folder, _ = writer_of(home, run, part, "")
    first = True
    for batch in read_writer(folder):
        for record in batch.records:
            if first:  # the start of the run, which the import made
                first = False
            elif not (isinstance(record, Event) and record.name in (EVENT_POSITION, EVENT_FINISHED)):
                yield record
