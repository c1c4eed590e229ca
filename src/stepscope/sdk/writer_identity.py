"""The identity of this process's writer: its name, and the attempt of the run, found without coordination."""

import os
import time
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.layout import host_name, is_alive
from stepscope.journal.segments import SEGMENT_BYTES, Journal, Tail
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.redaction import redact
from stepscope.sdk.attributes import clean
from stepscope.sdk.run_protocols import Part

FRESH_SECONDS = 30.0
"""A live process writes a heartbeat more often than this."""
HEAD_BYTES = 65536


def open_journal(run: Part) -> Journal:
    """Name this process's writer and open its journal. Runs on the flusher's thread because it reads the disk."""
    host = host_name()
    start = run.link[0].hex()[:6]
    attempt, joins = find_attempt(run.home, run.id, run.rank, host, start, least=run.launch.restarts + 1)
    run.main = run.main and not joins
    name = layout.WriterName(run.rank, attempt, host, os.getpid(), start + os.urandom(3).hex())
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
        wall_ns=run.started,
        monotonic_ns=run.started_monotonic,
        resource=resource_of(run),
    )
    folder = layout.writer_folder(run.home, run.id, writer.id)
    return Journal(
        folder,
        writer,
        segment_bytes=min(SEGMENT_BYTES, run.settings.disk_quota // 4),
        on_segment=run.delivery.request,
    )


def find_attempt(home: Path, run: str, rank: int, host: str, start: str, *, least: int = 1) -> tuple[int, bool]:
    """Number this start of a rank, and return whether it joins a living process that began earlier.

    The number is that of the processes forked from the same `init` (their tokens begin with `start`), else that of a
    living main process, else one more than the last. Children that outlived their trainer do not count as living.
    Only writers of the same rank count, so ranks that restart together agree without coordination.
    """
    earlier = [layout.parse_writer(name) for name in layout.list_writers(home, run)]
    mine = [name for name in earlier if name is not None and name.rank == rank]
    for name in mine:
        if name.token.startswith(start):
            return name.attempt, False
    living = [
        name.attempt
        for name in mine
        if name.host == host
        and name.pid != os.getpid()
        and is_alive(name.pid, time.time_ns())
        and _is_main(layout.writer_folder(home, run, str(name)))
    ]
    if living:
        return max(living), True
    return max(max((name.attempt for name in mine), default=0) + 1, least), False


def _is_main(folder: Path) -> bool:
    """Return whether a writer is a main process that has written recently, or has just started."""
    try:
        newest = max(path.stat().st_mtime for path in (folder, *layout.list_segments(folder)))
    except OSError:
        return False
    tail = Tail(folder)
    tail.read(limit=HEAD_BYTES)
    return time.time() - newest < FRESH_SECONDS and (tail.writer is None or tail.writer.main)


def resource_of(run: Part) -> dict[str, object]:
    """Return OpenTelemetry's resource attributes of this process, which all its records share."""
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
        **redact(clean({key: value for key, value in settings.resource_attributes.items() if key != "service.name"})),
    }
