"""Datagrams lost between Datadog clients and the hub, computed from the clients' own telemetry."""

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

MAX_CLIENTS = 10_000
SETTLING_SECONDS = 60.0
"""Clients first seen within this time after the start may have sent datagrams to the previous hub."""


class Loss(NamedTuple):
    """Datagrams lost in transit, and those dropped by the client."""

    lost: int
    unsent: int


class _Client:
    """The datagrams received from one address since its last telemetry."""

    __slots__ = ("received", "trusted")

    def __init__(self, *, trusted: bool) -> None:
        self.received = 0
        self.trusted = trusted
        """Whether all datagrams that it reports were sent to this hub."""


class ClientLoss:
    """Compares sent with received datagrams, by address. Not thread-safe.

    A client reports how many datagrams it has sent since its last report; the report itself counts for the next one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._clients: dict[Hashable, _Client] = {}
        self._reported: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Store one of the counts in the current datagram."""
        self._reported[name] = self._reported.get(name, 0) + value

    def count(self, sender: Hashable) -> Loss | None:
        """Count a datagram (None for a sender without an address) and return the loss that it reported."""
        client = self._clients.get(sender)
        if client is None:
            while len(self._clients) >= MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            trusted = sender is not None and self._clock() - self._began >= SETTLING_SECONDS
            client = self._clients[sender] = _Client(trusted=trusted)
        loss = self._compare(client, sender) if self._reported else None
        client.received += 1
        return loss

    def _compare(self, client: _Client, sender: Hashable) -> Loss | None:
        sent, unsent = (int(self._reported.get(name, 0)) for name in ("packets_sent", "packets_dropped"))
        self._reported.clear()
        lost = max(sent - client.received, 0) if client.trusted else 0
        client.trusted, client.received = sender is not None, 0
        return Loss(lost, unsent) if lost or unsent > 0 else None
