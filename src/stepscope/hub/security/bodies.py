"""The bodies of all requests: bounded in bytes and in seconds before anything reads them."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.hub.limits import Limits
from stepscope.hub.refusals import Refusal, Refused

MOST = "stepscope.most_body"
"""Where a request's scope says how large its body may be, before and after decompression."""
_DRAINED = 4
"""So many times the limit is read and thrown away, so that the sender can read our refusal."""


class Bodies:
    """ASGI middleware; `larger` names the paths whose bodies may be larger than the others."""

    def __init__(self, app: ASGIApp, limits: Limits, larger: Mapping[str, int]) -> None:
        self._app = app
        self._limits = limits
        self._larger = larger
        self.held = 0
        """Bytes of bodies in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `receive` that raises Refused where the body goes beyond a limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = scope[MOST] = self._larger.get(scope["path"], self._limits.small_body)
        body = _Body(self, receive, most)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self.held -= body.held

    def hold(self, size: int) -> None:
        """Count bytes that stay in memory; Refused when all requests together have too many."""
        if self.held + size > self._limits.bodies:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many request bodies at once", 1.0))
        self.held += size

    @property
    def seconds(self) -> float:
        """How long a body may take."""
        return self._limits.body_seconds


class _Body:
    """One body on its way in."""

    def __init__(self, bodies: Bodies, receive: Receive, most: int) -> None:
        self._bodies = bodies
        self._receive = receive
        self._most = most
        self._until: float | None = None
        self._complete = False
        self.held = 0

    async def receive(self) -> Message:
        """The next message; Refused with 408, 413 or 503 when the body is too slow or too large."""
        if self._complete:
            return await self._receive()
        message = await self._next()
        if message["type"] != "http.request":
            return message
        part = len(message.get("body", b""))
        if self.held + part > self._most:
            await self._drain(self.held + part)
            raise Refused(too_large(self._most))
        if part:
            self._bodies.hold(part)
            self.held += part
        return message

    async def _next(self) -> Message:
        loop = asyncio.get_running_loop()
        if self._until is None:
            self._until = loop.time() + self._bodies.seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            late = f"the body did not come within {self._bodies.seconds:g} s"
            raise Refused(Refusal(HTTPStatus.REQUEST_TIMEOUT, late)) from None
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def _drain(self, size: int) -> None:
        while not self._complete and size <= self._most * _DRAINED:
            size += len((await self._next()).get("body", b""))


def too_large(limit: int) -> Refusal:
    """Refuse a body for its size."""
    return Refusal(HTTPStatus(413), f"the body is larger than {limit} bytes; send less at a time")
