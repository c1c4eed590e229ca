"""Memory limit and CPU quota of this process's control group, of cgroup v2 or v1."""

import re
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

_NO_LIMIT = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


class MemoryGroup(NamedTuple):
    """The group with the tightest memory limit; read again each time, because a limit can change."""

    folder: Path
    version: int

    def limit(self) -> int | None:
        """The bytes allowed; None when there is no limit."""
        return _memory_limit(self.folder, self.version)

    def used(self) -> int:
        """The bytes in use, without the file cache, which is reclaimed on demand."""
        if self.version == 2:
            return _number(self.folder / "memory.current") - _field(self.folder / "memory.stat", "inactive_file")
        stat = self.folder / "memory.stat"
        return _number(self.folder / "memory.usage_in_bytes") - _field(stat, "total_inactive_file")


class CpuGroup(NamedTuple):
    """The group with the smallest CPU quota."""

    folder: Path
    version: int
    usage: Path
    """The file that counts the cpu time used."""

    def cores(self) -> float | None:
        """The CPUs allowed; None when there is no quota."""
        return _cores(self.folder, self.version)

    def used(self) -> float:
        """The seconds of cpu time used so far."""
        if self.version == 2:
            return _field(self.usage, "usage_usec") / 1e6
        return _number(self.usage) / 1e9

    def throttled(self) -> float:
        """The seconds of throttling so far."""
        if self.version == 2:
            return _field(self.folder / "cpu.stat", "throttled_usec") / 1e6
        return _field(self.folder / "cpu.stat", "throttled_time") / 1e9


def find_memory(proc: Path = PROC) -> MemoryGroup | None:
    """Find the group that limits the memory of this process, if one does."""
    version, folders = _groups("memory", proc)
    limits = [(limit, folder) for folder in folders if (limit := _memory_limit(folder, version)) is not None]
    return MemoryGroup(min(limits)[1], version) if limits else None


def find_cpu(proc: Path = PROC) -> CpuGroup | None:
    """Find the group that limits the cpu time of this process, if one does."""
    version, folders = _groups("cpu", proc)
    quotas = [(cores, folder) for folder in folders if (cores := _cores(folder, version)) is not None]
    if not quotas:
        return None
    folder = min(quotas)[1]
    if version == 2:
        return CpuGroup(folder, version, folder / "cpu.stat")
    depth = len(folders) - folders.index(folder)
    accounts = _groups("cpuacct", proc)[1]
    return CpuGroup(folder, version, accounts[-depth] / "cpuacct.usage") if len(accounts) >= depth else None


def _memory_limit(folder: Path, version: int) -> int | None:
    text = file_text(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
    limit = int(text) if text.isdigit() else _NO_LIMIT
    return limit if limit < _NO_LIMIT else None


def _cores(folder: Path, version: int) -> float | None:
    if version == 2:
        quota, _, period = file_text(folder / "cpu.max").partition(" ")
    else:
        quota, period = file_text(folder / "cpu.cfs_quota_us"), file_text(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _groups(controller: str, proc: Path) -> tuple[int, list[Path]]:
    """The cgroup version of a controller, and the folders of our group and its parents, innermost first."""
    version, group = 0, ""
    for line in file_text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            version, group = 1, path
        elif controllers == "" and not version:
            version, group = 2, path
    mount = _mount(controller, version, proc)
    if mount is None:
        return version, []
    top, root = mount
    inside = _below(group, root)
    folder = top / inside
    if not folder.is_dir():
        folder = top
    around = [folder, *folder.parents]
    return version, around[: around.index(top) + 1]


def _below(group: str, root: str) -> str:
    """The path of a group relative to the root of its mount; the root itself when it is elsewhere."""
    if ".." in group.split("/"):
        return ""
    if root == "/":
        return group.strip("/")
    return group[len(root) :].strip("/") if f"{group}/".startswith(f"{root}/") else ""


def _mount(controller: str, version: int, proc: Path) -> tuple[Path, str] | None:
    """Where a controller is mounted, and which group the mount shows as its root."""
    for line in file_text(proc / "self" / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.partition(" ")
        fields = left.split(" ")
        unified = kind == "cgroup2" and version == 2
        if unified or (kind == "cgroup" and version == 1 and controller in options.split(" ")[-1].split(",")):
            top = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
            return Path(top), fields[3]
    return None


def file_text(path: Path) -> str:
    """Return the stripped text of a file; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    return int(path.read_text())


def _field(path: Path, name: str) -> int:
    """A number from a file of `name number` lines; 0 when the line is missing."""
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
