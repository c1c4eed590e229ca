"""What the operating system says of this process and its children: resident memory, processor time."""

from __future__ import annotations

import os
import time
from typing import Any


def rss_bytes() -> int:
    """Return this process's resident memory."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return int(_processes()[0].memory_info().rss)


def tree_rss_bytes() -> int:
    """Return the resident memory of this process and of every process under it."""
    return sum(_each(lambda process: process.memory_info().rss))


def tree_cpu_s() -> float:
    """Return user plus system seconds of this process (all threads) and of every living process under it."""
    times = _each(lambda process: process.cpu_times())
    return sum(t.user + t.system for t in times[1:]) + time.process_time()


def wait_until_idle(limit_s: float, slice_s: float = 0.3, busy_share: float = 0.03) -> bool:
    """Sleep until the tree uses under `busy_share` of a core; return whether it came to rest in time."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = tree_cpu_s()
        time.sleep(slice_s)
        if tree_cpu_s() - before < slice_s * busy_share:
            return True
    return False


def _processes() -> list[Any]:
    import psutil

    here = psutil.Process()
    return [here, *here.children(recursive=True)]


def _each(read: Any) -> list[Any]:
    import psutil

    found = []
    for process in _processes():
        try:
            found.append(read(process))
        except psutil.NoSuchProcess:
            continue
    return found
