"""The interface of listeners: dialects that are received on ports of their own, beside HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import Ingest
from stepscope.hub.security.guard import Guard
from stepscope.hub.threads import Workers
from stepscope.model.dialects import load, with_part


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """What a listener is made of: the hub's address, and the values of its dialect's options."""

    host: str
    tls: tuple[Path, Path] | None
    """The files of certificate and key."""
    values: Mapping[str, Any]


class ListenerPorts(Protocol):
    """What a hub provides to listeners."""

    guard: Guard
    """Checks tokens."""
    workers: Workers
    """Threads that decompress and decode bodies."""

    def ingest(self, receiver: str, *, ours: bool = False) -> Ingest:
        """Create the object that masks, packs and journals the records of a receiver."""


class Listener(Protocol):
    """Receives one dialect on ports of its own. The calls come in the order in which they stand here."""

    def bind(self) -> None:
        """Take its ports, or check that they are free; ConfigError when they cannot be used. Before the store opens."""

    def open(self, ports: ListenerPorts, limits: Limits) -> None:
        """Connect it with the hub, on the event loop that serves it."""

    async def start(self) -> None:
        """Start receiving."""

    @property
    def shown(self) -> str:
        """Where it listens, for the line with which a hub starts; empty when it does not."""

    async def stop(self, seconds: float) -> None:
        """Finish what was begun within this time, and stop receiving."""

    def close(self) -> None:
        """Release its ports; also when it was only bound."""


def make_listeners(options: ListenerOptions) -> list[Listener]:
    """Create the listeners of all dialects."""
    return [load(each.listener)(options) for each in with_part("listener")]
