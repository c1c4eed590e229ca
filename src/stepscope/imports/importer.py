"""Writes the content of a source as the journals of a run; what was imported before is skipped."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.imports.source import Chunk, FoundRun, Part, Skip
from stepscope.journal import layout
from stepscope.journal.segments import Journal, Position, Tail
from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Writer
from stepscope.model.records import Event

EVENT_POSITION = "stepscope.import.position"
"""Last in each batch: how far the source was read. Batches are atomic, so nothing is imported twice."""
HOST = "import"
_pack = msgspec.msgpack.Encoder().encode
_row = msgspec.msgpack.Decoder(list[Any])


class Progress(NamedTuple):
    """How far the import of a run is."""

    part: str
    done: int
    size: int
    points: int
    """Metric values written by this chunk."""
    records: int


def import_run(home: Path, run: FoundRun, source: str, skip: Skip, project: str | None = None) -> Iterator[Progress]:
    """Import what is new in a run, and yield its progress."""
    named = run if project is None else replace(run, project=project)
    for part in named.parts:
        yield from _import_part(home, named, part, source, skip)


def _import_part(home: Path, run: FoundRun, part: Part, source: str, skip: Skip) -> Iterator[Progress]:
    folder, writer = writer_of(home, run, part, source)
    before = last_position(folder)
    journal = Journal(folder, writer)
    size = part.size()
    latest, wrote = part.time, False
    try:
        for chunk in part.read(before, skip):
            start = [] if before is not None else [_pack(_started(run, part, source))]
            latest = _latest(chunk, latest)
            mark = Event(latest, None, None, None, None, 1, EVENT_POSITION, chunk.position)
            journal.append([*start, *chunk.records, _pack(mark)])
            before, wrote = chunk.position, True
            yield Progress(part.name, chunk.done, size, chunk.points, len(chunk.records))
        if wrote:
            end = Event(latest, None, None, None, None, 9, EVENT_FINISHED, {"status": run.status})
            mark = Event(latest, None, None, None, None, 1, EVENT_POSITION, before or {})
            journal.append([_pack(end), _pack(mark)])
    finally:
        journal.close()


def writer_of(home: Path, run: FoundRun, part: Part, source: str) -> tuple[Path, Writer]:
    """Return the writer of the records of a part, and the folder of its journal."""
    token = hashlib.sha256(part.name.encode()).hexdigest()[:12]
    id = str(layout.WriterName(0, part.attempt, HOST, 0, token))
    who = Writer(
        id=id,
        run=run.id,
        project=run.project,
        name=run.name,
        attempt=part.attempt,
        host=HOST,
        wall_ns=part.time,
        resource={"stepscope.imported_from": source},
    )
    return layout.writer_folder(home, run.id, id), who


def _started(run: FoundRun, part: Part, source: str) -> Event:
    attrs: dict[str, Any] = {"config": run.config, "imported_from": source}
    attrs |= {"tags": run.tags} if run.tags else {}
    attrs |= {"notes": run.notes} if run.notes else {}
    return Event(part.time, None, None, None, None, 9, EVENT_STARTED, attrs)


def _latest(chunk: Chunk, before: int) -> int:
    """The time of the last record of a chunk, which is its second field."""
    return max(before, _row.decode(chunk.records[-1])[1]) if chunk.records else before


def last_position(folder: Path) -> dict[str, Any] | None:
    """Return how far a source was read into a writer's folder; None when the import was not started."""
    for path in reversed(layout.list_segments(folder)):
        found = None
        for batch in Tail(folder, Position(segment=int(path.stem))).read_all():
            for record in batch.records[-1:]:
                if isinstance(record, Event) and record.name == EVENT_POSITION:
                    found = record.attrs
        if found is not None:
            return found
    return None
