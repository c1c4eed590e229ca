"""`stepscope doctor --sink NAME`: send one record to a sink and print the result in one line."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stepscope.journal import layout
from stepscope.journal.resolve_run import PROBES
from stepscope.model import formatting
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Event, Metric, Record, Span
from stepscope.sdk import settings
from stepscope.sinks import registry

EVENT = "stepscope.probe"
SOON, PATIENCE = 2.0, 8.0
"""A sink that requests a retry within the first time is retried, for at most the second."""
_ADVICE = (
    ("HTTP 401", "set a valid token or key"),
    (
        "HTTP 403: Invalid Host header",
        "the server refuses this host name: add it to its --allowed-hosts",
    ),
    ("HTTP 403", "this token may not write there"),
    ("HTTP 407", "the proxy requires a user name and a password: HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT"),
    ("HTTP 404", "the server is there, the path is not: check the path of the address"),
    ("HTTP 405", "another program answers there: check the port"),
    ("HTTP 3", "the server redirects, perhaps to a login page: use the address behind it"),
    ("HTTP 415", "the server does not accept this encoding: try protocol http/protobuf"),
    (
        "the server closed",
        "a tunnel with nothing behind it (start the server at its far end), or a server restarting",
    ),
    ("gRPC UNAUTHENTICATED", "set a valid token or key"),
    ("gRPC PERMISSION_DENIED", "this token may not write there"),
    ("gRPC UNIMPLEMENTED", "the server has no such service: is this the gRPC port of a collector?"),
    ("gRPC DEADLINE_EXCEEDED", "the server hangs, a firewall swallows the packets, or something else listens there"),
    ("gRPC UNAVAILABLE", "nothing answers gRPC there: server down, tunnel closed, or an HTTP port"),
)


class Outcome(NamedTuple):
    """The outcome of a probe."""

    ok: bool
    sink: str
    text: str


def probe(name: str) -> Iterator[Outcome]:
    """Send a record to each sink of that name in the settings, or to one with default options.

    ConfigError when there is none.
    """
    configured = [each for each in settings.load({}).sinks if each.name == name]
    found = configured or registry.parse(name)
    if not found:
        raise ConfigError(f"{name} is not a sink to send to: `stepscope doctor` checks the journal")
    for chosen in found:
        yield Outcome(*_try(chosen))


def _try(chosen: registry.Chosen) -> tuple[bool, str, str]:
    name = f"{chosen.name} ({chosen.config.place})"
    began = time.monotonic()
    try:
        sink = chosen.config.open()
        try:
            refused = _offer(sink, _batch(getattr(chosen.config, "probes", ("event",))))
        finally:
            sink.close()
    except (Retry, Reject, ConfigError) as error:
        return False, name, advise(str(error))
    except Exception as error:
        return False, name, f"the sink failed: {error!r}"
    if refused:
        return False, name, f"accepted, but partly rejected: {', '.join(refused)}"
    return True, name, f"accepted a record in {formatting.duration(time.monotonic() - began)}"


def _offer(sink: Sink, batch: Batch) -> Mapping[str, int]:
    """Write, and retry where the sink requests it soon."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return sink.write([batch])
        except Retry as error:
            if error.after is None or error.after > SOON or time.monotonic() > deadline:
                raise
            time.sleep(error.after)


def advise(reason: str) -> str:
    """Append the fix to an error message."""
    advice = next((advice for sign, advice in _ADVICE if reason.startswith(sign)), "")
    return f"{reason}; {advice}" if advice else reason


def _batch(kinds: Sequence[str]) -> Batch:
    """A batch with one record of each kind; one with metrics ends its run."""
    now = time.time_ns()
    host = layout.host_name()
    made = f"r0-a1-{host}-{os.getpid()}-{time.time_ns():x}"
    writer = Writer(id=made, run=PROBES, project="stepscope", host=host, pid=os.getpid(), wall_ns=now)
    no_context = (None, None, None, None, 9)
    records: dict[str, list[Record]] = {
        "event": [Event(now, *no_context, EVENT, {"from": "stepscope doctor"})],
        "metric": [
            Metric(now, 0, None, "stepscope", {"probe": 1.0}),
            Event(now, *no_context, EVENT_FINISHED, {"status": "finished"}),
        ],
        "span": [Span(now, 1_000_000, None, None, os.urandom(16), os.urandom(8), None, EVENT)],
    }
    return Batch(writer, 0, [record for kind in kinds for record in records[kind]])
