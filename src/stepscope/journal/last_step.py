"""The last step of earlier attempts of a run, from which its steps continue."""

import os
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from stepscope.journal import layout
from stepscope.model.records import Metric, Record
from stepscope.wire import frames

END_BYTES = 4 * 1024 * 1024
"""How many bytes at the end of a segment are read."""
LONGEST_SECONDS = 1.0
"""No further writer is read after this time."""
_by_attempt = attrgetter("attempt")


def last_step(home: Path, run: str, rank: int, *, clock: Callable[[], float] = time.monotonic) -> int | None:
    """The furthest step at the end of a rank's newest attempt that has steps; None without any."""
    deadline = clock() + LONGEST_SECONDS
    names = [name for each in layout.list_writers(home, run) if (name := layout.parse_writer(each)) is not None]
    mine = sorted((name for name in names if name.rank == rank), key=_by_attempt, reverse=True)
    for _, writers in groupby(mine, _by_attempt):
        folders = (layout.writer_folder(home, run, str(name)) for name in writers)
        steps = [step for folder in folders if clock() < deadline for step in _steps(folder)]
        if steps:
            return max(steps)
    return None


def _steps(folder: Path) -> list[int]:
    """The steps of the plain axis in the last segment that has any, of the newest two."""
    for path in reversed(layout.list_segments(folder)[-2:]):
        metrics = [record for record in _end(path) if isinstance(record, Metric) and record.axis is None]
        steps = [metric.step for metric in metrics if metric.step is not None]
        if steps:
            return steps
    return []


def _end(path: Path) -> Iterator[Record]:
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
            data = file.read(END_BYTES)
    except OSError:
        return
    for found in frames.scan(data, final=True):
        try:
            if isinstance(found, frames.Frame) and not frames.is_head(found.payload):
                yield from frames.unpack_batch(found.payload)[1]
        except ValueError:
            continue
