"""Where a process writes: its writer's name, and which attempt of the run this is, found without talking to anyone."""

import os
import secrets
import time
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.write import SEGMENT_BYTES, Journal
from stepscope.model import names
from stepscope.model.writer import Writer
from stepscope.sdk.launch import host_name
from stepscope.sdk.ports import Part


FRESH_SECONDS = 30.0
"""A living process has written a heartbeat since."""


def open_journal(run: Part) -> Journal:
    """Name this process's writer and open its journal. Runs on the flusher's thread, for it reads the disk."""
    host = host_name()
    attempt = find_attempt(run.home, run.id, run.rank, host, least=run.launch.restarts + 1)
    name = layout.WriterName(run.rank, attempt, host, os.getpid(), secrets.token_hex(3))
    writer = Writer(
        id=str(name),
        run=run.id,
        project=run.project,
        name=run.name,
        attempt=attempt,
        rank=run.rank,
        world_size=run.launch.world_size,
        local_rank=run.launch.local_rank,
        host=host,
        pid=os.getpid(),
        main=run.main,
        wall_ns=time.time_ns(),
        monotonic_ns=time.monotonic_ns(),
        resource=_resource(run),
    )
    folder = layout.writer_folder(run.home, run.id, writer.id)
    return Journal(folder, writer, segment_bytes=min(SEGMENT_BYTES, run.settings.disk_quota // 4))


def find_attempt(home: Path, run: str, rank: int, host: str, *, least: int = 1) -> int:
    """Number this start of a rank: one more than its last, or the same while a sibling process is alive.

    Only writers of the same rank count, so ranks that restart together agree without coordination.
    """
    earlier = [layout.parse_writer(name) for name in layout.list_writers(home, run)]
    mine = [name for name in earlier if name is not None and name.rank == rank]
    siblings = [
        name.attempt
        for name in mine
        if name.host == host
        and name.pid != os.getpid()
        and _is_alive(name.pid)
        and _is_fresh(layout.writer_folder(home, run, str(name)))
    ]
    if siblings:
        return max(siblings)
    return max(max((name.attempt for name in mine), default=0) + 1, least)


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not os.path.exists("/proc/self/stat")


def _is_fresh(folder: Path) -> bool:
    try:
        newest = max(path.stat().st_mtime for path in layout.list_segments(folder))
    except (ValueError, OSError):
        return False
    return time.time() - newest < FRESH_SECONDS


def _resource(run: Part) -> dict[str, object]:
    settings = run.settings
    return {
        "service.name": settings.service_name or settings.resource_attributes.get("service.name") or run.project,
        "service.instance.id": f"{run.id}-r{run.rank}",
        names.ATTR_RUN_ID: run.id,
        names.ATTR_RANK: run.rank,
        names.ATTR_WORLD_SIZE: run.launch.world_size,
        names.ATTR_LOCAL_RANK: run.launch.local_rank,
        "host.name": host_name(),
        "process.pid": os.getpid(),
        **{key: value for key, value in settings.resource_attributes.items() if key != "service.name"},
    }
