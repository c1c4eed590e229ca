"""Requests for delivery: a small file per run and host, written by trainers and read by the one shipper of the host."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope.journal.atomic_files import FileLock, replace_file
from stepscope.sinks import registry
from stepscope.sinks.registry import Chosen, RecordFilter

GIVE_UP_SECONDS = 24 * 3600.0
"""How long a shipper keeps trying failing sinks when no trainer is left."""


class _Sink(msgspec.Struct):
    name: str
    config: msgspec.Raw
    filter: RecordFilter = RecordFilter()


class _File(msgspec.Struct):
    run: str
    host: str
    sinks: list[_Sink]
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
_decode_sink = msgspec.json.Decoder(_Sink).decode


def folder(home: Path) -> Path:
    """Return the folder of requests, locks and reports of shippers."""
    return home / "shipping"


def register(home: Path, run: str, host: str, sinks: Iterable[Chosen], *, server: int = 0) -> None:
    """Request the delivery of a run; the file is readable only by its owner because options may hold secrets.

    With `server`, a process that delivers its own records, shippers skip the run while that process lives.
    """
    _renew(_path(home, run, host, server), _File(run, host, [_packed(each) for each in sinks], server))


def forget(home: Path, run: str, host: str, *, server: int = 0) -> None:
    """Remove a request: everything of the run is delivered."""
    with contextlib.suppress(OSError):
        _path(home, run, host, server).unlink()


def keep_sink(home: Path, chosen: Chosen) -> None:
    """Store the options of a sink for `stepscope quarantine retry`; the file is readable only by its owner."""
    with contextlib.suppress(OSError):
        _renew(folder(home) / f"{chosen.id}.sink", _packed(chosen))


def kept_sinks(home: Path) -> dict[str, Chosen]:
    """Return the sinks that runs of this home were delivered to, by id; unreadable files are skipped."""
    found = {}
    for path in folder(home).glob("*.sink"):
        with contextlib.suppress(OSError, ValueError):
            chosen = _chosen(_decode_sink(path.read_bytes()))
            found[chosen.id] = chosen
    return found


def list_requests(home: Path, host: str | None = None) -> list[SinkRequest]:
    """Return the requests of a host, or of all hosts; unreadable ones and those with unknown sinks are skipped."""
    found = []
    for path in sorted(folder(home).glob("*.want")):
        try:
            file = _decode(path.read_bytes())
            if host in (None, file.host):
                sinks = tuple(_chosen(sink) for sink in file.sinks)
                found.append(SinkRequest(file.run, file.host, sinks, path.stat().st_mtime, file.server))
        except (OSError, ValueError):  # ConfigError is a ValueError
            continue
    return found


def replace(path: Path, data: bytes) -> None:
    """Replace a file that only its owner can read, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, data)


def _renew(path: Path, content: msgspec.Struct) -> None:
    """Write a file unless its content is the same."""
    data = msgspec.json.encode(content)
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return
    replace(path, data)


def _path(home: Path, run: str, host: str, server: int) -> Path:
    return folder(home) / (f"{run}@{host}.{server}.want" if server else f"{run}@{host}.want")


def _packed(chosen: Chosen) -> _Sink:
    return _Sink(chosen.name, msgspec.Raw(msgspec.json.encode(chosen.config)), chosen.filter)


def _chosen(sink: _Sink) -> Chosen:
    return Chosen(sink.name, msgspec.json.decode(sink.config, type=registry.find(sink.name)), sink.filter)


def lock_home(home: Path, host: str) -> FileLock:
    """Take the lock that the one shipper of a home on a host holds; Locked, with its pid, when another has it."""
    path = folder(home) / f"{host}.lock"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return FileLock(path)
