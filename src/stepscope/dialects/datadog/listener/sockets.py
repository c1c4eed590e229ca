"""DogStatsD sockets: addresses, opening, removal."""

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from stepscope.extend.receiver import is_loopback
from stepscope.model.errors import ConfigError

Transport = Literal["udp", "unix", "unixstream"]
RECEIVE_BYTES = 8 * 1024 * 1024
"""The requested receive buffer, subject to the system's limit."""
_PERMISSIONS = 0o660
_PORT = 8125


class Address(NamedTuple):
    """Where to listen: a host and a port, or the path of a socket."""

    transport: Transport
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.transport != "udp":
            return f"{self.transport}://{self.path}"
        return f"udp://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def udp_address(text: str) -> Address:
    """Parse HOST:PORT, HOST or :PORT, or raise ValueError."""
    parts = urlsplit(text if "://" in text else f"udp://{text}")
    if parts.scheme != "udp" or parts.path:
        raise ValueError(f"{text!r} is not an address: use HOST:PORT, such as 127.0.0.1:{_PORT}")
    try:
        port = _PORT if parts.port is None else parts.port
    except ValueError:
        raise ValueError(f"{text!r} has no valid port: use HOST:PORT") from None
    return Address("udp", parts.hostname or "127.0.0.1", port)


def unix_address(text: str) -> Address:
    """Parse the path of a datagram socket, or unixstream://PATH for a stream socket, or raise ValueError."""
    scheme, found, path = text.partition("://")
    if not found:
        scheme, path = "unix", text
    kinds: dict[str, Transport] = {"unix": "unix", "unixgram": "unix", "unixstream": "unixstream"}
    if scheme not in kinds or not path:
        raise ValueError(f"{text!r} is not a socket: use PATH, unix://PATH or unixstream://PATH")
    return Address(kinds[scheme], path=path)


def check_remote(addresses: Iterable[Address], *, allowed: bool) -> None:
    """Refuse to listen on a non-loopback address unless allowed: DogStatsD has no authentication."""
    for address in addresses:
        if address.transport == "udp" and not allowed and not is_loopback(address.host):
            raise ConfigError(
                f"DogStatsD on {address.host} would accept lines from any machine without a token: "
                "bind 127.0.0.1, or add --dogstatsd-remote if the network is trusted"
            )


class Opened(NamedTuple):
    """A bound socket and its actual address."""

    address: Address
    socket: socket.socket


def open_sockets(addresses: Sequence[Address]) -> list[Opened]:
    """Bind all addresses, or raise ConfigError."""
    with contextlib.ExitStack() as undo:
        found = []
        for address in addresses:
            found.append(_open(address))
            undo.callback(close_socket, found[-1])
        undo.pop_all()
        return found


def close_socket(opened: Opened) -> None:
    """Close a socket and remove its file."""
    opened.socket.close()
    if opened.address.path:
        with contextlib.suppress(OSError):
            os.unlink(opened.address.path)


def _open(address: Address) -> Opened:
    udp = address.transport == "udp"
    family = (socket.AF_INET6 if ":" in address.host else socket.AF_INET) if udp else socket.AF_UNIX
    made = socket.socket(family, socket.SOCK_STREAM if address.transport == "unixstream" else socket.SOCK_DGRAM)
    try:
        if udp:
            made.bind((address.host, address.port))
            address = address._replace(port=made.getsockname()[1])
        else:
            _remove_stale(Path(address.path), made.type)
            made.bind(address.path)
            os.chmod(address.path, _PERMISSIONS)
        if address.transport == "unixstream":
            made.listen(128)
        else:
            _enlarge(made)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ConfigError(f"DogStatsD cannot listen on {address}: {error.strerror or error}") from error
    return Opened(address, made)


def _enlarge(made: socket.socket) -> None:
    """Request a large receive buffer; exceeding the system's limit needs a privilege."""
    with contextlib.suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), RECEIVE_BYTES)
        return
    with contextlib.suppress(OSError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)


def _remove_stale(path: Path, kind: int) -> None:
    """Remove the stale socket of a killed hub."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, kind) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
