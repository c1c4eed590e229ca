"""Aim: a repository `.aim` with RocksDB databases for each run, and an SQLite database with their descriptions."""

import math
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from stepscope.extend.importer import Chunk, FoundRun, NextChunk, Skip, Source, layout, select
from stepscope.model.errors import ConfigError
from stepscope.model.records import Log, Metric
from stepscope.model.redaction import mask_text

_END = 0xFE
"""Ends each name in a path; also starts a number."""
_CUSTOM = 15
_LATEST = 9e9

Name = str | int
Names = tuple[Name, ...]
"""A path inside a database."""


class AimRepository:
    """A folder `.aim`, or the folder that contains it."""

    name = "Aim"

    def find(self, path: Path, skip: Skip) -> list[FoundRun]:
        """Return the runs of a repository; ConfigError if aimrocks is not installed."""
        root = next((each for each in (path, path / ".aim") if (each / "meta" / "chunks").is_dir()), None)
        if root is None:
            return []
        if find_spec("aimrocks") is None:
            raise ConfigError(f"{root} is an Aim repository: to read it, pip install aimrocks")
        described = _descriptions(root, skip)
        folders = sorted(each for each in (root / "meta" / "chunks").iterdir() if each.is_dir())
        found = [run for each in folders if (run := _run(root, each, described.get(each.name), skip)) is not None]
        return sorted(found, key=lambda run: (run.parts[0].time, run.id))


@dataclass(frozen=True, slots=True)
class _Description:
    """The description of a run in the SQLite database."""

    name: str
    notes: str
    experiment: str
    time: int
    tags: list[str] = field(default_factory=list)


def _descriptions(root: Path, skip: Skip) -> dict[str, _Description]:
    found: dict[str, _Description] = {}
    file = root / "run_metadata.sqlite"
    query = (
        "SELECT hash, r.name, r.description, e.name, r.created_at"
        " FROM run r LEFT JOIN experiment e ON e.id = experiment_id"
    )
    tagged = "SELECT hash, t.name FROM run_tag JOIN run r ON r.id = run_id JOIN tag t ON t.id = tag_id ORDER BY t.id"
    if not file.is_file():
        return found
    for hash, name, notes, experiment, created in select(file, query, (), skip):
        found[hash] = _Description(name or hash, notes or "", experiment or "default", _created(created))
    for hash, tag in select(file, tagged, (), skip):
        found[hash].tags.append(tag)
    return found


def _created(text: Any) -> int:
    try:
        return max(int(datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp() * 1e6) * 1000, 0)
    except (ValueError, OverflowError):
        return 0


def _run(root: Path, folder: Path, about: _Description | None, skip: Skip) -> FoundRun | None:
    id = folder.name
    about = about or _Description(id, "", "default", 0)
    attributes: dict[Name, Any] = {}
    contexts: dict[Name, Any] = {}
    sequences = set()
    for path, value in _items(folder, ("meta", "chunks", id), skip):
        if path[0] == "attrs":
            _put(attributes, path[1:], value)
        elif path[0] == "contexts":
            _put(contexts, path[1:], value)
        elif path[0] == "traces":
            sequences.add(path[1:3])
    config = {str(key): _tidy(value) for key, value in attributes.items() if not str(key).startswith("__")}
    prefixes = {number: _prefix(_tidy(context)) for number, context in contexts.items()}
    part = _Sequences(root / "seqs" / "chunks" / id, id, prefixes, len(sequences), about.time)
    run = id if layout.is_safe(id) else layout.slug(id)
    return FoundRun(run, about.experiment, about.name, [part], config, about.tags, about.notes)


def _prefix(context: Any) -> str:
    """The prefix of a metric's name for a context: `train/` for the usual {"subset": "train"}."""
    if not isinstance(context, dict) or not context:
        return ""
    if set(context) == {"subset"}:
        return f"{context['subset']}/"
    return ",".join(f"{key}={value}" for key, value in sorted(context.items(), key=str)) + "/"


class _Sequences:
    """The sequences of a run: values, steps and times at the same indices."""

    attempt = 1
    name = "sequences"

    def __init__(self, folder: Path, id: str, prefixes: dict[Name, str], count: int, time: int) -> None:
        self._folder, self._id, self._prefixes, self._count, self.time = folder, id, prefixes, count, time

    def size(self) -> int:
        """The number of sequences."""
        return self._count

    def read(self, position: dict[str, Any] | None, skip: Skip) -> Iterator[Chunk]:
        """Yield the values later than the last one read, one sequence after the other."""
        times: dict[str, float] = dict(position["times"]) if position else {}
        chunk, done = NextChunk(skip), 0
        for version in (("v2", "chunks"), ("chunks",)):
            items = _items(self._folder, ("seqs", *version, self._id), skip)
            for (context, name), values in groupby(items, lambda item: item[0][:2]):
                done += 1
                for time, step, value in _sorted(values, times.get(f"{context}/{name}", -1.0)):
                    if chunk.is_full and time != times.get(f"{context}/{name}"):
                        yield chunk.take({"times": dict(times)}, done)
                    times[f"{context}/{name}"] = time
                    self._add(chunk, f"{self._prefixes.get(context, '')}{name}", time, step, value, skip)
        if not chunk.is_empty:
            yield chunk.take({"times": times}, done)

    def _add(self, chunk: NextChunk, key: str, time: float, step: int, value: Any, skip: Skip) -> None:
        moment = int(time * 1e9) if 0 < time < _LATEST else self.time
        if isinstance(value, (int, float)):
            chunk.add(Metric(moment, step, None, None, {key: value}), 1)
        elif isinstance(value, _Object) and value.kind == "aim.text" and isinstance(value.data, str):
            chunk.add(Log(moment, step, None, None, None, 9, mask_text(value.data), {"tag": key}, "aim"))
        else:
            skip(f"values of type {value.kind if isinstance(value, _Object) else type(value).__name__}", 1)


@dataclass(slots=True)
class _Object:
    """A value that is not a number: its type, and its data if it is a string."""

    kind: str
    data: Any = None


def _sorted(items: Iterator[tuple[Names, Any]], after: float) -> list[tuple[float, int, Any]]:
    """Join the columns of a sequence and sort by time; only values later than `after`."""
    columns: dict[Name, dict[Name, Any]] = {"val": {}, "step": {}, "time": {}}
    for path, value in items:
        column = columns.get(path[2]) if len(path) > 3 else None
        if column is not None and len(path) == 4:
            column[path[3]] = value
        elif column is not None and path[4] == "data" and isinstance(held := column.get(path[3]), _Object):
            held.data = value
    found = []
    for number, value in columns["val"].items():
        time, step = columns["time"].get(number), columns["step"].get(number, number)
        moment = float(time) if isinstance(time, (int, float)) and math.isfinite(time) else 0.0
        if moment > after and isinstance(step, int):
            found.append((moment, step, value))
    return sorted(found, key=lambda row: row[:2])


def _items(folder: Path, prefix: Names, skip: Skip) -> Iterator[tuple[Names, Any]]:
    """Yield the values of a database below a path, with the rest of their paths; unreadable databases are counted."""
    import aimrocks

    if not (folder / "CURRENT").is_file():
        return
    with tempfile.TemporaryDirectory() as logs:  # otherwise RocksDB writes logs into the repository
        options = aimrocks.Options(create_if_missing=False, db_log_dir=logs)
        try:
            yield from _walk(aimrocks.DB(str(folder), options, read_only=True), _key(prefix))
        except (OSError, aimrocks.errors.Corruption, aimrocks.errors.RocksIOError) as error:
            skip(f"{folder.name}: {error}", 1)


def _walk(database: Any, prefix: bytes) -> Iterator[tuple[Names, Any]]:
    items = database.iteritems()
    items.seek(prefix)
    for key, data in items:
        if not key.startswith(prefix):
            return
        # Large values are stored separately, with an empty value in their place.
        held = data or database.get(b"BLOBS\xfe" + key) or b""
        path = _path(key[len(prefix) :])
        if path and held:
            yield path, _value(held)


def _key(path: Names) -> bytes:
    return b"".join(str(name).encode() + bytes([_END]) for name in path)


def _path(key: bytes) -> Names:
    found: list[Name] = []
    at = 0
    while at < len(key):
        if key[at] == _END:
            found.append(int.from_bytes(key[at + 1 : at + 9], "big", signed=True))
            at += 10
        else:
            end = key.find(_END, at)
            end = len(key) if end < 0 else end
            found.append(key[at:end].decode(errors="replace"))
            at = end + 1
    return tuple(found)


def _value(data: bytes) -> Any:
    """Decode a value: the first byte is its type; lists and objects start empty."""
    kind, content = data[0], data[1:]
    try:
        if kind == 1:
            return content[0] != 0
        if kind in (2, 3):
            return struct.unpack("<q" if kind == 2 else "<d", content)[0]
    except (IndexError, struct.error):
        return None
    if kind in (4, _CUSTOM):
        text = content.decode(errors="replace")
        return text if kind == 4 else _Object(text)
    return content if kind == 5 else [] if kind == 6 else {} if kind == 7 else None


def _put(into: dict[Name, Any], path: Names, value: Any) -> None:
    """Store a value under a path; lists are dicts by number until `_tidy`."""
    for name in path[:-1]:
        inner = into.get(name)
        if not isinstance(inner, dict):
            inner = into[name] = {}
        into = inner
    if path and not (isinstance(value, (list, dict)) and path[-1] in into):
        into[path[-1]] = value


def _tidy(value: Any) -> Any:
    """Convert dicts whose keys are all numbers to lists."""
    if isinstance(value, _Object):
        return value.kind
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_tidy(value[key]) for key in sorted(value, key=int)]
    return {str(key): _tidy(inner) for key, inner in value.items()}


SOURCES: tuple[Source, ...] = (AimRepository(),)
