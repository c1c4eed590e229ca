"""Import of a run: its content is written to journals; what was imported before is skipped."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.imports.source import Chunk, FoundRun, Part, Skip, SourceFile
from stepscope.journal import layout
from stepscope.journal.atomic_files import FileLock, Locked, replace_file
from stepscope.journal.segments import Journal, Position, Tail, find_writer
from stepscope.model.errors import ConfigError
from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Writer
from stepscope.model.records import Event
from stepscope.model.redaction import redact

EVENT_POSITION = "stepscope.import.position"
"""The last event of each batch: the position in the source. Batches are atomic, so nothing is imported twice."""
IMPORTED_FROM = "imported_from"
"""In the start event of an imported run: the tool."""
HOST = "import"
_ABOUT = "_about"
"""In a position: the digest of the stored description of the run."""
_ENDED = "_ended"
"""In a position: whether the end of the run is stored after it."""
_LONGEST_TEXT = 1024 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)
_pack = msgspec.msgpack.Encoder().encode
_row = msgspec.msgpack.Decoder(list[Any])


class Progress(NamedTuple):
    """The progress of the import of a run."""

    part: str
    done: int
    size: int
    points: int
    """Metric values written by this chunk."""
    records: int


def import_run(home: Path, run: FoundRun, source: str, skip: Skip, project: str | None = None) -> Iterator[Progress]:
    """Import the new content of a run and yield the progress; ConfigError while another process imports it."""
    named = replace(run, name=_text(run.name), project=_text(run.project if project is None else project))
    folder = layout.runs_folder(home) / run.id
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with FileLock(folder / "import.lock"):
            for part in named.parts:
                yield from _import_part(home, named, part, source, skip)
    except Locked:
        raise ConfigError(f"another process is importing the run {run.id}") from None


def _import_part(home: Path, run: FoundRun, part: Part, source: str, skip: Skip) -> Iterator[Progress]:
    folder, writer = writer_of(home, run, part, source)
    before, known, ended, until = last_position(folder)
    keep_time(folder, part)
    about = description(run, source)
    digest = hashlib.sha256(_pack((about, run.status))).hexdigest()[:16]
    described = known == digest
    journal, size = Journal(folder, writer), part.size()
    latest = part.time if known is None else max(part.time, until + 1)  # the latest description is used
    try:
        for chunk in part.read(before, skip):
            for file in chunk.files:
                _keep(files_folder(home, run.id), file, skip)
            latest = _latest(chunk, latest)
            start = [] if described else [_event(part.time if known is None else latest, EVENT_STARTED, about)]
            journal.append([*start, *chunk.records, _mark(latest, chunk.position, digest)])
            before, described, ended = chunk.position, True, False
            yield Progress(part.name, chunk.done, size, chunk.points, len(chunk.records))
        if not described and (known is not None or part is run.parts[0]):
            journal.append([_event(latest, EVENT_STARTED, about), _mark(latest, before or {}, digest)])
            described, ended = True, False
            yield Progress(part.name, size, size, 0, 1)
        if described and not ended:
            journal.close()  # a small last segment: the position is read from it repeatedly while files grow
            end = _event(latest, EVENT_FINISHED, {"status": run.status})
            journal.append([end, _mark(latest, {**(before or {}), _ENDED: True}, digest)])
    finally:
        journal.close()


def _text(name: str) -> str:
    """A storable name; file names may contain any bytes."""
    return name.encode(errors="replace").decode()


def _event(time: int, name: str, attrs: dict[str, Any]) -> bytes:
    return _pack(Event(time, None, None, None, None, 9, name, attrs))


def _mark(time: int, position: dict[str, Any], digest: str) -> bytes:
    return _pack(Event(time, None, None, None, None, 1, EVENT_POSITION, {**position, _ABOUT: digest}))


def _keep(folder: Path, file: SourceFile, skip: Skip) -> None:
    path = folder / file.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if isinstance(file.data, bytes):
            replace_file(path, file.data)
        else:
            _copy(file.data, path)
    except OSError as error:
        if error.errno in _FULL:
            raise
        skip(f"files that cannot be copied: {error.strerror}", 1)


def _copy(source: Path, target: Path) -> None:
    """Copy a file of any size; the target is complete or not there."""
    half = target.with_name(f"{target.name}.%part")
    try:
        shutil.copyfile(source, half, follow_symlinks=False)
        os.replace(half, target)
    finally:
        half.unlink(missing_ok=True)


def files_folder(home: Path, run: str) -> Path:
    """The folder of the files of an imported run; it is deleted with the run."""
    return layout.runs_folder(home) / run / "files"


def writer_of(home: Path, run: FoundRun, part: Part, source: str) -> tuple[Path, Writer]:
    """Return the writer of the records of a part, and the folder of its journal."""
    token = hashlib.sha256(part.name.encode(errors="surrogateescape")).hexdigest()[:12]
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


def keep_time(folder: Path, part: Part) -> None:
    """Set the time of a part to that of its first import, if any: the time of a file changes as it grows."""
    if layout.list_segments(folder):
        part.time = find_writer(folder).wall_ns


def description(run: FoundRun, source: str) -> dict[str, Any]:
    """The attributes of the start event of an imported run, with secrets masked."""
    attrs: dict[str, Any] = {"config": run.config, IMPORTED_FROM: source, **run.started}
    attrs |= {"tags": run.tags} if run.tags else {}
    attrs |= {"notes": run.notes} if run.notes else {}
    safe: dict[str, Any] = _storable(redact(attrs))
    return safe


def _storable(value: Any) -> Any:
    """Copy nested values; integers beyond 64 bits and values of other types become strings."""
    if isinstance(value, dict):
        return {_text(str(key)): _storable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(inner) for inner in value]
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return value if value is None or isinstance(value, float) else _text(str(value)[:_LONGEST_TEXT])


def _latest(chunk: Chunk, before: int) -> int:
    """The latest time in a chunk; a record's time is its second field."""
    return max(before, _row.decode(chunk.records[-1])[1]) if chunk.records else before


class Stored(NamedTuple):
    """The import state in a writer's folder."""

    position: dict[str, Any] | None
    """The position in the source; None when no content was imported yet."""
    digest: str | None
    """The digest of the run's description; None when that was not imported yet."""
    ended: bool
    """Whether the end of the run is stored."""
    time: int
    """The time of the last record."""


def last_position(folder: Path) -> Stored:
    """Read the import state of a writer's folder."""
    for path in reversed(layout.list_segments(folder)):
        found = None
        for batch in Tail(folder, Position(segment=int(path.stem))).read_all():
            for record in batch.records[-1:]:
                if isinstance(record, Event) and record.name == EVENT_POSITION:
                    found = record
        if found is not None:
            position = {key: value for key, value in found.attrs.items() if key not in (_ABOUT, _ENDED)}
            return Stored(position or None, found.attrs.get(_ABOUT, ""), _ENDED in found.attrs, found.time)
    return Stored(None, None, False, 0)
