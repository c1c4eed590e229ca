"""A recording proxy in front of a Tinker service: requests and responses are streamed unchanged."""

import re
from http import HTTPStatus

import h11
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stepscope.dialects.tinker.receiver.operations import Exchange, Operations, lower_headers
from stepscope.extend.receiver import (
    HEAD,
    PREFIX,
    Headers,
    Passing,
    Refusal,
    Refused,
    Upstream,
    UpstreamFailed,
    access_of,
    pass_on,
)

_ACCESS_ID, _ACCESS_SECRET = b"cf-access-client-id", b"cf-access-client-secret"
_CREDENTIALS = (b"x-api-key", b"authorization", _ACCESS_SECRET)
_OURS = re.compile(rf"(tml-|bearer\s+)?{PREFIX}_".encode(), re.IGNORECASE)
_CLIENT_LEFT = "the client disconnected"


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
            await self._pass(Passing(scope, receive, send, first), exchange)
        except UpstreamFailed as error:
            exchange.error = str(error)
            status = HTTPStatus.GATEWAY_TIMEOUT if error.is_late else HTTPStatus.BAD_GATEWAY
            if not exchange.status:
                raise Refused(Refusal(status, str(error), 1.0)) from None
            # The response has started: closing the connection shows the client that it is incomplete.
        finally:
            self._operations.finish(exchange)

    async def _pass(self, passing: Passing, exchange: Exchange) -> None:
        def answered(answer: h11.Response) -> None:
            exchange.headers = dict(lower_headers(list(answer.headers)))
            exchange.status = answer.status_code

        own = [(b"host", self._upstream.authority), (b"traceparent", exchange.traceparent)]
        try:
            await pass_on(
                self._upstream, passing, [*own, *_without_ours(passing.headers())], answered, exchange.pass_on
            )
        finally:
            exchange.sent = passing.sent
            if passing.client_left:
                exchange.error = _CLIENT_LEFT


class _Forwarded(Response):
    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._proxy.exchange(scope, receive, send)


def _without_ours(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers for the service, without those that the proxy sets and without a token of this hub."""
    found = [(name, value) for name, value in headers if name not in (b"host", b"traceparent")]
    ours = {name for name, value in found if name in _CREDENTIALS and _OURS.match(value)}
    if ours:
        ours |= {_ACCESS_ID} if _ACCESS_SECRET in ours else set()
        found = [(name, value) for name, value in found if name not in ours]
    return found
