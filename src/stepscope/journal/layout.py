"""The home folder: names of runs, writers and segments, which processes are alive, and the hub that serves it."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.journal.atomic_files import holder
from stepscope.model.ports import Writer

SUFFIX = ".seg"
_START = 6
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_WRITER = re.compile(r"r(\d+)-a(\d+)-(.+)-(\d+)-([0-9a-f]+)", re.ASCII)
_SEGMENT = re.compile(r"(\d{6}|[1-9]\d{6,})\.seg", re.ASCII)


class WriterName(NamedTuple):
    """The fields in the name of a writer's folder."""

    rank: int
    attempt: int
    host: str
    pid: int
    token: str

    @property
    def start(self) -> str:
        """The beginning of the token, which a process shares with those that are forked from it."""
        return self.token[:_START]

    def __str__(self) -> str:
        return f"r{self.rank}-a{self.attempt}-{self.host}-{self.pid}-{self.token}"


def is_safe(name: str) -> bool:
    """Return whether a run id is a valid folder name on every file system."""
    return _SAFE.fullmatch(name) is not None


def slug(text: str) -> str:
    """Turn any text into a safe folder name."""
    return _UNSAFE.sub("-", text).strip("-._")[:64] or "x"


def host_name() -> str:
    """Return this machine's name as used in the names of writers' folders."""
    return slug(os.uname().nodename).replace(".", "-")


def parse_writer(name: str) -> WriterName | None:
    """Read a writer's folder name; None when it is not one."""
    found = _WRITER.fullmatch(name)
    if found is None:
        return None
    rank, attempt, host, pid, token = found.groups()
    return WriterName(int(rank), int(attempt), host, int(pid), token)


def runs_folder(home: Path) -> Path:
    """The folder that holds all runs."""
    return home / "runs"


def writer_folder(home: Path, run: str, writer: str) -> Path:
    """The folder of one writer."""
    return runs_folder(home) / run / writer


def requests_path(home: Path, run: str) -> Path:
    """The file with what users ask of a run."""
    return home / "requests" / f"{run}.json"


def shipping_folder(home: Path) -> Path:
    """The folder with the requests, locks and reports of shippers, and the options of their sinks."""
    return home / "shipping"


def list_runs(home: Path) -> list[str]:
    """Return the run ids of a home folder, sorted; folders with other names are skipped."""
    return sorted(entry.name for entry in _folders(runs_folder(home)) if is_safe(entry.name))


def list_writers(home: Path, run: str) -> list[str]:
    """Return the writers of a run, sorted."""
    found = (entry.name for entry in _folders(runs_folder(home) / run))
    return sorted(name for name in found if parse_writer(name) is not None)


def list_segments(folder: Path) -> list[Path]:
    """List the segments of a writer in the order they were written."""
    try:
        names = [name for name in os.listdir(folder) if _SEGMENT.fullmatch(name)]
    except OSError:
        return []
    return [folder / name for name in sorted(names, key=lambda name: (len(name), name))]


def segment_path(folder: Path, index: int) -> Path:
    """Return the path of a segment."""
    return folder / f"{index:06d}{SUFFIX}"


def _folders(parent: Path) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(parent) as entries:
            yield from [entry for entry in entries if entry.is_dir()]
    except OSError:
        return


_LATE_SECONDS = 60.0


class Files(NamedTuple):
    """The segments of a writer: bytes in all, and when the newest changed, in seconds."""

    size: int
    changed: float


def files_of(folder: Path) -> Files:
    """Return size and modification time of a writer's segments without reading them."""
    size, changed = 0, 0.0
    for path in list_segments(folder):
        try:
            found = os.stat(path)
        except OSError:
            continue
        size, changed = size + found.st_size, max(changed, found.st_mtime)
    return Files(size, changed)


def size_of(path: Path) -> int:
    """Return the size of a file; 0 when it cannot be seen."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def process_alive(writer: Writer) -> bool | None:
    """Return whether the process of a writer exists; None when that is unknown.

    It is unknown for a process of another host, and for one with the same pid that seems to have started later, since
    the clock may have been set. Ask before reading the journal: a process that is gone by then has written its last
    record.
    """
    if writer.host != host_name() or writer.pid <= 0:
        return None
    if is_alive(writer.pid, writer.wall_ns):
        return True
    return None if is_alive(writer.pid, time.time_ns()) else False


def is_alive(pid: int, since_ns: int) -> bool:
    """Return whether the process that had this pid at a given time is still running."""
    if pid <= 0:
        return False
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return state not in "ZX" and not _began_later(int(fields[18]), since_ns)
    except (OSError, ValueError, IndexError):
        pass  # gone, or /proc is missing or hides other users' processes
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _began_later(ticks: int, since_ns: int) -> bool:
    """Compare a start, in ticks since boot, with a wall-clock time, with a tolerance for clock changes."""
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return began > since_ns / 1e9 + _LATE_SECONDS


def address_of(home: Path) -> str | None:
    """The address of the hub that has a home folder open; None when none does."""
    return (holder(home / "hub" / "lock") or "").partition(" ")[2] or None
