"""Probes of machines that have no /proc, by psutil, with the same keys."""

import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from stepscope.sdk.probes.system import Rates, Reading


class Portable:
    """One probe that asks psutil."""

    def __init__(self, name: str, psutil: Any, clock: Callable[[], float]) -> None:
        self.name = name
        self.detail = f"by psutil {psutil.__version__}"
        self._read = _READERS[name]
        self._psutil = psutil
        self._rates = Rates(clock)

    def read(self) -> Reading:
        """Read what psutil tells."""
        return self._read(self._psutil, self._rates)

    def close(self) -> None:
        """Nothing is held."""


def open_portable(name: str, clock: Callable[[], float] = time.monotonic) -> Portable:
    """Open the probe of this name; ImportError naming the fix when psutil is missing."""
    try:
        psutil = import_module("psutil")
    except ImportError:
        raise ImportError("no /proc here and no psutil: pip install 'stepscope[probes]'") from None
    return Portable(name, psutil, clock)


def _cpu(psutil: Any, rates: Rates) -> Reading:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    reading: Reading = {"cpu/count": psutil.cpu_count(), "cpu/load_1m": psutil.getloadavg()[0]}
    found = rates.read({"busy": total - idle, "total": total})
    if "busy" in found and found.get("total"):
        reading["cpu/utilization"] = min(found["busy"] / found["total"], 1.0)
    return reading


def _memory(psutil: Any, rates: Rates) -> Reading:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    used = memory.total - memory.available
    return {
        "memory/used_bytes": used,
        "memory/limit_bytes": memory.total,
        "memory/utilization": used / memory.total,
        "memory/swap_used_bytes": swap.used,
    }


def _disk(psutil: Any, rates: Rates) -> Reading:
    space = psutil.disk_usage(os.getcwd())
    reading: Reading = {
        "disk/total_bytes": space.total,
        "disk/free_bytes": space.free,
        "disk/used_bytes": space.used,
        "disk/utilization": space.percent / 100,
    }
    counters = psutil.disk_io_counters()
    if counters is None:
        return reading
    return reading | rates.read(
        {
            "disk/read_bytes_per_second": counters.read_bytes,
            "disk/written_bytes_per_second": counters.write_bytes,
        }
    )


def _network(psutil: Any, rates: Rates) -> Reading:
    rows = psutil.net_io_counters(pernic=True)
    outside = [row for name, row in rows.items() if name not in ("lo", "lo0")]
    return rates.read(
        {
            "network/received_bytes_per_second": sum(row.bytes_recv for row in outside),
            "network/sent_bytes_per_second": sum(row.bytes_sent for row in outside),
        }
    )


def _process(psutil: Any, rates: Rates) -> Reading:
    process = psutil.Process()
    reading: Reading = {
        "process/rss_bytes": process.memory_info().rss,
        "process/threads": process.num_threads(),
    }
    if hasattr(process, "num_fds"):
        reading["process/open_files"] = process.num_fds()
    return reading | rates.read({"process/cpu_cores": time.process_time()})


_READERS: dict[str, Callable[[Any, Rates], Reading]] = {
    "cpu": _cpu,
    "memory": _memory,
    "disk": _disk,
    "network": _network,
    "process": _process,
}
