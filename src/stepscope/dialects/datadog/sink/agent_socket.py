"""The socket of a Datadog Agent, UDP or Unix, opened by Datadog's own client."""

import socket
import struct
from importlib import import_module
from typing import NamedTuple

from stepscope.dialects.datadog.wire.payloads import (
    UDP_BYTES,
    UNIX_BYTES,
)


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
        """Send one datagram; OSError when it certainly did not arrive. UDP may lose it silently."""
        sock = self._opened()
        if sock.type == socket.SOCK_STREAM:
            try:
                sock.sendall(struct.pack("<I", len(datagram)) + datagram)
            except OSError:
                self.close()  # half of it may have been sent, and the rest would be misread
                raise
            return
        sock.send(datagram)
        # On this machine a closed port answers at once; report it now and not with the next datagram.
        problem = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, "connection refused: nothing listens on the port")

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


def most_bytes_of(address: Address) -> int:
    """The largest datagram that is not fragmented."""
    return UNIX_BYTES if address.socket_path else UDP_BYTES
