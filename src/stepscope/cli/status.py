"""How a run fares: what its writers said at their end, else whether they live."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from stepscope.journal import layout
from stepscope.journal.living import is_alive
from stepscope.model.writer import Writer
from stepscope.sdk.launch import host_name

FRESH_SECONDS = 15.0
"""A living writer has written a heartbeat since; it counts where its process cannot be looked for."""
_ORDER = ("failed", "running", "crashed", "preempted", "finished")


class Files(NamedTuple):
    """The segments of a writer: bytes in all, and when the newest changed, in seconds."""

    size: int
    changed: float


def files_of(folder: Path) -> Files:
    """Look at a writer's segments without reading them."""
    size, changed = 0, 0.0
    for path in layout.list_segments(folder):
        try:
            found = os.stat(path)
        except OSError:
            continue
        size, changed = size + found.st_size, max(changed, found.st_mtime)
    return Files(size, changed)


def lives(writer: Writer, changed: float, now: float | None = None) -> bool:
    """Tell whether the process of a writer runs: one of this host has its pid, one elsewhere has written of late.

    Ask before its journal is read: who is gone by then has written all its last words.
    """
    here = writer.host == host_name() and writer.pid > 0
    if here and is_alive(writer.pid, writer.wall_ns):
        return True
    fresh = (time.time() if now is None else now) - changed < FRESH_SECONDS
    # A process that has the pid and seems younger than the writer may be the writer, once the clock was set.
    return fresh and (not here or is_alive(writer.pid, time.time_ns()))


def writer_status(writer: Writer, said: str | None, living: bool) -> str:
    """What a writer said of its end; else `running` while its process lives, else `crashed`.

    A process that was forked or joined says nothing at its end; it is `ended`.
    """
    if said is not None:
        return said
    if living:
        return "running"
    return "crashed" if writer.main else "ended"


def run_status(statuses: Iterable[str]) -> str:
    """Sum up the main writers of the newest attempt: what someone should look at first wins."""
    found = set(statuses)
    for status in _ORDER:
        if status in found:
            return status
    return min(found, default="empty")
