"""Whether the process behind a writer still runs, and what its journal adds to the state of its run."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from stepscope.journal import layout
from stepscope.model.writer import Writer

_LATE_SECONDS = 60.0


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


def process_alive(writer: Writer) -> bool | None:
    """Tell whether the process of a writer exists; None where only its silence can tell.

    That is so for a process of another host, and for one that has the pid but seems younger than the writer: it may
    be the writer after the clock was set. Ask before the journal is read: a process that is gone by then has
    written its last record.
    """
    if writer.host != layout.host_name() or writer.pid <= 0:
        return None
    if is_alive(writer.pid, writer.wall_ns):
        return True
    return None if is_alive(writer.pid, time.time_ns()) else False


def is_alive(pid: int, since_ns: int) -> bool:
    """Tell whether the process that had this pid at a time still runs; not one that got the pid later."""
    if pid <= 0:
        return False
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return state not in "ZX" and not _began_later(int(fields[18]), since_ns)
    except (OSError, ValueError, IndexError):
        pass  # gone, or no /proc here, or one that hides the processes of others
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _began_later(ticks: int, since_ns: int) -> bool:
    """Compare a start, in ticks since boot, with a time of day; clocks that were set leave a doubt."""
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return began > since_ns / 1e9 + _LATE_SECONDS
