"""Which runs of a home want which sinks: a small file for each run and host, left by trainers, read by shippers."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope.sinks import registry
from stepscope.sinks.record_filter import RecordFilter
from stepscope.sinks.registry import Chosen


class _Sink(msgspec.Struct):
    name: str
    config: msgspec.Raw
    filter: RecordFilter = RecordFilter()


class _File(msgspec.Struct):
    run: str
    host: str
    sinks: list[_Sink]


class Wish(NamedTuple):
    """A run of a host that wants some sinks."""

    run: str
    host: str
    sinks: tuple[Chosen, ...]
    since: float = 0.0
    """When it asked, or changed its mind."""


_decode = msgspec.json.Decoder(_File).decode


def folder(home: Path) -> Path:
    """Where registrations, locks and reports of shippers lie."""
    return home / "shipping"


def register(home: Path, run: str, host: str, sinks: Iterable[Chosen]) -> None:
    """Ask for the delivery of a run; its options may hold secrets, so the file is for its owner alone."""
    path = _path(home, run, host)
    packed = [_Sink(each.name, msgspec.Raw(msgspec.json.encode(each.config)), each.filter) for each in sinks]
    data = msgspec.json.encode(_File(run, host, packed))
    with contextlib.suppress(OSError):
        if path.read_bytes() == data:
            return
    replace(path, data)


def forget(home: Path, run: str, host: str) -> None:
    """Take a registration back: everything of the run was delivered."""
    with contextlib.suppress(OSError):
        _path(home, run, host).unlink()


def wishes(home: Path, host: str | None = None) -> list[Wish]:
    """Read the registrations of a host, or of all; those that cannot be read, or name unknown sinks, are left out."""
    found = []
    for path in sorted(folder(home).glob("*.want")):
        try:
            file = _decode(path.read_bytes())
            if host in (None, file.host):
                sinks = tuple(_chosen(sink) for sink in file.sinks)
                found.append(Wish(file.run, file.host, sinks, path.stat().st_mtime))
        except (OSError, ValueError):  # ConfigError is a ValueError
            continue
    return found


def replace(path: Path, data: bytes) -> None:
    """Write a file of its owner whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
    os.replace(fresh, path)


def _path(home: Path, run: str, host: str) -> Path:
    return folder(home) / f"{run}@{host}.want"


def _chosen(sink: _Sink) -> Chosen:
    return Chosen(sink.name, msgspec.json.decode(sink.config, type=registry.find(sink.name)), sink.filter)
