"""TensorBoard event files: scalars, histograms, texts, hyperparameters and images, also while they grow."""

import hashlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.dialects.tensorboard.wire.crc32c import matches
from stepscope.dialects.tensorboard.wire.events import Event, Media, Value, parse_event
from stepscope.dialects.tensorboard.wire.scalars import Scalars
from stepscope.extend.importer import Chunk, FoundRun, NextChunk, Part, Skip, Source, SourceFile, layout
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import Event as OurEvent
from stepscope.model.records import Log, Metric
from stepscope.model.redaction import mask_text, redact

CHUNK_BYTES = 2 << 20
LARGEST_EVENT = 64 << 20
"""The size limit of an event in bytes; larger ones are skipped."""
_NAME = re.compile(r".*\.tfevents\..*")
_STARTED = re.compile(r"\.tfevents\.(\d{10})\.")
_LATEST = 9e9
"""The latest time in seconds that fits into 64 bits as nanoseconds."""
_HEADER = 12
"""The size of a record's header: the length of the data, and its checksum."""
_FOOTER = 4
_length = struct.Struct("<Q").unpack_from
_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8": ".jpg", b"GIF8": ".gif", b"RIFF": ".wav"}
"""The first bytes of files, and the extensions of their names."""


class TensorBoard:
    """Folders of event files; as in TensorBoard, each folder with event files is a run."""

    name = "TensorBoard"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return a run for each folder with event files, or for the one file given."""
        if path.is_file():
            return [_run(path.parent, path.parent, [path])] if _NAME.fullmatch(path.name) else []
        folders: dict[Path, list[Path]] = {}
        for file in sorted(path.rglob("*.tfevents.*")):
            if file.is_file():
                folders.setdefault(file.parent, []).append(file)
        return [_run(path, folder, files) for folder, files in folders.items()]


def _run(root: Path, folder: Path, files: list[Path]) -> FoundRun:
    root, folder = root.resolve(), folder.resolve()
    name = folder.relative_to(root).as_posix() if folder != root else folder.name
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    ordered = sorted(files, key=lambda file: (_started(file), file.name))
    parts: list[Part] = [EventFile(file, attempt) for attempt, file in enumerate(ordered, 1)]
    return FoundRun(f"{layout.slug(name)}-{digest}", root.name, name, parts)


def _started(file: Path) -> int:
    found = _STARTED.search(file.name)
    return int(found[1]) * 10**9 if found else 0


class EventFile:
    """One event file. A restarted program writes another file, which is the next attempt."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.attempt = path, attempt
        self.name = path.name
        self.time = _started(path)

    def size(self) -> int:
        """The size of the file in bytes."""
        return self.path.stat().st_size

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the complete records after an offset."""
        offset, size = int(position["offset"]) if position else 0, self.size()
        if offset > size:
            skip(f"{self.name}: not read, because it is shorter than before (a different file)", 1)
            return
        reader = _Reader(skip)
        with open(self.path, "rb") as file:
            wanted = CHUNK_BYTES
            while True:
                file.seek(offset)
                data = file.read(wanted)
                used = reader.take(data)
                if used:
                    offset, wanted = offset + used, CHUNK_BYTES
                    yield reader.chunk(offset)
                elif reader.broken:
                    skip(f"{self.name}: damaged at byte {offset}, the rest was left out", 1)
                    return
                elif len(data) < wanted:
                    return
                elif (wanted := reader.missing) > LARGEST_EVENT:
                    if offset + wanted > size:
                        return
                    skip("events that are too large", 1)
                    offset, wanted = offset + wanted, CHUNK_BYTES
                    yield reader.chunk(offset)


class _Reader:
    """Converts the records of a file to packed records of ours."""

    def __init__(self, skip: Skip) -> None:
        self._skip = skip
        self._scalars = Scalars()
        self._next = NextChunk(skip)
        self.missing = 0
        """The size of the first record, if the buffer is shorter."""
        self.broken = False
        """Whether a length is damaged, so that later records cannot be found."""

    def chunk(self, offset: int) -> Chunk:
        """Return the records up to an offset as a chunk, and start the next."""
        return self._next.take({"offset": offset}, offset)

    def take(self, data: bytes) -> int:
        """Read the complete records of a buffer and return their size in bytes."""
        starts, sizes, end = self._bodies(data)
        packed, bad = self._scalars.pack(data, starts, sizes)
        if bad:
            self._skip("damaged events", len(bad))
        for index, record in enumerate(packed):
            if record is not None:
                self._next.add_packed(record, 1)
            elif index not in bad:
                self._other(data[starts[index] : starts[index] + sizes[index]])
        return end

    def _bodies(self, data: bytes) -> tuple[list[int], list[int], int]:
        """Find the complete records: the starts and sizes of their data, and the end of the last one."""
        starts: list[int] = []
        sizes: list[int] = []
        heads: dict[bytes, bool] = {}
        """Whether the length matches its checksum; cached, since a file has few different lengths."""
        at, end = 0, len(data)
        while at + _HEADER <= end:
            head = data[at : at + _HEADER]
            whole = heads.get(head)
            if whole is None:
                whole = heads[head] = matches(head, 0, 8)
            if not whole:
                self.broken = not starts
                break
            size = _length(head)[0]
            close = at + _HEADER + size + _FOOTER
            if close > end:
                self.missing = close - at
                break
            starts.append(at + _HEADER)
            sizes.append(size)
            at = close
        return starts, sizes, at

    def _other(self, data: bytes) -> None:
        """Read a record of any kind."""
        try:
            event = parse_event(data)
        except ValueError:
            self._skip("events that cannot be read", 1)
            return
        for value in event.values:
            self._value(event, value)

    def _value(self, event: Event, value: Value) -> None:
        time, step = int(event.time * 1e9) if 0 <= event.time < _LATEST else 0, event.step
        number = value.scalar if value.scalar is not None else value.histogram
        if number is not None:
            self._next.add(Metric(time, step, None, None, {value.tag: number}), 1)
        elif value.text is not None:
            body = mask_text("\n".join(value.text))
            self._next.add(Log(time, step, None, None, None, 9, body, {"tag": value.tag}, "tensorboard"))
        elif value.hyperparameters is not None:
            config = {"config": redact(value.hyperparameters)}
            self._next.add(OurEvent(time, None, None, None, None, 9, EVENT_STARTED, config))
        elif value.media:
            for index, media in enumerate(value.media):
                self._media(time, step, value.tag, index, media)
        elif value.kind:
            self._skip(value.kind, 1)

    def _media(self, time: int, step: int, tag: str, index: int, media: Media) -> None:
        """Add a file, and an event at its step with its name."""
        folder = f"{layout.slug(tag)}-{_digest(tag.encode(errors='replace'))}"
        suffix = next((end for start, end in _SUFFIXES.items() if media.data.startswith(start)), ".bin")
        name = f"{media.kind}/{folder}/{step}-{index}-{_digest(media.data)}{suffix}"
        self._next.add_file(SourceFile(name, media.data))
        attrs = {"tag": tag, "file": name, "bytes": len(media.data)}
        self._next.add(OurEvent(time, step, None, None, None, 9, f"tensorboard.{media.kind}", attrs))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]


SOURCES: tuple[Source, ...] = (TensorBoard(),)
