"""Requests for delivery: a small file per run and host, written by trainers and read by the one shipper of the host."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope.journal.atomic_files import put_file
from stepscope.journal.layout import shipping_folder
from stepscope.sinks.registry import Chosen, StoredSink

GIVE_UP_SECONDS = 24 * 3600.0
"""How long a shipper keeps trying failing sinks when no trainer is left."""


class _File(msgspec.Struct):
    run: str
    host: str
    sinks: list[StoredSink]
    server: int = 0


class SinkRequest(NamedTuple):
    """The sinks requested by a run on a host."""

    run: str
    host: str
    sinks: tuple[Chosen, ...]
    since: float = 0.0
    """When the request was made or last changed."""
    server: int = 0
    """The process that delivers its own records in threads; 0 when a shipper delivers them."""


_decode = msgspec.json.Decoder(_File).decode


def register(home: Path, run: str, host: str, sinks: Iterable[Chosen], *, server: int = 0) -> None:
    """Request the delivery of a run; the file is readable only by its owner because options may hold secrets.

    With `server`, a process that delivers its own records, shippers skip the run while that process lives.
    """
    file = _File(run, host, [each.stored() for each in sinks], server)
    put_file(_path(home, run, host, server), msgspec.json.encode(file))


def forget(home: Path, run: str, host: str, *, server: int = 0) -> None:
    """Remove a request: everything of the run is delivered."""
    with contextlib.suppress(OSError):
        _path(home, run, host, server).unlink()


def list_requests(home: Path, host: str | None = None) -> list[SinkRequest]:
    """Return the requests of a host, or of all hosts; unreadable ones and those with unknown sinks are skipped."""
    found = []
    for path in sorted(shipping_folder(home).glob("*.want")):
        try:
            file = _decode(path.read_bytes())
            if host in (None, file.host):
                sinks = tuple(sink.chosen() for sink in file.sinks)
                found.append(SinkRequest(file.run, file.host, sinks, path.stat().st_mtime, file.server))
        except (OSError, ValueError):  # ConfigError is a ValueError
            continue
    return found


def _path(home: Path, run: str, host: str, server: int) -> Path:
    return shipping_folder(home) / (f"{run}@{host}.{server}.want" if server else f"{run}@{host}.want")
