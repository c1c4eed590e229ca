"""The interface of a source, which recognises the files of one tool and reads their runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from stepscope.model.names import SEVERITIES
from stepscope.model.records import FIRST_STEP, LAST_STEP, Event, Metric, Record
from stepscope.model.redaction import redact
from stepscope.wire.nested_rows import Definition, parts_by_axis, split_row

Skip = Callable[[str, int], None]
"""Counts what cannot be imported, by reason."""
CHUNK_RECORDS = 10_000
CHUNK_BYTES = 4 * 1024 * 1024
"""Limits of a chunk in rows and bytes, which bound memory for any source."""
LARGEST_RECORD = 16 * 1024 * 1024
"""The size limit of a packed record in bytes; larger ones are left out."""


class SourceFile(NamedTuple):
    """A file of a run, such as an image."""

    name: str
    """A path below the folder of the run's files; the same content always has the same name."""
    data: bytes | Path
    """Its content, or the file that has it, which is copied."""


class Chunk(NamedTuple):
    """Packed records of a part, in the order of the source, and the position after them."""

    records: list[bytes]
    position: dict[str, Any]
    points: int
    """The number of metric values in the records."""
    done: int
    """How much of the part has been read, in its own units."""
    files: tuple[SourceFile, ...] = ()


class Part(Protocol):
    """One file or table of a run. It may grow; reading continues at the position of the last chunk."""

    name: str
    attempt: int
    time: int
    """Its start time in ns; 0 when unknown."""

    def size(self) -> int:
        """The current size, in the units of `Chunk.done`."""

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the current content after a position."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that a source found."""

    id: str
    """The id of the run, the same in every import of the same files."""
    project: str
    name: str
    parts: list[Part]
    config: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    notes: str = ""
    status: str = "finished"
    started: dict[str, str] = field(default_factory=dict)
    """Other attributes of the start event: `group`, `job_type`, `parent`."""


class Source(Protocol):
    """A tool whose files can be imported."""

    name: str

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs in a file or below a folder; empty when it has no files of this tool."""


_encode = msgspec.msgpack.Encoder().encode


def pack(record: Record) -> bytes:
    """Pack a record; ValueError for invalid Unicode, OverflowError for a step or number that is too large."""
    if record.step is not None and not FIRST_STEP <= record.step <= LAST_STEP:
        raise OverflowError("a step is out of range")
    return _encode(record)


class NextChunk:
    """Collects the records of the next chunk."""

    def __init__(self, skip: Skip) -> None:
        self._skip = skip
        self._records: list[bytes] = []
        self._files: list[SourceFile] = []
        self._size = self._points = 0

    @property
    def is_full(self) -> bool:
        """Whether `take` should be called before more is added."""
        return len(self._records) >= CHUNK_RECORDS or self._size >= CHUNK_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether there are neither records nor files."""
        return not self._records and not self._files

    def add_file(self, file: SourceFile) -> None:
        """Add a file."""
        self._files.append(file)
        self._size += len(file.data) if isinstance(file.data, bytes) else 0

    def add(self, record: Record, points: int = 0) -> None:
        """Add a record with its number of metric values; one that cannot be stored is left out and counted."""
        try:
            packed = pack(record)
        except (ValueError, OverflowError):
            self._skip("records that cannot be stored", 1)
            return
        if len(packed) > LARGEST_RECORD:
            self._skip("records that are too large", 1)
        else:
            self.add_packed(packed, points)

    def add_packed(self, packed: bytes, points: int) -> None:
        """Add a record that is packed already."""
        self._records.append(packed)
        self._size += len(packed)
        self._points += points

    def add_row(
        self,
        time: int,
        step: int | None,
        category: str | None,
        row: Mapping[str, Any],
        definitions: Sequence[Definition] = (),
        others: str = "",
    ) -> None:
        """Add the numbers of a row as metrics on their defined axes; nested numbers get joined keys.

        The rest is an event of the name `others`; without that it is left out and counted.
        """
        values, rest = split_row(row)
        if rest and others:
            self.add(Event(time, step, None, None, None, SEVERITIES["INFO"], others, redact(rest)))
        for value in rest.values() if not others else ():
            kind = value.get("_type") if isinstance(value, Mapping) else None
            self._skip("values that are not numbers" if kind is None else f"values of type {str(kind)[:40]}", 1)
        parts = parts_by_axis(values, definitions) if definitions else [(None, None, values)] if values else []
        for axis, at, part in parts:
            self.add(Metric(time, step if axis is None else at, axis, category, part), len(part))

    def take(self, position: dict[str, Any], done: int) -> Chunk:
        """Return the chunk and start the next."""
        made = Chunk(self._records, position, self._points, done, tuple(self._files))
        self._records, self._files, self._size, self._points = [], [], 0, 0
        return made
