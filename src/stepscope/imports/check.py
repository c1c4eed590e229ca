"""Comparison of an imported run with its source: values of all series, texts, alerts, files and the description."""

import filecmp
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.imports.importer import EVENT_POSITION, IMPORTED_FROM, description, files_folder, keep_time, writer_of
from stepscope.imports.source import FoundRun, Part, SourceFile
from stepscope.journal.segments import read_writer
from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.records import Event, Metric, Record
from stepscope.wire.frames import unpack_record

_pack = msgspec.msgpack.Encoder().encode
_MASK = 2**64 - 1

Datum = tuple[str, tuple[Any, ...]]
"""An item to compare: its series, and its step, time and value."""
Sums = dict[str, tuple[int, int]]
"""By series, the number of items and the sum of their hashes, which does not depend on the order."""


class Comparison(NamedTuple):
    """The result: the number of records in the source, and the first difference."""

    records: int
    difference: str = ""

    @property
    def same(self) -> bool:
        """Whether everything in the source was imported, and nothing else."""
        return not self.difference


def compare(home: Path, run: FoundRun, source: str) -> Comparison:
    """Read the source again and compare it with the journals; memory is bounded by the number of series.

    The order is ignored: a source that grows during the import is read in another order later.
    """
    count = 0
    for part in run.parts:
        folder, _ = writer_of(home, run, part, source)
        keep_time(folder, part)
        wrong: list[str] = []
        written: dict[str, Event] = {}
        theirs = _sums(_source_data(part, partial(_add_file_difference, files_folder(home, run.id), wrong)))
        ours = _sums(_journal_data(folder, written))
        count += sum(each for each, _ in theirs.values())
        described = written or part is run.parts[0] or theirs
        wrong += _description_difference(written, run, source) if described else []
        difference = _first_difference(part, folder, theirs, ours) or "; ".join(wrong[:1])
        if difference:
            return Comparison(count, f"{part.name}: {difference}")
    return Comparison(count)


def _sums(data: Iterable[Datum]) -> Sums:
    found: Sums = {}
    for series, datum in data:
        count, total = found.get(series, (0, 0))
        found[series] = count + 1, (total + hash(_pack(datum))) & _MASK
    return found


def _first_difference(part: Part, folder: Path, theirs: Sums, ours: Sums) -> str:
    for series in {**theirs, **ours}:
        if theirs.get(series) != ours.get(series):
            counts = [found.get(series, (0, 0))[0] for found in (theirs, ours)]
            return f"{series}: {counts[0]:,} in the source, {counts[1]:,} imported; {_where(part, folder, series)}"
    return ""


def _where(part: Part, folder: Path, series: str) -> str:
    """Find the first difference in a series; only this series is held in memory."""
    theirs, ours = (
        sorted((datum for name, datum in data if name == series), key=_order)
        for data in (_source_data(part), _journal_data(folder, {}))
    )
    for one, other in zip_longest(theirs, ours):
        if one is None or other is None or _pack(one) != _pack(other):
            return f"the first difference is {_shown(one)} in the source, {_shown(other)} imported"
    return "the source changed during the comparison"


def _order(datum: tuple[Any, ...]) -> tuple[Any, ...]:
    step, time, value = datum
    return step is None, step or 0, time, repr(value)


def _shown(datum: tuple[Any, ...] | None) -> str:
    if datum is None:
        return "nothing"
    step, _, value = datum
    return f"{value!r:.200}" if step is None else f"{value!r:.200} at step {step}"


def _data(record: Record) -> Iterator[Datum]:
    if isinstance(record, Metric):
        over = f" over {record.axis}" if record.axis else ""
        for key, value in record.points():
            yield f"metric {key}{over}", (record.step, record.time, value)
    else:
        kind = type(record).__name__.lower()
        yield f"{kind} records", (getattr(record, "step", None), record.time, record)


def _source_data(part: Part, on_file: Callable[[SourceFile], None] = lambda file: None) -> Iterator[Datum]:
    for chunk in part.read(None, lambda reason, count: None):
        for packed in chunk.records:
            yield from _data(unpack_record(packed))
        for file in chunk.files:
            on_file(file)


def _journal_data(folder: Path, written: dict[str, Event]) -> Iterator[Datum]:
    """Yield the imported items; the latest of the import's own events goes to `written` by name."""
    for batch in read_writer(folder):
        for record in batch.records:
            if isinstance(record, Event) and _is_ours(record):
                written[record.name] = record
            else:
                yield from _data(record)


def _is_ours(event: Event) -> bool:
    """Whether the import itself wrote an event, which is not in the source."""
    start = event.name == EVENT_STARTED and IMPORTED_FROM in event.attrs
    return start or event.name in (EVENT_POSITION, EVENT_FINISHED)


def _add_file_difference(folder: Path, found: list[str], file: SourceFile) -> None:
    try:
        found += [] if _is_same(folder / file.name, file.data) else [f"the file {file.name} differs"]
    except OSError as error:
        found.append(f"the imported file {file.name} cannot be read: {error.strerror}")


def _is_same(path: Path, data: bytes | Path) -> bool:
    if isinstance(data, bytes):
        return path.read_bytes() == data
    return filecmp.cmp(path, data, shallow=False)


def _description_difference(written: dict[str, Event], run: FoundRun, source: str) -> list[str]:
    if EVENT_STARTED not in written or EVENT_FINISHED not in written:
        return ["it was not imported"]
    expected, found = description(run, source), written[EVENT_STARTED].attrs
    for key in {**expected, **found}:
        if _pack(expected.get(key)) != _pack(found.get(key)):
            return [f"{key} is {expected.get(key)!r:.200} in the source, {found.get(key)!r:.200} imported"]
    status = written[EVENT_FINISHED].attrs.get("status")
    return [] if status == run.status else [f"the status is {run.status} in the source, {status} imported"]
