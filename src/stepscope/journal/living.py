"""Whether the process behind a writer still runs."""

import os
import time
from pathlib import Path

_LATE_SECONDS = 60.0


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
