"""Eviction of idle gRPC connections: at its limit the gRPC library refuses new ones and closes none."""

import asyncio
import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

SECONDS = 0.5
"""Seconds between checks."""
_FILES = "/proc/self/fd"
_LAST_RECEIVED = struct.Struct("=52xI")
"""Offset in Linux's tcp_info of the milliseconds since the last received data."""


class Accepted(NamedTuple):
    """An accepted connection; `socket` is a second handle to it."""

    socket: socket.socket
    peer: tuple[str, int]
    silent_ms: int


class Eviction:
    """Limits the connections of one port by closing those that were idle longest.

    The client with the most connections loses them first; connections with a running call stay. Works on Linux only;
    elsewhere only the gRPC library's limit applies.
    """

    def __init__(self, port: int, most: int, busy: Callable[[], Collection[int]]) -> None:
        self._port, self._most, self._busy = port, most, busy

    async def run(self) -> None:
        """Evict until cancelled."""
        while True:
            await asyncio.sleep(SECONDS)
            self.evict()

    def evict(self) -> int:
        """Close the connections above the limit; return how many were closed."""
        with contextlib.ExitStack() as handles:
            found = list(accepted(self._port, self._most))
            for each in found:
                handles.enter_context(each.socket)
            excess = len(found) - self._most
            busy = self._busy()
            idle = [each for each in found if each.peer[1] not in busy]
            counts = Counter(each.peer[0] for each in idle)
            idle.sort(key=lambda each: (-counts[each.peer[0]], -each.silent_ms))
            for each in idle[: max(excess, 0)]:
                with contextlib.suppress(OSError):
                    each.socket.shutdown(socket.SHUT_RDWR)
            return max(min(excess, len(idle)), 0)


def accepted(port: int, most: int = 0) -> Iterator[Accepted]:
    """Yield this process's accepted connections on a port; none when at most `most` files are open."""
    try:
        files = os.listdir(_FILES)
    except OSError:
        return
    for name in files if len(files) > most else ():
        with contextlib.suppress(OSError):
            if not os.readlink(f"{_FILES}/{name}").startswith("socket:"):
                continue
            handle = socket.socket(fileno=os.dup(int(name)))
            found = _accepted(handle, port)
            if found is None:
                handle.close()
            else:
                yield found


def _accepted(handle: socket.socket, port: int) -> Accepted | None:
    try:
        if handle.family == socket.AF_UNIX or handle.getsockname()[1] != port:
            return None
        host, peer_port = handle.getpeername()[:2]
        info = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return Accepted(handle, (host, peer_port), _LAST_RECEIVED.unpack_from(info)[0])
    except (OSError, IndexError, TypeError):
        return None  # listening, already closed, or not TCP
