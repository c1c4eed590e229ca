"""A recording proxy in front of a Tinker service: requests and responses are streamed unchanged."""

import asyncio
import contextlib
import re
from http import HTTPStatus

import h11
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from stepscope.hub.receivers.tinker.operations import Exchange, Operations, lower_headers
from stepscope.hub.receivers.tinker.upstream import Upstream, UpstreamConnection, UpstreamFailed
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.middleware import HEAD, access_of
from stepscope.hub.security.tokens import PREFIX

_HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
_NOT_SENT = _HOP_BY_HOP | {b"host", b"expect", b"traceparent"}
_NOT_ANSWERED = _HOP_BY_HOP | {b"date"}
"""The hub's server adds a date of its own."""
_ACCESS_ID, _ACCESS_SECRET = b"cf-access-client-id", b"cf-access-client-secret"
_CREDENTIALS = (b"x-api-key", b"authorization", _ACCESS_SECRET)
_OURS = re.compile(rf"(tml-|bearer\s+)?{PREFIX}_".encode(), re.IGNORECASE)
_CLIENT_LEFT = "the client left"


class Proxy:
    """Forwards requests to a service. Used by the event loop only."""

    def __init__(self, upstream: Upstream, operations: Operations) -> None:
        self._upstream = upstream
        self._operations = operations

    async def forward(self, request: Request) -> Response:
        """Return a response that streams the service's."""
        return _Forwarded(self)

    async def exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request and stream the response back; Refused with 502 or 504 when there is none."""
        first = await receive()
        if first["type"] != "http.request":
            return
        data = first.get("body", b"")
        exchange = self._operations.begin(scope[HEAD], data, access_of(scope).project)
        try:
            await self._pass(_Passing(scope, receive, send, first), exchange)
        except UpstreamFailed as error:
            exchange.error = str(error)
            status = HTTPStatus.GATEWAY_TIMEOUT if error.is_late else HTTPStatus.BAD_GATEWAY
            if not exchange.status:
                raise Refused(Refusal(status, str(error), 1.0)) from None
            # The response has begun: the server closes the connection, and the client sees it cut off, too.
        finally:
            self._operations.finish(exchange)

    async def _pass(self, passing: "_Passing", exchange: Exchange) -> None:
        connection = await self._upstream.connect()
        sending: asyncio.Task[None] | None = None
        try:
            target = self._upstream.prefix + passing.target
            headers = [(b"host", self._upstream.authority), *passing.headers()]
            connection.begin(exchange.head.method, target, [*headers, (b"traceparent", exchange.traceparent)])
            sending = asyncio.create_task(passing.send_body(connection, exchange))
            answer = await connection.answer()
            exchange.headers = dict(lower_headers(list(answer.headers)))
            await passing.start(answer)
            exchange.status = answer.status_code
            async for data in connection.parts():
                exchange.pass_on(data)
                await passing.send({"type": "http.response.body", "body": data, "more_body": True})
            passing.is_complete = True
            await passing.send({"type": "http.response.body", "body": b""})
        except UpstreamFailed:
            if exchange.error != _CLIENT_LEFT:
                raise
        finally:
            if sending is not None:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError, Refused, OSError, h11.LocalProtocolError):
                    await sending
            self._upstream.release(connection)


class _Forwarded(Response):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._proxy.exchange(scope, receive, send)


class _Passing:
    """The client side of an exchange."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, first: Message) -> None:
        self._scope, self._receive, self.send = scope, receive, send
        self._first = first
        self.is_complete = False
        """Whether all of the answer came: what the client does from then on is of no importance."""

    @property
    def target(self) -> bytes:
        """Return the path and query as the client sent them."""
        query: bytes = self._scope["query_string"]
        path: bytes = self._scope["raw_path"]
        return path + b"?" + query if query else path

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers for the service, without a token of this hub."""
        given: list[tuple[bytes, bytes]] = self._scope["headers"]
        found = [(name, value) for name, value in given if name not in _dropped(given, _NOT_SENT)]
        ours = {name for name, value in found if name in _CREDENTIALS and _OURS.match(value)}
        if ours:
            ours |= {_ACCESS_ID} if _ACCESS_SECRET in ours else set()
            found = [(name, value) for name, value in found if name not in ours]
        if any(name == b"transfer-encoding" for name, _ in given):
            found.append((b"transfer-encoding", b"chunked"))
        return found

    async def start(self, answer: h11.Response) -> None:
        """Send the status and headers of the service's response."""
        given = list(answer.headers)
        headers = [(name, value) for name, value in given if name not in _dropped(given, _NOT_ANSWERED)]
        await self.send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def send_body(self, connection: UpstreamConnection, exchange: Exchange) -> None:
        """Stream the request body to the service; abort the connection when the client disconnects later."""
        message = self._first
        try:
            while message["type"] == "http.request":
                data = message.get("body", b"")
                exchange.sent += len(data)
                await connection.send(data)
                if not message.get("more_body", False):
                    connection.end()
                    break
                message = await self._receive()
            while message["type"] != "http.disconnect":
                message = await self._receive()
        except OSError:
            return  # the service stopped reading: its response, or the lack of one, says why
        except (Refused, h11.LocalProtocolError):
            connection.abort()
            raise
        if not self.is_complete:
            exchange.error = _CLIENT_LEFT
            connection.abort()


def _dropped(headers: list[tuple[bytes, bytes]], always: frozenset[bytes]) -> frozenset[bytes]:
    """Return the hop-by-hop headers, which are not forwarded."""
    named = [value for name, value in headers if name == b"connection"]
    return always | {word.strip().lower() for value in named for word in value.split(b",")}
