"""Connections of clients: accepted, counted and limited; silent, slow and expensive ones are closed."""

import asyncio
import resource
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stepscope.hub.limits import Limits
from stepscope.hub.security.guard import ACCESS, RULE

_SLICE = 16 * 1024
"""Bytes of a connection that are parsed per call: in chunks of one byte it takes 50 ms."""
_COST_SECONDS = 5.0
"""CPU time that parsing one request may take; 20 MiB in chunks of 64 bytes."""
_ACCEPTED = 64
"""Connections accepted at a time."""
_NEW_SECONDS, _NEW = 1.0, 3
"""A connection that began less than this ago may still show a token: only those with one rank higher."""
_RANKED, _RANKED_SECONDS = 64, 0.25
"""Connections that are ranked at a time, and how long that ranking is used."""
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Stage(IntEnum):
    """The state of a connection, in the order in which those of one kind are closed when there are too many."""

    OPENING = 0
    IDLE = 1
    SENDING = 2
    ANSWERED = 3


class Trust(IntEnum):
    """What a client has shown."""

    NOTHING = 0
    ADMITTED = 1
    """Its request was admitted where no token is needed for it."""
    TOKEN = 2


class Connection(Protocol):
    """One connection."""

    @property
    def stage(self) -> Stage:
        """Its state."""

    @property
    def peer(self) -> str:
        """The address of the client."""

    @property
    def trust(self) -> Trust:
        """What its request, or the one before, showed."""

    @property
    def since(self) -> float:
        """When it was accepted, on the clock of `time.monotonic`."""

    @property
    def size(self) -> int:
        """Bytes of its request that arrived."""

    def drop(self) -> None:
        """Close it at once."""


class Connections:
    """All connections; when there are too many, or too many of one address, the least important one is closed.

    Those without a token go first, and of these the old ones: a new one must have the time to show its token.
    """

    def __init__(self, most: int, per_address: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._per_address = most if per_address is None else per_address
        self._clock = clock
        self._open: dict[Connection, None] = {}
        self._peers: dict[str, dict[Connection, None]] = {}
        """The connections of each address."""
        self._slices: deque[Callable[[], bool]] = deque()
        self._ranked: deque[tuple[Connection, Trust]] = deque()
        """The least important connections of an address, or of all where it is empty, and what each had shown."""
        self._ranked_for, self._ranked_until = "", 0.0

    def enter(self, connection: Connection) -> None:
        """Add a connection; it is closed itself when all others are being served."""
        self._open[connection] = None
        same = self._peers.setdefault(connection.peer, {})
        same[connection] = None
        if len(self._open) > self._most:
            self.drop_one()
        elif len(same) > self._per_address and len(without := self._without_token(same)) > self._per_address:
            self._drop_next(connection.peer, lambda: without)

    def leave(self, connection: Connection) -> None:
        """Remove a connection."""
        if connection in self._open:
            del self._open[connection]
            same = self._peers[connection.peer]
            del same[connection]
            if not same:
                del self._peers[connection.peer]

    def drop_one(self) -> bool:
        """Close the connection that is least important; False when all are being served."""
        return self._drop_next("", lambda: list(self._open))

    @staticmethod
    def _without_token(connections: Iterable[Connection]) -> list[Connection]:
        """List those that showed nothing: counted anew for each newcomer, as others may have shown their token."""
        return [each for each in connections if each.trust is Trust.NOTHING]

    def _drop_next(self, peer: str, candidates: Callable[[], list[Connection]]) -> bool:
        """Close the least important one; many are ranked at a time, as that takes as long as there are connections."""
        now = self._clock()
        if self._ranked_for != peer or now >= self._ranked_until or not self._drop_ranked():
            self._ranked_for, self._ranked_until = peer, now + _RANKED_SECONDS
            self._ranked = self._rank(candidates(), now)
            return self._drop_ranked()
        return True

    def _rank(self, connections: list[Connection], now: float) -> deque[tuple[Connection, Trust]]:
        waiting = [connection for connection in connections if connection.stage is not Stage.ANSWERED]
        waiting.sort(key=lambda connection: self._importance(connection, now))
        return deque((connection, connection.trust) for connection in waiting[:_RANKED])

    def _drop_ranked(self) -> bool:
        """Close the next of those that were ranked and have shown nothing since; False when there is none."""
        while self._ranked:
            found, trust = self._ranked.popleft()
            if found in self._open and found.stage is not Stage.ANSWERED and found.trust is trust:
                self.leave(found)
                found.drop()
                return True
        return False

    def _importance(self, connection: Connection, now: float) -> tuple[int, int, int, int, float]:
        """Sort connections: those of the address with the most first, then the largest, then the slowest."""
        trust, count = connection.trust, len(self._peers[connection.peer])
        if trust is not Trust.TOKEN and now - connection.since < _NEW_SECONDS:
            return _NEW, 0, -count, 0, connection.since
        return trust * 2, connection.stage, -count, -connection.size, connection.since

    def parse_later(self, parse: Callable[[], bool]) -> None:
        """Call `parse` until it returns False, once per iteration of the event loop and in turn with others."""
        self._slices.append(parse)
        if len(self._slices) == 1:
            asyncio.get_running_loop().call_soon(self._parse_one)

    def _parse_one(self) -> None:
        parse = self._slices[0]
        more = parse()
        self._slices.popleft()
        if more:
            self._slices.append(parse)
        if self._slices:
            asyncio.get_running_loop().call_soon(self._parse_one)


def most_connections(limits: Limits) -> tuple[int, int]:
    """How many HTTP and gRPC connections leave enough open files for the store and the journals."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.connections, limits.grpc_connections
    return min(limits.connections, max(files * 2 // 5, 1)), min(limits.grpc_connections, max(files // 5, 1))


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, with limits on the time that headers and unread answers may take."""

    def __init__(self, *args: Any, limits: Limits, connections: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._all = connections
        self._unparsed = bytearray()
        self._cost = 0.0
        """CPU seconds spent on parsing the current request."""
        self._unread = 0
        """Bytes of a body that arrived after its response, and were discarded."""
        self.since = time.monotonic()
        self.size = 0
        self._peer: str | None = None
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None

    @property
    def trust(self) -> Trust:
        """What its request, or the one before, showed."""
        scope: Any = self.scope  # none before the first request, which uvicorn does not say
        access = scope.get(ACCESS) if scope is not None else None
        if access is None or scope[RULE].scope is None:
            return Trust.NOTHING
        return Trust.ADMITTED if access.token is None else Trust.TOKEN

    @property
    def peer(self) -> str:
        """The address of the client."""
        if self._peer is None:
            self._peer = self.client[0] if self.client else ""
        return self._peer

    @property
    def _under_way(self) -> bool:
        cycle: Any = self.cycle  # none before the first request, which uvicorn does not say
        return cycle is not None and not cycle.response_complete

    @property
    def stage(self) -> Stage:
        """Its state."""
        if self._under_way:
            return Stage.SENDING if self.cycle.more_body else Stage.ANSWERED
        return Stage.OPENING if self._headers_due is not None else Stage.IDLE

    def drop(self) -> None:
        """Close it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        super().connection_made(transport)
        self._await_headers()
        self._all.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._all.leave(self)
        self._unparsed.clear()
        for timer in (self._headers_due, self._reading_due):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data: all of it where that is cheap, else a slice now and the rest later."""
        if self._unparsed:
            self._unparsed += data
            self.transport.pause_reading()
            return
        if len(data) <= _SLICE or self._has_length():
            self._parse(data)
            return
        self._unparsed += data
        self.transport.pause_reading()
        self._all.parse_later(self._parse_slice)

    def _has_length(self) -> bool:
        """Return whether a body of known length is being read, which h11 does not parse."""
        return self._under_way and any(name == b"content-length" for name, _ in self.headers)

    def _parse_slice(self) -> bool:
        piece = bytes(self._unparsed[:_SLICE])
        del self._unparsed[:_SLICE]
        if not self.transport.is_closing():
            self._parse(piece)
        if self.transport.is_closing():
            self._unparsed.clear()
        elif not self._unparsed and not self.flow.read_paused:
            self.transport.resume_reading()
        return bool(self._unparsed)

    def _parse(self, data: bytes) -> None:
        before = self.cycle
        began = time.thread_time()
        super().data_received(data)
        self._cost += time.thread_time() - began
        self.size += len(data)
        if self.cycle is not before:
            self._cost, self._unread, self.size = 0.0, 0, 0
        elif not self._under_way and self.conn.their_state is h11.SEND_BODY:
            self._unread += len(data)
        if self._cost > _COST_SECONDS or self._unread > self._limits.body:
            self.transport.abort()
        elif self._under_way:
            self._stop_awaiting_headers()
        else:
            self._await_headers()

    def _await_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self._limits.header_seconds, self._headers_late)

    def _stop_awaiting_headers(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _headers_late(self) -> None:
        self._headers_due = None
        if self._under_way or self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE:
            self.transport.write(_LATE)
            self.transport.close()
        else:  # the rest of a body whose answer was sent
            self.transport.abort()

    def pause_writing(self) -> None:
        """Start waiting for the client to read."""
        super().pause_writing()
        if self._reading_due is None:
            self._reading_due = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue: the client reads."""
        super().resume_writing()
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None


class HttpListener:
    """Accepts connections; replaces asyncio's server in uvicorn, which would accept without limit."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        connections: Connections,
        limits: Limits,
    ) -> None:
        self._socket = listener
        self._make = make
        self._context = context
        self._connections = connections
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop accepting."""
        self._closed = True
        self._loop.remove_reader(self._socket)
        for task in list(self._tasks):
            task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: there is nothing to wait for."""

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file is left: make room, and give others a second to do the same
                self._connections.drop_one()
                self._loop.remove_reader(self._socket)
                self._loop.call_later(1.0, self._listen)
                return
            client.setblocking(False)
            task = self._loop.create_task(self._open(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, client: socket.socket) -> None:
        opening = _Opening(client, asyncio.current_task())
        if self._context is not None:
            self._connections.enter(opening)
        seconds = self._limits.header_seconds if self._context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._make, client, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.CancelledError):
            client.close()
        finally:
            self._connections.leave(opening)


class _Opening:
    """A connection during its TLS handshake."""

    stage, trust, size = Stage.OPENING, Trust.NOTHING, 0

    def __init__(self, client: socket.socket, task: "asyncio.Task[None] | None") -> None:
        self._task = task
        self.since = time.monotonic()
        try:
            self.peer = str(client.getpeername()[0])
        except (OSError, IndexError, TypeError):
            self.peer = ""

    def drop(self) -> None:
        """Close it at once."""
        if self._task is not None:
            self._task.cancel()
