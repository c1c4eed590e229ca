"""Weights & Biases: the `.wandb` files of offline and running runs, and the files beside them."""

import json
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from stepscope.dialects.wandb.wire import EVENT_VALUES, read_table
from stepscope.extend.importer import Chunk, FolderFiles, FoundRun, NextChunk, Part, Skip, Source, SourceFile, layout
from stepscope.model.names import EVENT_CONFIG, SCOPE_SAMPLES, SEVERITIES
from stepscope.model.records import Alert, Event, Log
from stepscope.model.redaction import mask_text, redact
from stepscope.wire.nested_rows import as_step, machine_values, nanoseconds, read_definitions
from stepscope.wire.protobuf_fields import fields, signed, text

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32 * 1024
_PREFIX = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _OUTPUT, _CONFIG, _STATS, _ALERT, _METRIC, _OUTPUT_RAW, _RUN, _EXIT = 2, 4, 5, 7, 10, 12, 13, 17, 18
_LATEST = 9e9
"""The latest time in seconds that fits into 64 bits as nanoseconds."""
_MAX_DEFINITIONS = 1000
_ARTIFACT = 8
_LEFT_OUT = {25: "uses of artifacts"}
_FILES = "files"
_SUMMARY, _MAX_SUMMARY = 3, 10_000
_STAGING = ("artifacts", "staging")
"""The last folders of the place in which the client keeps copies of the files of artifacts."""
EVENT_SUMMARY = "train.summary"


class WandbFiles:
    """Files named run-ID.wandb, which `wandb` writes for each run."""

    name = "Weights & Biases"

    def __init__(self) -> None:
        self._known: dict[Path, _Description] = {}

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return a run for each file."""
        files = (
            [path]
            if path.suffix == ".wandb" and path.is_file()
            else sorted(file for file in path.rglob("*.wandb") if file.is_file())
            if path.is_dir()
            else []
        )
        return [found for file in files if (found := self._found(file, skip)) is not None]

    def _found(self, file: Path, skip: Skip) -> FoundRun | None:
        with open(file, "rb") as opened:
            start = opened.read(BLOCK)
        if not start.startswith(HEADER):
            skip("empty .wandb files" if not start else ".wandb files of an unknown format", 1)
            return None
        known = self._known.get(file)
        if known is None or known.offset > file.stat().st_size or not start.startswith(known.start[: known.offset]):
            known = _Description()
        known.start = start
        known.read_more(file)
        self._known[file] = known
        if known.is_empty:
            skip(".wandb files without a record yet", 1)
            return None
        return _run_of(file, known.about)


def _run_of(file: Path, about: dict[str, Any]) -> FoundRun:
    id = about.get("id") or file.stem.removeprefix("run-")
    began = about.get("time", 0)
    parts: list[Part] = [WandbFile(file, began)]
    if (folder := file.parent / _FILES).is_dir():
        parts.append(FolderFiles([("", folder)], began))
    return FoundRun(
        id if layout.is_safe(id) else layout.slug(id), about.get("project") or "uncategorized", about.get("name") or id,
        parts, about.get("config", {}), about.get("tags", []), about.get("notes", ""), about.get("status", "finished"),
        about.get("started", {}),
    )  # fmt: skip


class _Description:
    """The description of a run from its first record, and its status from its exit record, as far as they were read."""

    def __init__(self) -> None:
        self.about: dict[str, Any] = {}
        self.offset = len(HEADER)
        self.start = b""
        """The beginning of the file, by which another file of its name is recognised."""
        self._damaged = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written yet."""
        return self.offset == len(HEADER) and not self._damaged

    def read_more(self, file: Path) -> None:
        """Read what was added to the file."""

        def skip(reason: str, count: int) -> None:
            self._damaged += count

        for after, record in read_records(file, self.offset, skip):
            self.offset = after
            try:
                for number, field in fields(record):
                    if number == _RUN and not self.about:
                        self.about = _run(field)
                    elif number == _EXIT:
                        code = next((signed(value) for part, value in fields(field) if part == 1), 0)
                        self.about["status"] = "failed" if code else "finished"
            except ValueError:
                continue


def _run(data: bytes) -> dict[str, Any]:
    every: dict[int, list[Any]] = {}
    for number, field in fields(data):
        every.setdefault(number, []).append(field)
    last = {number: values[-1] for number, values in every.items()}
    started = dict(fields(last[17])) if 17 in last else {}
    return {
        "id": text(last.get(1)),
        "project": text(last.get(3)),
        "name": text(last.get(8)),
        "notes": text(last.get(9)),
        "tags": [text(tag) for tag in every.get(10, [])],
        "config": _items(last.get(4, b"")),
        "started": {name: text(last[number]) for number, name in ((6, "group"), (7, "job_type")) if last.get(number)},
        "time": int(started.get(1, 0)) * 10**9 + int(started.get(2, 0)),
    }


def _items(data: bytes) -> dict[str, Any]:
    """Read the items of a configuration, history or statistics record: keys with JSON values."""
    found: dict[str, Any] = {}
    for number, field in fields(data):
        if number not in (1, 3):
            continue
        names, value = [], None
        for part, inner in fields(field):
            if part in (1, 2):
                names.append(text(inner))
            elif part == 16:
                value = _json(inner)
        if names and not names[0].startswith("_wandb"):
            _put(found, names, value)
    return found


def _put(into: dict[str, Any], names: list[str], value: Any) -> None:
    """Store a value under nested keys."""
    for name in names[:-1]:
        inner = into.setdefault(name, {})
        into = inner if isinstance(inner, dict) else {}
    into[names[-1]] = value


def _merge(into: dict[str, Any], update: dict[str, Any]) -> None:
    """Set values; nested ones beside others of their dict."""
    for key, value in update.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, dict) and "_type" not in value:
            known.update(value)
        else:
            into[key] = value


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return text(data)


class WandbFile:
    """One file; a resumed run continues in another."""

    attempt = 1

    def __init__(self, path: Path, time: int) -> None:
        self.path, self.time = path, time
        self.name = path.name

    def size(self) -> int:
        """The size of the file in bytes."""
        return self.path.stat().st_size

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the complete records after an offset."""
        offset = int(position["offset"]) if position else len(HEADER)
        if offset > self.size():
            skip(f"{self.name}: not read, because it is shorter than before (a different file)", 1)
            return
        reader = _Reader(skip, position, self.path)
        for after, record in read_records(self.path, offset, skip):
            try:
                reader.take(record)
            except (ValueError, TypeError, OverflowError, struct.error):
                skip("records that cannot be read", 1)
            offset = after
            if reader.chunk.is_full:
                yield reader.chunk.take(reader.position(offset), offset)
        if not reader.chunk.is_empty:
            yield reader.chunk.take(reader.position(offset), offset)


class _Reader:
    def __init__(self, skip: Skip, position: dict[str, Any] | None, path: Path) -> None:
        self._skip, self._path, self._files = skip, path, path.parent / _FILES
        self._tables: dict[str, int] = dict(position.get("tables", {})) if position else {}
        """The steps after those of the rows that were read of each table."""
        self._step: int | None = position.get("step") if position else None
        self._time = int(position.get("time", 0)) if position else 0
        self._metrics: list[dict[str, str]] = position.get("metrics", []) if position else []
        """The metric definitions so far, with protobuf field numbers as keys."""
        self._definitions = read_definitions(self._metrics)
        self.chunk = NextChunk(skip)

    def position(self, offset: int) -> dict[str, Any]:
        return {
            "offset": offset,
            "step": self._step,
            "time": self._time,
            "metrics": self._metrics,
            "tables": self._tables,
        }

    def take(self, record: bytes) -> None:
        for number, field in fields(record):
            if number == _HISTORY:
                self._history(_items(field))
            elif number == _STATS:
                self._statistics(field)
            elif number in (_OUTPUT, _OUTPUT_RAW):
                self._output(field)
            elif number == _ALERT:
                self._alert(dict(fields(field)))
            elif number == _METRIC:
                self._define({str(part): text(value) for part, value in fields(field) if part in (1, 2, 4)})
            elif number == _CONFIG:
                self.chunk.add(Event(self._time, None, None, None, None, 9, EVENT_CONFIG, redact(_items(field))))
            elif number == _ARTIFACT:
                self._artifact(field)
            elif number == _EXIT:
                self._summary()
            elif number in _LEFT_OUT:
                self._skip(_LEFT_OUT[number], 1)

    def _define(self, metric: dict[str, str]) -> None:
        if len(self._metrics) >= _MAX_DEFINITIONS:
            self._skip("definitions of metrics", 1)
            return
        self._metrics = [*self._metrics, metric]
        self._definitions = read_definitions(self._metrics)

    def _history(self, row: dict[str, Any]) -> None:
        step = as_step(row.pop("_step", None))
        self._step = step if step is not None else self._step or 0
        stamp = row.pop("_timestamp", None)
        if isinstance(stamp, (int, float)) and 0 <= stamp < _LATEST:
            self._time = nanoseconds(stamp)
        row.pop("_runtime", None)
        self.chunk.add_row(self._time, self._step, None, row, self._definitions, EVENT_VALUES)
        for key, value in row.items():
            if isinstance(value, dict) and value.get("_type") == "table-file" and isinstance(value.get("path"), str):
                self._table(key, value["path"])

    def _table(self, key: str, name: str) -> None:
        """Add the rows of a table as samples; those of steps that an earlier table of this key had are known."""
        try:
            path = (self._files / name).resolve(strict=True)
            if not path.is_relative_to(self._files.resolve()):
                raise ValueError("a table outside of the run")
            rows, more = read_table(path)
        except (OSError, ValueError):
            self._skip("tables that cannot be read", 1)
            return
        if more:
            self._skip("tables with rows beyond the limit", 1)
        known = self._tables.get(key, 0)
        for at, (own, cells) in enumerate(rows):
            if own is None or own >= known:
                step = self._step if own is None else own
                self.chunk.add(Log(self._time + at, step, None, None, None, 9, key, redact(cells), SCOPE_SAMPLES))
        if len(self._tables) < _MAX_DEFINITIONS or key in self._tables:
            self._tables[key] = max([known, *(own + 1 for own, _ in rows if own is not None)])

    def _summary(self) -> None:
        """Add the summary of a run that ended, which is in updates all over its file."""
        found: dict[str, Any] = {}
        for _, record in read_records(self._path, len(HEADER), lambda reason, count: None):
            try:
                for number, field in fields(record):
                    if number == _SUMMARY:
                        _merge(found, _items(field))
            except ValueError:
                continue
        if len(found) > _MAX_SUMMARY:
            self._skip("values of summaries", len(found) - _MAX_SUMMARY)
        if found:
            kept = dict(islice(found.items(), _MAX_SUMMARY))
            self.chunk.add(Event(self._time, None, None, None, None, 9, EVENT_SUMMARY, redact(kept)))

    def _artifact(self, data: bytes) -> None:
        """Add the files of an artifact of which the client still has copies; others and references are counted."""
        about: dict[int, Any] = dict(fields(data))
        name = layout.slug(text(about.get(5)) or "artifact")
        for number, entry in fields(about.get(12, b"")):
            if number != 4:
                continue
            inner: dict[int, Any] = dict(fields(entry))
            path, place = text(inner.get(1)), Path(text(inner.get(6)))
            parts = path.split("/")
            if inner.get(6) and _is_staged(place) and not {"", ".", ".."} & set(parts) and "\0" not in path:
                self.chunk.add_file(SourceFile(f"artifacts/{name}/{path}", place))
            else:
                self._skip("files of artifacts", 1)

    def _statistics(self, data: bytes) -> None:
        stamp = next((dict(fields(field)) for number, field in fields(data) if number == 2), {})
        time = int(stamp.get(1, 0)) * 10**9 + int(stamp.get(2, 0)) or self._time
        self.chunk.add_row(time, self._step, "system", machine_values(_items(data)))

    def _output(self, data: bytes) -> None:
        found = dict(fields(data))
        stamp = dict(fields(found.get(2, b"")))
        time = int(stamp.get(1, 0)) * 10**9 + int(stamp.get(2, 0)) or self._time
        line = text(found.get(3)).rstrip("\n")
        if line:
            severity = SEVERITIES["ERROR"] if found.get(1) == 0 else SEVERITIES["INFO"]
            self.chunk.add(Log(time, self._step, None, None, None, severity, mask_text(line), {}, "console"))

    def _alert(self, found: dict[int, Any]) -> None:
        severity = SEVERITIES.get(text(found.get(3)).upper(), SEVERITIES["WARN"])
        title, body = mask_text(text(found.get(1))), mask_text(text(found.get(2)))
        self.chunk.add(Alert(self._time, self._step, None, None, None, severity, title, body))


def _is_staged(path: Path) -> bool:
    """Whether a file is a copy that the client made: a `.wandb` file of somebody else may name any file."""
    try:
        real = path.resolve(strict=True)
        return real.is_file() and not path.is_symlink() and real.parts[-3:-1] == _STAGING
    except (OSError, ValueError):
        return False


def read_records(path: Path, offset: int, skip: Skip) -> Iterator[tuple[int, bytes]]:
    """Yield the records after an offset, each with its end offset; damage loses one block."""
    parts: list[bytes] = []
    with open(path, "rb") as file:
        start = offset - offset % BLOCK
        file.seek(start)
        while block := file.read(BLOCK):
            at, last = max(offset - start, 0), len(block) < BLOCK
            while at + _PREFIX.size <= len(block):
                crc, size, kind = _PREFIX.unpack_from(block, at)
                body = block[at + _PREFIX.size : at + _PREFIX.size + size]
                if kind == 0 and not any(block[at:]):
                    break
                if len(body) < size and last:
                    return  # it is being written
                if zlib.crc32(bytes([kind]) + body) != crc or kind > _LAST:
                    skip("damaged blocks", 1)
                    parts = []
                    break
                at += _PREFIX.size + size
                parts = [body] if kind in (_FULL, _FIRST) else [*parts, body]
                if kind in (_FULL, _LAST):
                    yield start + at, b"".join(parts)
                    parts = []
            if last:
                return  # what is added meanwhile continues this block
            start += BLOCK


SOURCES: tuple[Source, ...] = (WandbFiles(),)
