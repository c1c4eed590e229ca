"""The listener of DogStatsD: UDP and Unix sockets, where the hub's options name some."""

import asyncio
from collections.abc import Sequence

from stepscope.dialects.datadog.listener.dogstatsd import NAME, DogStatsd
from stepscope.dialects.datadog.listener.sockets import (
    Opened,
    check_remote,
    close_socket,
    open_sockets,
    udp_address,
    unix_address,
)
from stepscope.extend.receiver import Limits, ListenerOptions, ListenerPorts
from stepscope.model.errors import ConfigError


class DogStatsdListener:
    """DogStatsD on all its addresses; on none unless asked."""

    def __init__(self, options: ListenerOptions) -> None:
        values = options.values
        try:
            udp = map(udp_address, values.get("dogstatsd") or ())
            self._addresses = (*udp, *map(unix_address, values.get("dogstatsd-socket") or ()))
        except ValueError as error:
            raise ConfigError(f"--dogstatsd: {error}") from error
        check_remote(self._addresses, allowed=bool(values.get("dogstatsd-remote")))
        self._opened: Sequence[Opened] = ()
        self._server: DogStatsd | None = None

    def bind(self) -> None:
        """Open the sockets."""
        self._opened = open_sockets(self._addresses)

    def open(self, ports: ListenerPorts, limits: Limits) -> None:
        """Make the server."""
        if self._opened:
            self._server = DogStatsd(ports.ingest(NAME), self._opened)

    async def start(self) -> None:
        """Start the thread that reads."""
        if self._server is not None:
            self._server.start()

    @property
    def shown(self) -> str:
        """The addresses."""
        return f"DogStatsD on {' and '.join(str(each.address) for each in self._opened)}" if self._opened else ""

    async def stop(self, seconds: float) -> None:
        """Read what is in the kernel's buffers, and stop."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
            self._opened = ()

    def close(self) -> None:
        """Close the sockets and remove their files."""
        for each in self._opened:
            close_socket(each)
        self._opened = ()
