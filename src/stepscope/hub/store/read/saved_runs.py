"""The rows of all runs in a file, from the end of a hub to its next start, which then need not summarise every run."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import fields

from stepscope.hub.store.read.run_row import Details, Ending, Latest, Rest, RunRow
from stepscope.journal.atomic_files import replace_file
from stepscope.model.run_description import Description

MIN_RUNS = 1000
"""Fewer runs are summarised as fast as a file is read."""
MAX_METRICS = 8
"""So many metrics are saved: those that were asked for last."""
_FORMAT = repr([1, *((kind.__name__, fields(kind)) for kind in (RunRow, Details, Ending, Latest, Description))])
"""What rows of another version are not mistaken for. The number grows when rows are made in another way of the same
tables.
"""
_encode = msgspec.msgpack.Encoder().encode


class Saved(Struct, frozen=True, array_like=True):
    """What is known of all runs: rows, and the last values of some metrics by run, packed until someone asks."""

    format: str
    created: int
    """When the tables of the store were created, which no other store has in common."""
    commits: Mapping[int, int]
    """The newest commit of each shard. All that the rows were read from is still so while these are the newest."""
    settings: list[tuple[str, ...]]
    rows: Raw = Raw()
    values: Mapping[str, Raw] = {}


class _Row(Struct, frozen=True, array_like=True, gc=False):
    """A row of a run as it is saved."""

    number: int
    id: str
    project: str
    name: str
    created: int
    started: int
    world_size: int
    ranks: int
    attempts: int
    step: int | None
    seen: int
    received: int
    notes: str
    tags: dict[str, Any]
    archived: bool
    settings: int
    rest: bytes


_header = msgspec.msgpack.Decoder(Saved)
_rows = msgspec.msgpack.Decoder(list[_Row])
_values = msgspec.msgpack.Decoder(list[tuple[int, Latest]])


def save(path: Path, created: int, commits: Mapping[int, int], rows: Mapping[int, RunRow], keys: list[str]) -> None:
    """Write the rows of runs, with the values of the metrics that were asked for last, the last of them last.

    A run that holds what cannot be packed, or that its processes edited, is left out.
    """
    settings: dict[tuple[str, ...], int] = {}
    packed = [each for row in rows.values() if (each := _pack(row, settings)) is not None]
    left = {each.number for each in packed}
    values: dict[str, Raw] = {}
    held = 0
    for key in reversed(keys):
        found = [(run, row.values[key]) for run, row in rows.items() if key in row.values and run in left]
        held += bool(found)
        if not found or held <= MAX_METRICS:
            values[key] = Raw(_encode(found))
    data = _encode(Saved(_FORMAT, created, commits, list(settings), Raw(_encode(packed)), values))
    replace_file(path, zlib.crc32(data).to_bytes(4, "big") + data)


def _pack(row: RunRow, settings: dict[tuple[str, ...], int]) -> _Row | None:
    if not row.rest.packed and row.process_edits:  # what was packed has none
        return None
    try:
        rest = row.rest.pack()
        _encode(row.tags)
    except (ValueError, TypeError, OverflowError):
        return None
    known = settings.setdefault(row.settings, len(settings))
    return _Row(
        row.number, row.id, row.project, row.name, row.created, row.started, row.world_size, row.ranks, row.attempts,
        row.step, row.seen, row.received, row.notes, dict(row.tags), row.archived, known, rest,
    )  # fmt: skip


def take(path: Path, created: int, commits: Mapping[int, int]) -> Saved | None:
    """Return what was saved of a store and remove the file; None when there is none, or the store has changed since.

    The file is gone before the store takes a record: what comes to be in the store is never compared with it.
    """
    try:
        data = path.read_bytes()
        path.unlink()
    except OSError:
        return None
    if zlib.crc32(memoryview(data)[4:]).to_bytes(4, "big") != data[:4]:
        return None
    try:
        found = _header.decode(memoryview(data)[4:])
    except msgspec.MsgspecError:
        return None
    same = (found.format, found.created, found.commits) == (_FORMAT, created, commits)
    return found if same else None


def rows_of(saved: Saved) -> dict[int, RunRow]:
    """The rows, by number of the run, without values."""
    return {
        row.number: RunRow(
            row.number, row.id, row.project, row.name, row.created, row.started, row.world_size, row.ranks,
            row.attempts, row.step, Rest(None, row.rest, saved.settings[row.settings]), row.seen,
            row.received, {}, {}, row.notes, row.tags, row.archived,
        )
        for row in _rows.decode(saved.rows)
    }  # fmt: skip


def values_of(packed: Raw) -> list[tuple[int, Latest]]:
    """The last values of a metric, each with the number of its run."""
    return _values.decode(packed)
