"""ASGI middleware: access control, security headers, and limits on the size and duration of request bodies."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import NamedTuple, NoReturn, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.hub.limits import MEGA, Limits
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.guard import ACCESS_HEADER, Access, Guard, RequestHead
from stepscope.hub.security.tokens import Scope as TokenScope

ACCESS, RULE, HEAD = "stepscope.access", "stepscope.rule", "stepscope.head"
"""Keys of the ASGI scope: the admitted client, the rule of the request, and its head."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_KEPT_NOWHERE = (b"cache-control", b"no-store")
_ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(?::\d{1,5})?|https?://\[[0-9a-f:]+\](?::\d{1,5})?")
_STRICT = (b"strict-transport-security", b"max-age=31536000")


class AccessPolicy(Protocol):
    """How the clients of some routes authenticate, and how errors are written for them."""

    def credential(self, head: RequestHead) -> str:
        """The token of a request; empty without one."""

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Write an error in the format of these clients."""


class AccessRule(NamedTuple):
    """What a request needs, and its limits."""

    policy: AccessPolicy
    scope: TokenScope | tuple[TokenScope, ...] | None
    """The scope that its token needs, or several of which one suffices; None for none."""
    body: int
    """The most bytes of its body, before and after decompression."""
    stream: bool = False
    """Whether its body is streamed; then the hub's limit of streams holds in place of `body`."""


class AccessMiddleware:
    """ASGI middleware that checks each request against its rule with the guard."""

    def __init__(self, app: ASGIApp, guard: Guard, rule_of: Callable[[RequestHead], AccessRule]) -> None:
        self._app = app
        self._guard = guard
        self._rule_of = rule_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope.get("query_string", b"").decode("latin-1")
        head = RequestHead(scope["method"], scope["path"], headers, query)
        if self._guard.is_preflight(head):
            guarded = secured(send, head, scope["scheme"], self._guard)
            await Response(status_code=HTTPStatus.NO_CONTENT)(scope, receive, guarded)
            return
        rule = self._rule_of(head)
        verdict = self._guard.check(head, rule.scope, rule.policy.credential(head))
        guarded = secured(send, head, scope["scheme"], self._guard)
        if isinstance(verdict, Refusal):
            await rule.policy.refuse(head, verdict)(scope, receive, guarded)
            return
        scope[ACCESS], scope[RULE], scope[HEAD] = verdict, rule, head
        await self._app(scope, receive, _telling(guarded, verdict) if head.path.startswith("/api/") else guarded)


def _telling(send: Send, access: Access) -> Send:
    """A `send` that adds what the token of the client allows."""
    if not access.words:
        return send
    header = (ACCESS_HEADER.lower().encode(), access.words.encode())

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), header]
        await send(message)

    return told


def secured(send: Send, head: RequestHead, scheme: str, guard: Guard) -> Send:
    """A `send` that adds the security headers to a response, whichever part of the hub writes it."""
    origin = head.headers.get("origin", "")
    foreign = origin if origin and guard.allows_origin(origin) else ""
    return _Answer(send, head.path, scheme, foreign, guard.foreign)


class _Answer:
    """Add our headers to responses; only listed origins of other pages are allowed, also to have it in a frame."""

    def __init__(self, send: Send, path: str, scheme: str, foreign: str, framing: Collection[str]) -> None:
        self._send = send
        self._path = path
        self._scheme = scheme
        self._foreign = foreign
        self._headers = _framed(framing) if framing else _HEADERS

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *self._extra(message)]
        await self._send(message)

    def _extra(self, message: Message) -> list[tuple[bytes, bytes]]:
        present = {name for name, _ in message.get("headers", ())}
        extra = [each for each in self._headers if each[0] not in present]
        if self._path.startswith("/api/") and b"cache-control" not in present:
            extra.append(_KEPT_NOWHERE)
        if self._scheme == "https":
            extra.append(_STRICT)
        if self._foreign:
            extra += (
                (b"access-control-allow-origin", self._foreign.encode("latin-1")),
                (b"access-control-allow-headers", b"authorization, content-type, content-encoding"),
                (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
                (b"vary", b"origin"),
            )
        return extra


def _framed(origins: Collection[str]) -> tuple[tuple[bytes, bytes], ...]:
    """The security headers of a page that some origins may show in a frame; the older header cannot list them."""
    listed = " ".join(sorted(each for each in origins if _ORIGIN.fullmatch(each))) or "'none'"
    policy = _POLICY.replace("frame-ancestors 'none'", f"frame-ancestors {listed}")
    kept = [each for each in _HEADERS if each[0] not in (b"content-security-policy", b"x-frame-options")]
    return ((b"content-security-policy", policy.encode("latin-1")), *kept)


def most_body(scope: Scope) -> int:
    """Bytes that the body of a request may have, before and after decompression."""
    rule: AccessRule = scope[RULE]
    return rule.body


def refusal_response(scope: Scope, refusal: Refusal) -> Response:
    """Reject a request that passed the guard, in the format of its client."""
    rule: AccessRule = scope[RULE]
    return rule.policy.refuse(scope[HEAD], refusal)


def access_of(scope: Scope) -> Access:
    """The client of a request that passed the guard."""
    found: Access = scope[ACCESS]
    return found


_DISCARDED = 3
"""Multiple of the limit that is read and discarded after the error was sent, so that the sender can read it."""
_MAX_DISCARDED = 64 * MEGA


class BodyLimits:
    """ASGI middleware after access control, because the rule of a request has the limit of its body."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self.held = 0
        """Bytes of bodies in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a `receive` that raises Refused where the body exceeds a limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule: AccessRule = scope[RULE]
        most = self._limits.stream_body if rule.stream else rule.body
        body = _Body(self, scope[HEAD], _Channel(receive, send), most, stream=rule.stream)
        try:
            await self._app(scope, body.receive, body.send)
        except ClientDisconnect:
            return  # nobody reads an answer, and a traceback for each would fill the log
        finally:
            self.held -= body.held

    def hold(self, size: int) -> None:
        """Count bytes in memory; Refused when all requests together hold too many."""
        if self.held + size > self._limits.bodies:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many request bodies at once", 1.0))
        self.held += size

    @property
    def seconds(self) -> float:
        """How long a body may take, or the next part of one that is streamed."""
        return self._limits.body_seconds


class _Channel(NamedTuple):
    """The server's side of a request."""

    receive: Receive
    send: Send


class _Body:
    """One request body: kept in memory until the response, or streamed, when only its parts have a time limit."""

    def __init__(self, bodies: BodyLimits, head: RequestHead, channel: _Channel, most: int, *, stream: bool) -> None:
        self._bodies, self._channel, self._most, self._stream = bodies, channel, most, stream
        declared = head.headers.get("content-length", "")
        self._declared = int(declared) if declared.isdecimal() else 0
        self._is_announced = "expect" in head.headers
        self._until: float | None = None
        self._complete = False
        self._refused = False
        self._read = 0
        self.held = 0
        """Bytes that are kept in memory."""

    async def receive(self) -> Message:
        """The next message; Refused with 408, 413 or 503 when the body is too slow or too large."""
        if self._complete:
            return await self._channel.receive()
        if self._declared > self._most:
            self._complete = self._is_announced and not self._read  # the client sends nothing before we ask for it
            self._refuse()
        message = await self._next()
        if self._read > self._most:
            self._refuse()
        part = len(message.get("body", b""))
        if part and not self._stream:
            self._bodies.hold(part)
            self.held += part
        return message

    async def send(self, message: Message) -> None:
        """Pass on a part of the response; when the body is too large, the connection stays open for a while after it.

        A connection that is closed while the client sends would be reset, and the client could not read the error.
        """
        if self._refused and message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._channel.send({**message, "more_body": True})
            await self._discard()
            message = {"type": "http.response.body", "body": b""}
        await self._channel.send(message)

    def _refuse(self) -> NoReturn:
        self._refused = True
        raise Refused(too_large(self._most))

    async def _next(self) -> Message:
        loop = asyncio.get_running_loop()
        if self._until is None or (self._stream and not self._refused):
            self._until = loop.time() + self._bodies.seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._channel.receive()
        except TimeoutError:
            raise Refused(too_slow(self._bodies.seconds)) from None
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        self._read += len(message.get("body", b""))
        return message

    async def _discard(self) -> None:
        most = self._most + min(self._most * _DISCARDED, _MAX_DISCARDED)
        with contextlib.suppress(Refused):
            while not self._complete and self._read <= most:
                await self._next()


def too_slow(seconds: float) -> Refusal:
    """Reject a body for the time that it takes."""
    return Refusal(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {seconds:g} s")


def too_large(limit: int) -> Refusal:
    """Reject a body for its size."""
    return Refusal(HTTPStatus(413), f"the body is larger than {limit} bytes; send smaller requests")
