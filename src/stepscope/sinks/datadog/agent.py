"""DogStatsD to an Agent over UDP or a Unix socket, through the socket of Datadog's own client."""

import errno
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.sinks.datadog.delivery import ItemDelivery
from stepscope.sinks.http import explain
from stepscope.wire.datadog.datadog_items import Item
from stepscope.wire.datadog.datadog_payloads import (
    LONGEST_LINE,
    UDP_BYTES,
    UNIX_BYTES,
    pack,
    write_line,
    write_plain_line,
)
from stepscope.wire.datadog.datadog_translate import Translator

BURST = 64
"""Datagrams in a row after which the Agent gets a moment to read: its buffer holds about a hundred."""
PAUSE_SECONDS = 0.005
TOO_LONG = f"longer than {LONGEST_LINE} bytes as a DogStatsD line"
_NO_AGENT = (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE)


class Address(NamedTuple):
    """Where the Agent listens: a host and a port, or a socket's path, perhaps with `unix://` or `unixstream://`."""

    host: str = "localhost"
    port: int = 8125
    socket_path: str = ""

    def __str__(self) -> str:
        if not self.socket_path:
            return f"udp://{self.host}:{self.port}"
        return self.socket_path if "://" in self.socket_path else f"unix://{self.socket_path}"


class Agent:
    """A connected socket to an Agent, opened when needed.

    The client serves for what it knows best: which kind of socket an address means, and how it is opened. Its
    sending does not serve: it drops what the socket does not take, and packs datagrams by characters, not bytes.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._socket: socket.socket | None = None

    def send(self, datagram: bytes) -> None:
        """Send one datagram; OSError when it certainly did not arrive. UDP itself may lose it without a word."""
        sock = self._opened()
        if sock.type == socket.SOCK_STREAM:
            try:
                sock.sendall(struct.pack("<I", len(datagram)) + datagram)
            except OSError:
                self.close()  # half of it may be on its way, and the rest would be read as something else
                raise
            return
        sock.send(datagram)
        # On this machine a closed port answers at once; it is not to be learnt with the next datagram only.
        trouble = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            raise OSError(trouble, "the port answered that nothing listens")

    def close(self) -> None:
        """Close the socket; the next datagram opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        if self._socket is None:
            client = import_module("datadog.dogstatsd.base").DogStatsd
            host, port, path = self._address
            made = client(
                host=None if path else host,
                port=None if path else port,
                socket_path=path or None,
                socket_timeout=self._timeout,
                disable_telemetry=True,
                disable_buffering=True,
                disable_aggregation=True,
            )
            self._socket = made.get_socket()
        return self._socket


class DogStatsdSink:
    """Sends lines in datagrams. What UDP loses nobody knows; a socket that takes nothing is waited for."""

    divisible = True

    def __init__(
        self,
        agent: Agent,
        translator: Translator,
        *,
        timeout: float,
        most_bytes: int,
        plain: bool = False,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self._agent, self._most_bytes, self._plain = agent, most_bytes, plain
        self._now, self._sleep = now, sleep
        self._delivery = ItemDelivery(translator, now, clock)

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Send what is not sent yet. Spans and logs are passed over: DogStatsD has no place for them."""
        delivery = self._delivery
        delivery.translate(batches, self.timeout)
        lines = self._lines(delivery)
        sent = 0
        try:
            for number, (datagram, count) in enumerate(pack(lines, self._most_bytes)):
                delivery.time_left()
                if number and number % BURST == 0:
                    self._sleep(PAUSE_SECONDS)
                self._send(datagram, progressed=sent > 0)
                sent += count
        finally:
            del delivery.parts[:sent]
        return delivery.finish()

    def close(self) -> None:
        """Close the socket."""
        self._agent.close()

    def _lines(self, delivery: ItemDelivery) -> list[bytes]:
        """Write the lines of all items, and keep the items that have one."""
        now = self._now()
        kept: list[tuple[Item, bytes]] = []
        for item in delivery.parts:
            line = write_plain_line(item) if self._plain else write_line(item, now)
            if line is None:
                continue
            if len(line) > LONGEST_LINE:
                delivery.refuse(TOO_LONG)
            else:
                kept.append((item, line))
        delivery.parts = [item for item, _ in kept]
        return [line for _, line in kept]

    def _send(self, datagram: bytes, *, progressed: bool) -> None:
        try:
            self._agent.send(datagram)
        except ImportError as error:
            raise Retry(f"{error}: pip install 'stepscope[datadog]'") from error
        except OSError as error:
            if isinstance(error, (BlockingIOError, TimeoutError)) or error.errno == errno.ENOBUFS:
                if progressed:
                    raise Retry("the Agent reads slower than we write; it goes on", after=0.0) from error
                raise Retry("the Agent does not read its socket") from error
            self._agent.close()
            if error.errno in _NO_AGENT:
                raise Retry(f"refused: no Agent listens there ({error.strerror})") from error
            raise Retry(explain(error)) from error


def most_bytes_of(address: Address) -> int:
    """The size of a datagram that goes through whole."""
    return UNIX_BYTES if address.socket_path else UDP_BYTES
