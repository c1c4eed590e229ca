"""Requests passed on to another HTTP/1.1 server: keep-alive connections, and bodies streamed both ways."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import urlsplit

import h11
from starlette.types import Message, Receive, Scope, Send

from stepscope.hub.refusals import Refused
from stepscope.model.errors import ConfigError

Headers = Sequence[tuple[bytes, bytes]]
CONNECT_SECONDS, SILENT_SECONDS, IDLE_SECONDS = 10.0, 900.0, 15.0
"""Seconds for a connection, for the next bytes of a response, and for which an idle connection is kept."""
MAX_IDLE = 100
_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
_NOT_SENT = _HOP_BY_HOP | {b"expect"}
_NOT_ANSWERED = _HOP_BY_HOP | {b"date"}
"""The hub's server adds a date of its own."""
_HEAD_BYTES = 128 * 1024
_PIECE = 256 * 1024


class UpstreamFailed(Exception):
    """The response is missing or cut off; `is_late` after a timeout."""

    def __init__(self, text: str, *, is_late: bool = False) -> None:
        super().__init__(text)
        self.is_late = is_late


class UpstreamConnection:
    """One connection, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: float) -> None:
        self._reader, self._writer, self._silent = reader, writer, silent
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self.kept = 0.0
        """When it was last used."""

    def begin(self, method: str, target: bytes, headers: Headers) -> None:
        """Send the request line and headers."""
        self._write(h11.Request(method=method, target=target, headers=list(headers)))

    async def send(self, data: bytes) -> None:
        """Send a chunk of the body, waiting while the service does not read."""
        if data:
            self._write(h11.Data(data=data))
            await self._writer.drain()

    def end(self) -> None:
        """End the body."""
        self._write(h11.EndOfMessage())

    async def answer(self) -> h11.Response:
        """Wait for the status and headers of the response."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise UpstreamFailed("the service closed the connection without a response")

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the response body as it arrives; UpstreamFailed when it is cut off."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    def renew(self) -> bool:
        """Prepare for another request; False when the connection cannot be reused."""
        if (self._state.our_state, self._state.their_state) != (h11.DONE, h11.DONE):
            return False
        self._state.start_next_cycle()
        self.kept = time.monotonic()
        return self.is_open

    @property
    def is_open(self) -> bool:
        """Whether the service has not closed it."""
        return not (self._reader.at_eof() or self._writer.transport.is_closing())

    def abort(self) -> None:
        """Close it at once."""
        self._writer.transport.abort()

    def _write(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        data = self._state.send(event)
        if data:
            self._writer.write(data)

    async def _next(self) -> object:
        try:
            while (event := self._state.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._silent):
                    self._state.receive_data(await self._reader.read(_PIECE))
        except TimeoutError:
            raise UpstreamFailed(f"the service sent nothing for {self._silent:g} s", is_late=True) from None
        except (OSError, h11.RemoteProtocolError) as error:
            raise UpstreamFailed(f"the connection to the service broke: {str(error) or type(error).__name__}") from None
        return event


class Upstream:
    """A service and its connections. Used by the event loop only."""

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"the upstream {url!r} is not an address: use https://HOST/PATH or http://HOST:PORT")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port or (443 if self._tls else 80)
        self.authority = parts.netloc.rpartition("@")[2].encode()
        self.prefix = parts.path.rstrip("/").encode()
        self._connect_seconds, self._silent, self._clock = connect_seconds, silent_seconds, clock
        self._idle: list[UpstreamConnection] = []

    async def connect(self) -> UpstreamConnection:
        """Return an idle connection or open one; UpstreamFailed when the service cannot be reached."""
        while self._idle:
            kept = self._idle.pop()
            if kept.is_open and self._clock() - kept.kept < IDLE_SECONDS:
                return kept
            kept.abort()
        try:
            async with asyncio.timeout(self._connect_seconds):
                reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_PIECE)
        except TimeoutError:
            text = f"no connection to the service within {self._connect_seconds:g} s"
            raise UpstreamFailed(text, is_late=True) from None
        except OSError as error:
            raise UpstreamFailed(f"the service cannot be reached: {error.strerror or error}") from None
        return UpstreamConnection(reader, writer, self._silent)

    def release(self, connection: UpstreamConnection) -> None:
        """Keep a connection for the next request, or close it."""
        if len(self._idle) < MAX_IDLE and connection.renew():
            self._idle.append(connection)
        else:
            connection.abort()


class Passing:
    """The client side of a request that is passed on."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, first: Message) -> None:
        self._scope, self._receive, self.send = scope, receive, send
        self._first = first
        self.has_begun = False
        """Whether the request may have reached the other server."""
        self.sent = 0
        """Bytes of the body that were passed on."""
        self.client_left = False
        """Whether the client closed the connection before it had the answer."""
        self.is_complete = False
        """Whether all of the answer came: what the client does from then on is of no importance."""

    @property
    def method(self) -> str:
        """Return the method of the request."""
        return str(self._scope["method"])

    @property
    def target(self) -> bytes:
        """Return the path and query as the client sent them."""
        query: bytes = self._scope["query_string"]
        path: bytes = self._scope["raw_path"]
        return path + b"?" + query if query else path

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers to pass on."""
        given: list[tuple[bytes, bytes]] = self._scope["headers"]
        found = [(name, value) for name, value in given if name not in _dropped(given, _NOT_SENT)]
        if any(name == b"transfer-encoding" for name, _ in given):
            found.append((b"transfer-encoding", b"chunked"))
        return found

    async def start(self, answer: h11.Response) -> None:
        """Send the status and headers of the other server's response."""
        given = list(answer.headers)
        headers = [(name, value) for name, value in given if name not in _dropped(given, _NOT_ANSWERED)]
        await self.send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def send_body(self, connection: UpstreamConnection) -> None:
        """Stream the request body; abort the connection when the client disconnects later."""
        message = self._first
        try:
            while message["type"] == "http.request":
                data = message.get("body", b"")
                self.sent += len(data)
                await connection.send(data)
                if not message.get("more_body", False):
                    connection.end()
                    break
                message = await self._receive()
            while message["type"] != "http.disconnect":
                message = await self._receive()
        except OSError:
            return  # the server stopped reading: its response, or the lack of one, says why
        except (Refused, h11.LocalProtocolError):
            connection.abort()
            raise
        if not self.is_complete:
            self.client_left = True
            connection.abort()


async def pass_on(
    upstream: Upstream,
    passing: Passing,
    headers: Headers,
    on_answer: Callable[[h11.Response], object] = lambda answer: None,
    on_part: Callable[[bytes], object] = len,
) -> None:
    """Pass a request on and stream the response back; UpstreamFailed unless the client left."""
    connection = await upstream.connect()
    sending: asyncio.Task[None] | None = None
    try:
        passing.has_begun = True
        connection.begin(passing.method, upstream.prefix + passing.target, headers)
        sending = asyncio.create_task(passing.send_body(connection))
        answer = await connection.answer()
        await passing.start(answer)
        on_answer(answer)
        async for data in connection.parts():
            on_part(data)
            await passing.send({"type": "http.response.body", "body": data, "more_body": True})
        passing.is_complete = True
        await passing.send({"type": "http.response.body", "body": b""})
    except UpstreamFailed:
        if not passing.client_left:
            raise
    finally:
        if sending is not None:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Refused, OSError, h11.LocalProtocolError):
                await sending
        upstream.release(connection)


def _dropped(headers: Headers, always: frozenset[bytes]) -> frozenset[bytes]:
    """Return the hop-by-hop headers, which are not passed on."""
    named = [value for name, value in headers if name == b"connection"]
    return always | {word.strip().lower() for value in named for word in value.split(b",")}
