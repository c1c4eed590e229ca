"""The quarantine: records that a sink rejected, with the reason; HOME/quarantine/SINK, one file per entry."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stepscope.journal.atomic_files import replace_file
from stepscope.model.ports import Batch, Writer
from stepscope.wire import frames

MAX_ENTRIES = 10_000
MAX_BYTES = 256 * 1024 * 1024
_encode = msgspec.msgpack.Encoder().encode
_SUFFIX = ".lot"
_MAX_NOTES = 1000
_FRAMES = 3
"""The note, the writer's head, the batch."""


class Note(msgspec.Struct, frozen=True):
    """Why and when an entry was quarantined, and how many records were rejected; an entry may hold only this note."""

    reason: str
    time: int
    records: int


_note = msgspec.msgpack.Decoder(tuple[int, Note]).decode


class Entry(msgspec.Struct, frozen=True):
    """Records of one batch that were quarantined together."""

    path: Path
    note: Note
    batch: Batch

    @property
    def id(self) -> str:
        """The id shown to users."""
        return self.path.stem


class Unreadable(msgspec.Struct, frozen=True):
    """An entry whose file is damaged: as much as can still be read of it."""

    path: Path
    size: int
    why: str
    note: Note | None = None
    run: str = ""

    @property
    def id(self) -> str:
        """The id shown to users."""
        return self.path.stem

    @property
    def time(self) -> int:
        """When it was quarantined, from its note or its file name; 0 if unknown."""
        if self.note is not None:
            return self.note.time
        return int(self.id) if self.id.isascii() and self.id.isdecimal() else 0

    @property
    def about(self) -> str:
        """Return one line that describes the damage and what to do."""
        reason = f"; it was refused for: {self.note.reason}" if self.note is not None else ""
        return f"this entry cannot be read or offered again ({self.why}): repair or delete {self.path}{reason}"


class Full(OSError):
    """The quarantine is full."""


class Quarantine:
    """The entries of one sink. Any number of processes may read while one writes."""

    def __init__(self, home: Path, sink: str, *, most_bytes: int = MAX_BYTES, most_entries: int = MAX_ENTRIES) -> None:
        self.folder = home / "quarantine" / sink
        self._most_bytes, self._most_entries = most_bytes, most_entries
        self._entries = self._bytes = -1
        self._notes: dict[tuple[str, str, str], tuple[int, int]] = {}
        """Notes written by this object: (run, writer, reason) to (file, number of records)."""

    def note(self, batch: Batch, reason: str, count: int) -> None:
        """Record that a sink rejected a number of records without saying which; OSError when that cannot be written.

        No record is kept, because the sink accepted the others. There is one note per writer and reason.
        """
        key = (batch.writer.run, batch.writer.id, reason)
        stem, before = self._notes.get(key, (0, 0))
        if not stem and len(self._notes) >= _MAX_NOTES:
            return
        data = _pack(batch._replace(records=[]), reason, before + count)
        self._notes[key] = (self._write(data, stem), before + count)
        self._entries = -1

    def set_aside(self, batch: Batch, reason: str) -> None:
        """Store rejected records with the reason; Full or another OSError when that fails."""
        if self._entries < 0:
            self._measure()
        data = _pack(batch, reason, len(batch.records))
        if self._entries >= self._most_entries or self._bytes + len(data) > self._most_bytes:
            self._measure()  # entries may have been deleted
            if self._entries >= self._most_entries or self._bytes + len(data) > self._most_bytes:
                raise Full(f"the quarantine {self.folder} is full")
        self._write(data)
        self._entries += 1
        self._bytes += len(data)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries that can be read, oldest first; `unreadable` has the others."""
        for path in self._paths():
            found = _read(path)
            if isinstance(found, Entry):
                yield found

    def unreadable(self) -> Iterator[Unreadable]:
        """Yield the damaged entries, oldest first; they count toward the limits like the others."""
        for path in self._paths():
            found = _read(path)
            if isinstance(found, Unreadable):
                yield found

    def discard(self, entry: Entry | Unreadable) -> None:
        """Delete an entry."""
        with contextlib.suppress(FileNotFoundError):
            entry.path.unlink()
        self._entries = -1

    def _paths(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix == _SUFFIX)
        except OSError:
            return []

    def _measure(self) -> None:
        paths = self._paths()
        self._entries, self._bytes = len(paths), 0
        for path in paths:
            with contextlib.suppress(OSError):
                self._bytes += path.stat().st_size

    def _write(self, data: bytes, known: int = 0) -> int:
        """Write a new entry, or replace a known one; return its name."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        stem = known or time.time_ns()
        while (path := self.folder / f"{stem}{_SUFFIX}").exists() and not known:
            stem += 1
        replace_file(path, data)
        return stem


def _pack(batch: Batch, reason: str, count: int) -> bytes:
    packed = [_encode(record) for record in batch.records]
    note = frames.frame(_encode((2, Note(reason[:1000], time.time_ns(), count))))
    return note + frames.pack_head(batch.writer) + frames.pack_batch(batch.seq, packed)


def refusals(home: Path, since_ns: int, wanted: Callable[[Writer], bool], until: float) -> tuple[int, int] | None:
    """Count the rejected records of some writers since a time: all, and those in quarantine.

    None when `time.monotonic` passed `until` before all were counted.
    """
    refused = kept = 0
    for sink in quarantined(home):
        for path in Quarantine(home, sink)._paths():
            if path.stem.isdecimal() and int(path.stem) < since_ns:
                continue
            if time.monotonic() > until:
                return None
            found = _read(path)
            if isinstance(found, Entry) and wanted(found.batch.writer):
                refused += found.note.records
                kept += len(found.batch.records)
    return refused, kept


def quarantined(home: Path) -> list[str]:
    """Return the sinks that have a quarantine."""
    try:
        return sorted(entry.name for entry in (home / "quarantine").iterdir() if entry.is_dir())
    except OSError:
        return []


def _read(path: Path) -> Entry | Unreadable | None:
    """Read an entry, or what is left of a damaged one; None when it is gone."""
    note: Note | None = None
    run, size = "", 0
    try:
        data = path.read_bytes()
        size = len(data)
        found = [each for each in frames.scan(data, final=True) if isinstance(each, frames.Frame)]
        if found:
            note = _note(found[0].payload)[1]
        if len(found) > 1:
            writer = frames.unpack_head(found[1].payload)
            run = writer.run
        if len(found) == _FRAMES and note is not None:
            seq, records, _ = frames.unpack_batch(found[2].payload)
            return Entry(path, note, Batch(writer, seq, records))
        return Unreadable(path, size, f"{len(found)} of its {_FRAMES} parts are whole", note, run)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Unreadable(path, size, str(error), note, run)
