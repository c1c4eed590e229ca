"""Quotas: older metrics are thinned evenly, logs and spans dropped, events and alerts kept; space for the end."""

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from stepscope.journal import layout
from stepscope.journal.atomic_files import replacing
from stepscope.model.records import ALERT, EVENT, KINDS, METRIC, Metric
from stepscope.wire import frames

Packed = TypeVar("Packed", bytes, msgspec.Raw)
Turns = dict[object, bool]
"""Whether the last metric of each series was kept."""
KEPT = (EVENT, ALERT)
RESERVE_BYTES = 32 * 1024
RESERVE_NAME = "reserve"
"""Disk space kept for the last batch of a writer, which tells how its run ended also if the disk is full by then."""


def kind_of(packed: bytes | msgspec.Raw) -> int:
    """Read the tag of a packed record: the second byte, after the array's header."""
    head = packed if type(packed) is bytes else memoryview(packed)
    return head[3] if head[0] == 0xDC else head[1]


def thin(
    records: Sequence[Packed], turns: Turns | None = None, *, hard: bool = False
) -> tuple[list[Packed], Counter[str]]:
    """Keep every second metric of each series and all events and alerts; count the rest by kind.

    A series is a set of keys with its attributes; `turns` carries the alternation from call to call. Metrics with a NaN
    or infinity are kept because they are what users look for, unless `hard` is set.
    """
    turns = {} if turns is None else turns
    kept: list[Packed] = []
    dropped: Counter[str] = Counter()
    for packed in records:
        tag = kind_of(packed)
        if tag in KEPT or (tag == METRIC and _stays(packed, turns, hard)):
            kept.append(packed)
        else:
            dropped[KINDS[tag] if tag < len(KINDS) else "unknown"] += 1
    return kept, dropped


def _stays(packed: bytes | msgspec.Raw, turns: Turns, hard: bool) -> bool:
    series: object = None
    if not hard:
        try:
            metric = frames.unpack_record(packed)
        except ValueError:
            metric = None
        if isinstance(metric, Metric):
            if any(isinstance(value, float) and not math.isfinite(value) for value in metric.values.values()):
                return True
            series = (metric.category, tuple(metric.values), repr(metric.attrs) if metric.attrs else "")
    turns[series] = not turns.get(series, False)
    return turns[series]


def last_that_fit(records: Sequence[bytes], room: int) -> tuple[list[bytes], Counter[str]]:
    """Return what fits in so many bytes, events and alerts first and of each the newest; count the rest by kind."""
    chosen: set[int] = set()
    for first in (True, False):
        for at in range(len(records) - 1, -1, -1):
            if (kind_of(records[at]) in KEPT) == first and len(records[at]) <= room:
                chosen.add(at)
                room -= len(records[at])
    gone = Counter(KINDS[kind_of(packed)] for at, packed in enumerate(records) if at not in chosen)
    return [records[at] for at in sorted(chosen)], gone


def enforce(
    folder: Path,
    quota: int,
    current: Path | None,
    *,
    pause: Callable[[float], None] = time.sleep,
    on_thinned: Callable[[Path, Counter[str]], None] = lambda path, dropped: None,
) -> Counter[str]:
    """Thin a writer's closed segments, oldest first, until the folder fits; count what was dropped by kind.

    `on_thinned` gets the same counts for each segment.
    Each pass thins every closed segment once more. When that gains nothing more, non-finite values and the only metric
    of a series are dropped too: only events and alerts can keep a folder above its quota.
    """
    sizes = {path: layout.size_of(path) for path in layout.list_segments(folder)}
    dropped: Counter[str] = Counter()
    for hard in (False, True):
        gone: Counter[str] | None = None
        while (gone is None or gone) and sum(sizes.values()) > quota:
            gone = _thin_once(sizes, quota, current, hard, pause, on_thinned)
            dropped += gone
    return dropped


def _thin_once(
    sizes: dict[Path, int],
    quota: int,
    current: Path | None,
    hard: bool,
    pause: Callable[[float], None],
    on_thinned: Callable[[Path, Counter[str]], None],
) -> Counter[str]:
    """Thin the closed segments in turn, until the folder fits."""
    turns: Turns = {}
    dropped: Counter[str] = Counter()
    for path in sizes:
        if sum(sizes.values()) <= quota:
            break
        if path != current:
            with contextlib.suppress(OSError):
                gone = _thin_segment(path, turns, hard, pause)
                on_thinned(path, gone)
                dropped += gone
            sizes[path] = layout.size_of(path)
    return dropped


def count_kinds(path: Path) -> Counter[str]:
    """Count the readable records of a segment by kind; none when it is gone."""
    found: Counter[str] = Counter()
    try:
        data = path.read_bytes()
    except OSError:
        return found
    for frame in frames.scan(data, final=True):
        if isinstance(frame, frames.Damage) or frames.is_head(frame.payload):
            continue
        with contextlib.suppress(ValueError, IndexError):
            records = frames.raw_records(frame.payload[frames.BATCH_BYTES - 5 :])
            found.update(KINDS[tag] for tag in map(kind_of, records) if tag < len(KINDS))
    return found


def _thin_segment(path: Path, turns: Turns, hard: bool, pause: Callable[[float], None]) -> Counter[str]:
    """Thin one closed segment; batches keep their sequence numbers, an empty segment is removed."""
    dropped: Counter[str] = Counter()
    heads: list[bytes] = []
    batches: list[bytes] = []
    for found in frames.scan(path.read_bytes(), final=True):
        if isinstance(found, frames.Damage):
            continue
        if frames.is_head(found.payload):
            heads.append(frames.frame(bytes(found.payload)))
            continue
        batch, gone = _thin_batch(found.payload, turns, hard)
        batches += batch
        dropped += gone
        pause(0)
    if not batches:
        os.unlink(path)
    elif dropped:
        with replacing(path) as file:
            file.writelines(heads + batches)
    return dropped


def _thin_batch(payload: memoryview, turns: Turns, hard: bool) -> tuple[list[bytes], Counter[str]]:
    """Return a thinned batch as one frame, or nothing when it is empty."""
    try:
        seq = frames.batch_seq(payload)
        records = frames.raw_records(payload[frames.BATCH_BYTES - 5 :])
    except ValueError:
        return [frames.frame(bytes(payload))], Counter()
    kept, dropped = thin(records, turns, hard=hard)
    return [frames.pack_batch(seq, kept)] if kept else [], dropped


class EndReserve:
    """A file of zeros in a writer's folder that becomes its last segment.

    It is overwritten in place, which needs no free space but on file systems that copy on write.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESERVE_NAME
        self.room = 0
        """The bytes that are reserved; 0 if there was no space for them."""

    def take(self) -> None:
        """Reserve the space if the disk has it; never raises."""
        try:
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(bytes(RESERVE_BYTES))
        except OSError:
            self.release()
        else:
            self.room = RESERVE_BYTES

    def write(self, segment: Path, data: bytes) -> None:
        """Make the space a segment that holds `data`, of at most `room` bytes; OSError when that fails."""
        with open(self._path, "r+b", buffering=0) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            file.truncate(len(data))
        os.rename(self._path, segment)
        self.room = 0

    def release(self) -> None:
        """Give the space back."""
        self.room = 0
        with contextlib.suppress(OSError):
            os.unlink(self._path)
