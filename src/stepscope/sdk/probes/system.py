"""Probes of CPU, memory, disk, network and process: from /proc, or with psutil where there is no /proc."""

import os
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from stepscope.sdk.probes import cgroup
from stepscope.sdk.probes.cgroup import PROC

Reading = dict[str, float | int]

_SYS = Path("/sys")
_SECTOR = 512
_SHORTEST = 0.1
"""Shortest interval of a rate, in seconds; below it /proc's ticks of 10 ms are noise."""
_STACKED_DISKS = ("dm-", "drbd", "loop", "md", "ram", "sr", "zram")
"""Block devices backed by others, or not disks: their bytes would be counted twice or wrongly."""


class Rates:
    """Converts cumulative totals into rates since the previous reading."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, float]] = {}

    def per_second(self, key: str, total: float) -> float | None:
        """The rate since the previous reading; None for the first, and after a total that decreased."""
        return self._rate(key, total, self._clock())

    def read(self, totals: dict[str, float]) -> Reading:
        """The rates of several totals, without those that have none yet."""
        now = self._clock()
        rates = {key: self._rate(key, total, now) for key, total in totals.items()}
        return {key: rate for key, rate in rates.items() if rate is not None}

    def _rate(self, key: str, total: float, now: float) -> float | None:
        before, then = self._seen.get(key, (total, now))
        if key in self._seen and now - then < _SHORTEST:
            return None
        self._seen[key] = (total, now)
        return (total - before) / (now - then) if now > then and total >= before else None


class Cpu:
    """The cpus this process may run on, or, under a quota, the part of them it may use."""

    name = "cpu"

    def __init__(self, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._stat = proc / "stat"
        self._load = proc / "loadavg"
        self._group = cgroup.find_cpu(proc)
        self._rates = Rates(clock)
        quota = self._group.cores() if self._group else None
        self.detail = f"{len(_allowed())} of {os.cpu_count()} cpus" + (f", quota {quota:g}" if quota else "")

    def read(self) -> Reading:
        """Read utilisation, number of CPUs, load, and under a quota the throttling."""
        allowed = _allowed()
        reading: Reading = {"cpu/load_1m": float(self._load.read_text().split()[0])}
        quota = self._group.cores() if self._group else None
        if self._group is None or quota is None or quota >= len(allowed):
            return reading | {"cpu/count": len(allowed)} | self._shared(allowed)
        used = self._rates.per_second("used", self._group.used())
        if used is not None:
            reading["cpu/utilization"] = min(used / quota, 1.0)
        throttled = self._rates.read({"cpu/throttled_seconds_per_second": self._group.throttled()})
        return reading | {"cpu/count": quota} | throttled

    def _shared(self, allowed: set[int]) -> Reading:
        """The utilisation of the allowed CPUs by all processes."""
        busy, total = _ticks(self._stat.read_text(), allowed)
        rates = self._rates.read({"busy": busy, "total": total})
        if "busy" not in rates or not rates.get("total"):
            return {}
        return {"cpu/utilization": min(rates["busy"] / rates["total"], 1.0)}

    def close(self) -> None:
        """Does nothing."""


class Memory:
    """The memory of the machine, or of the control group where that is smaller."""

    name = "memory"

    def __init__(self, proc: Path = PROC) -> None:
        self._info = proc / "meminfo"
        self._group = cgroup.find_memory(proc)
        self.detail = "limited by a control group" if self._group else "of the machine"

    def read(self) -> Reading:
        """Read total and used memory."""
        info = _meminfo(self._info.read_text())
        limit, used = info["MemTotal"], info["MemTotal"] - info["MemAvailable"]
        ours = self._group.limit() if self._group else None
        if self._group is not None and ours is not None and ours < limit:
            limit, used = ours, self._group.used()
        return {
            "memory/used_bytes": used,
            "memory/limit_bytes": limit,
            "memory/utilization": used / limit,
            "memory/swap_used_bytes": info.get("SwapTotal", 0) - info.get("SwapFree", 0),
        }

    def close(self) -> None:
        """Does nothing."""


class Pressure:
    """The share of the last ten seconds that some task waited for a CPU, for storage or for memory."""

    name = "psi"

    def __init__(self, proc: Path = PROC) -> None:
        self._files = {name: proc / "pressure" / name for name in ("cpu", "io", "memory")}
        self.detail = "pressure stall information"

    def read(self) -> Reading:
        """Read the shares, 0 to 1; OSError, with the reason, where the kernel does not count them."""
        return {f"psi/{name}": _waiting_share(file.read_text()) for name, file in self._files.items()}

    def close(self) -> None:
        """Does nothing."""


class Disk:
    """The file system of a folder, and the traffic of all disks of the machine."""

    name = "disk"

    def __init__(
        self,
        folder: str | None = None,
        proc: Path = PROC,
        sys: Path = _SYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.detail = self._folder = folder or _working_folder()
        self._stats = proc / "diskstats"
        self._blocks = sys / "block"
        self._rates = Rates(clock)

    def read(self) -> Reading:
        """Read the space of the file system and the bytes read and written."""
        space = os.statvfs(self._folder)
        total = space.f_blocks * space.f_frsize
        free = space.f_bavail * space.f_frsize
        used = total - space.f_bfree * space.f_frsize
        reading: Reading = {"disk/total_bytes": total, "disk/free_bytes": free, "disk/used_bytes": used}
        if used + free:
            reading["disk/utilization"] = used / (used + free)
        return reading | self._rates.read(self._traffic())

    def _traffic(self) -> dict[str, float]:
        try:
            disks = {name for name in os.listdir(self._blocks) if not name.startswith(_STACKED_DISKS)}
            lines = self._stats.read_text().splitlines()
        except OSError:
            return {}
        rows = [fields for line in lines if (fields := line.split())[2] in disks]
        return {
            "disk/read_bytes_per_second": sum(int(row[5]) for row in rows) * _SECTOR,
            "disk/written_bytes_per_second": sum(int(row[9]) for row in rows) * _SECTOR,
        }

    def close(self) -> None:
        """Does nothing."""


class Network:
    """The network interfaces of the machine; virtual ones count only where there are no physical ones."""

    name = "network"

    def __init__(self, proc: Path = PROC, sys: Path = _SYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._counters = proc / "self" / "net" / "dev"
        self._devices = sys / "class" / "net"
        self._rates = Rates(clock)
        self.detail = ", ".join(sorted(self._select(_interfaces(self._counters.read_text())))) or "no interface"

    def read(self) -> Reading:
        """Read the bytes received and sent."""
        rows = _interfaces(self._counters.read_text())
        names = self._select(rows)
        return self._rates.read(
            {
                "network/received_bytes_per_second": sum(rows[name][0] for name in names),
                "network/sent_bytes_per_second": sum(rows[name][8] for name in names),
            }
        )

    def _select(self, rows: Iterable[str]) -> list[str]:
        outside = [name for name in rows if name != "lo"]
        return [name for name in outside if (self._devices / name / "device").exists()] or outside

    def close(self) -> None:
        """Does nothing."""


class Process:
    """This process."""

    name = "process"

    def __init__(self, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = proc / "self"
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._rates = Rates(clock)
        self.detail = f"pid {os.getpid()}"

    def read(self) -> Reading:
        """Read memory, threads, open files and CPU use."""
        behind_name = (self._folder / "stat").read_bytes().rpartition(b")")[2].split()
        reading: Reading = {
            "process/rss_bytes": int((self._folder / "statm").read_bytes().split()[1]) * self._page,
            "process/threads": int(behind_name[17]),
            "process/open_files": len(os.listdir(self._folder / "fd")) - 1,
        }
        return reading | self._rates.read({"process/cpu_cores": time.process_time()})

    def close(self) -> None:
        """Does nothing."""


def _allowed() -> set[int]:
    """The CPUs of the whole process; an argument of 0 would mean those of the calling thread."""
    return os.sched_getaffinity(os.getpid())


def _ticks(stat: str, cpus: set[int]) -> tuple[int, int]:
    """Busy and total ticks of some CPUs; guest time is included in user time."""
    names = {f"cpu{cpu}" for cpu in cpus}
    busy = total = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name in names:
            ticks = [int(field) for field in fields[:8]]
            total += sum(ticks)
            busy += sum(ticks) - ticks[3] - ticks[4]
    return busy, total


def _waiting_share(text: str) -> float:
    """The share in a line like `some avg10=1.50 avg60=0.90 avg300=0.20 total=12345`."""
    return float(text.partition("avg10=")[2].partition(" ")[0]) / 100


def _meminfo(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1}


def _interfaces(text: str) -> dict[str, list[int]]:
    rows = (line.partition(":") for line in text.splitlines()[2:])
    return {name.strip(): [int(field) for field in fields.split()] for name, _, fields in rows}


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"


class Portable:
    """A probe that uses psutil."""

    def __init__(self, name: str, psutil: Any, clock: Callable[[], float]) -> None:
        self.name = name
        self.detail = f"by psutil {psutil.__version__}"
        self._read = _READERS[name]
        self._psutil = psutil
        self._rates = Rates(clock)

    def read(self) -> Reading:
        """Read the values of psutil."""
        return self._read(self._psutil, self._rates)

    def close(self) -> None:
        """Does nothing."""


def open_portable(name: str, clock: Callable[[], float] = time.monotonic) -> Portable:
    """Open a probe by name; ImportError, with the fix, when psutil is missing."""
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
