"""TensorBoard event files: scalars, histograms, texts, hyperparameters and images, also while they grow."""

import hashlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepscope.imports.source import Chunk, FoundRun, Part, Skip
from stepscope.journal import layout
from stepscope.model.names import EVENT_STARTED
from stepscope.model.records import METRIC, Log, Metric
from stepscope.model.records import Event as OurEvent
from stepscope.wire.tensorboard import Event, Value, damaged, parse_event

CHUNK_BYTES = 1 << 20
_NAME = re.compile(r".*\.tfevents\..*")
_STARTED = re.compile(r"\.tfevents\.(\d{10})\.")
_HEADER = 12
"""Bytes before the data of a record: its length, and a checksum of the length."""
_FOOTER = 4
_length = struct.Struct("<Q").unpack_from
_double = struct.Struct("<d").unpack_from
_float = struct.Struct("<f").unpack_from
_pack = msgspec.msgpack.Encoder().encode


class TensorBoard:
    """Folders of event files; as in TensorBoard, each folder that holds some is a run."""

    name = "TensorBoard"

    def find(self, path: Path) -> list[FoundRun]:
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
    """One event file. A program that is started again writes the next one, which is the next attempt."""

    def __init__(self, path: Path, attempt: int) -> None:
        self.path, self.attempt = path, attempt
        self.name = path.name
        self.time = _started(path)

    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the whole records behind an offset; a record that is still being written is left for later."""
        offset = int(position["offset"]) if position else 0
        if offset > self.size():
            skip(f"{self.name}: shorter than before, so it is another file: not read", 1)
            return
        reader = _Reader(skip)
        with open(self.path, "rb") as file:
            file.seek(offset)
            rest = b""
            while data := file.read(CHUNK_BYTES):
                rest += data
                used = reader.take(rest)
                if used:
                    offset, rest = offset + used, rest[used:]
                    yield Chunk(reader.records, {"offset": offset}, reader.points, offset)
                    reader.records, reader.points = [], 0
                if reader.broken:
                    skip(f"{self.name}: damaged at byte {offset}, the rest was left out", 1)
                    return


class _Reader:
    """Turns the records of a file into packed records of ours."""

    def __init__(self, skip: Skip) -> None:
        self._skip = skip
        self._tags: dict[bytes, str] = {}
        """Tags of plain scalars, by the bytes between the step and the value."""
        self.records: list[bytes] = []
        self.points = 0
        self.broken = False
        """Whether a length was damaged, so that no record can be found behind it."""

    def take(self, data: bytes) -> int:
        """Read the whole records of a buffer and return how many bytes they have."""
        starts, sizes, end = self._bodies(data)
        bad = damaged(data, starts, sizes)
        if bad:
            self._skip("damaged events", len(bad))
        known, add, pack = self._tags.get, self.records.append, _pack
        for index, (body, size) in enumerate(zip(starts, sizes, strict=True)):
            if index in bad:
                continue
            close = body + size
            step, after = _step(data, body) if size > 16 and data[body] == 9 and data[body + 9] == 16 else (0, 0)
            tag = known(data[after : close - 4]) if after else None
            if tag is None:
                self._other(data, body, close, after)
                continue
            time = int(_double(data, body + 1)[0] * 1e9)
            add(pack((METRIC, time, step, None, None, {tag: _float(data, close - 4)[0]})))
            self.points += 1
        return end

    def _bodies(self, data: bytes) -> tuple[list[int], list[int], int]:
        """Find the whole records: where their data starts, its sizes, and where the last one ends."""
        heads: list[int] = []
        sizes: list[int] = []
        at, end = 0, len(data)
        while at + _HEADER <= end:
            size = _length(data, at)[0]
            heads.append(at)
            if (close := at + _HEADER + size + _FOOTER) > end:
                break
            sizes.append(size)
            at = close
        wrong = min(damaged(data, heads, [8] * len(heads)), default=None)
        if wrong is not None:
            self.broken = True
            at, sizes = heads[wrong], sizes[:wrong]
        return [head + _HEADER for head in heads[: len(sizes)]], sizes, at

    def _other(self, data: bytes, body: int, close: int, after: int) -> None:
        """Read a record of any kind; the tag of a plain scalar is cached for the fast path."""
        try:
            event = parse_event(data[body:close])
        except ValueError:
            self._skip("events that cannot be read", 1)
            return
        for value in event.values:
            self._value(event, value)
        plain = len(event.values) == 1 and event.values[0].plain
        if after and plain and data[close - 5] == 0x15:
            self._tags[data[after : close - 4]] = event.values[0].tag

    def _value(self, event: Event, value: Value) -> None:
        time, step = int(event.time * 1e9), event.step
        number = value.scalar if value.scalar is not None else value.histogram
        if number is not None:
            self.records.append(_pack(Metric(time, step, None, None, {value.tag: number})))
            self.points += 1
        elif value.text is not None:
            body = "\n".join(value.text)
            self.records.append(_pack(Log(time, step, None, None, None, 9, body, {"tag": value.tag}, "tensorboard")))
        elif value.hyperparameters is not None:
            config = {"config": value.hyperparameters}
            self.records.append(_pack(OurEvent(time, None, None, None, None, 9, EVENT_STARTED, config)))
        elif value.kind:
            self._skip(value.kind, 1)


def _step(data: bytes, body: int) -> tuple[int, int]:
    """Read the varint of the step, and return it with the offset behind it."""
    at = body + 10
    if (step := data[at]) < 0x80:
        return step, at + 1
    step = shift = 0
    while True:
        byte = data[at]
        step |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return step - (1 << 64) if step >> 63 else step, at
        shift += 7
        if shift > 63:
            return 0, 0
