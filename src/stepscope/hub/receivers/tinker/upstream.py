"""An HTTP/1.1 client for the proxy: keep-alive connections and bodies streamed both ways."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import urlsplit

import h11

from stepscope.model.errors import ConfigError

Headers = Sequence[tuple[bytes, bytes]]
CONNECT_SECONDS, SILENT_SECONDS, IDLE_SECONDS = 10.0, 900.0, 15.0
"""Seconds for a connection, for the next bytes of a response, and for which an idle connection is kept."""
MOST_IDLE = 100
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
            raise ConfigError(f"--tinker-upstream {url!r} is not an address: use https://HOST/PATH or http://HOST:PORT")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
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
        if len(self._idle) < MOST_IDLE and connection.renew():
            self._idle.append(connection)
        else:
            connection.abort()
