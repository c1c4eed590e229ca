"""Which runs of a home want which sinks: a small file for each run and host, left by trainers, read by shippers."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepscope.journal.files import replace_file
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
    server: int = 0


class SinkRequest(NamedTuple):
    """A run of a host that wants some sinks."""

    run: str
    host: str
    sinks: tuple[Chosen, ...]
    since: float = 0.0
    """When it asked, or changed its mind."""
    server: int = 0
    """The process that delivers its own records itself, in threads; 0 when a shipper is to do it."""


_decode = msgspec.json.Decoder(_File).decode
_decode_sink = msgspec.json.Decoder(_Sink).decode


def folder(home: Path) -> Path:
    """Where registrations, locks and reports of shippers lie."""
    return home / "shipping"


def register(home: Path, run: str, host: str, sinks: Iterable[Chosen], *, server: int = 0) -> None:
    """Ask for the delivery of a run; its options may hold secrets, so the file is for its owner alone.

    With `server`, a process that delivers its own records, shippers leave the run alone while that process lives.
    """
    _renew(_path(home, run, host, server), _File(run, host, [_packed(each) for each in sinks], server))


def forget(home: Path, run: str, host: str, *, server: int = 0) -> None:
    """Take a registration back: everything of the run was delivered."""
    with contextlib.suppress(OSError):
        _path(home, run, host, server).unlink()


def keep_sink(home: Path, chosen: Chosen) -> None:
    """Remember how a sink is reached, for what it refuses; the file is for its owner alone."""
    with contextlib.suppress(OSError):
        _renew(folder(home) / f"{chosen.id}.sink", _packed(chosen))


def kept_sinks(home: Path) -> dict[str, Chosen]:
    """The sinks that runs of this home have been delivered to, by id; those that cannot be read are left out."""
    found = {}
    for path in folder(home).glob("*.sink"):
        with contextlib.suppress(OSError, ValueError):
            chosen = _chosen(_decode_sink(path.read_bytes()))
            found[chosen.id] = chosen
    return found


def list_requests(home: Path, host: str | None = None) -> list[SinkRequest]:
    """Read the registrations of a host, or of all; those that cannot be read, or name unknown sinks, are left out."""
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
    """Write a file unless it says the same already."""
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
