"""Access control: who may pass, and the middleware that holds requests to it, to limits and to security headers."""

import asyncio
import base64
import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple, NoReturn, Protocol
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.hub.limits import MEGA, Limits
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.tokens import RateLimits, Token, Tokens
from stepscope.hub.security.tokens import Scope as TokenScope

COOKIE = "stepscope_token"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN = ("/healthz", "/api/session")
_CONTROL = ("/stop", "/live")
"""The ends of the paths of a run on which something is asked of its program."""
_LONGEST_USER = 100
_SHARES = "/api/shares"
"""Links are tokens, so even the list of them is for those who may make tokens."""
ACCESS_HEADER = "X-Stepscope-Access"
"""The header that tells the page what its token allows; without one there is no token, and all is allowed."""
_READ: tuple[TokenScope, ...] = ("read", "share")
_OF_RUNS = ("/api/runs/", "/api/live", "/api/spans", "/api/logs", "/api/alerts", "/api/series", "/api/fields")
"""Paths about a run that they name; a client that may read one run only must name that one."""


@dataclass(frozen=True, slots=True)
class Access:
    """An admitted client; without a token where none is needed."""

    token: Token | None = None

    @property
    def project(self) -> str | None:
        """The only project this client may access; None for all."""
        return self.token.project if self.token is not None else None

    @property
    def run(self) -> str | None:
        """The only run this client may read; None for all."""
        return self.token.run if self.token is not None else None

    def allows(self, scope: TokenScope) -> bool:
        """Return whether the client has a scope, for paths that serve several purposes."""
        return self.token is None or self.token.allows(scope)

    @property
    def words(self) -> str:
        """What the token allows and is limited to, for the header; empty without one."""
        if self.token is None:
            return ""
        limit = "run" if self.token.run is not None else "project" if self.token.project is not None else ""
        return " ".join([*self.token.scopes, *([limit] if limit else [])])

    def user(self, named: str = "") -> str:
        """Return the name of the token; where none is needed, the name that the client gives itself, or `local`."""
        if self.token is not None:
            return self.token.name or f"token {self.token.id}"
        return named[:_LONGEST_USER].strip() or "local"


class RequestHead(NamedTuple):
    """A request without its body; the names of headers are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: str = ""
    """The query string."""


class Guard:
    """Checks Host, Origin, token, scope and rate; synchronous, also for gRPC. `foreign` are origins of other pages.

    A token is needed when it is `required`, or once one was created: revoking the last opens nothing.
    """

    def __init__(
        self,
        tokens: Tokens,
        rates: RateLimits,
        hosts: frozenset[str],
        foreign: Iterable[str] = (),
        scheme: str = "http",
        *,
        required: bool = False,
    ) -> None:
        self.tokens = tokens
        self._required = required
        self._rates = rates
        self._hosts = hosts
        self.foreign = frozenset(origin.rstrip("/").lower() for origin in foreign)
        """Origins of other pages that may use the hub, and show its page in a frame."""
        self._scheme = scheme

    def check(
        self, head: RequestHead, needed: TokenScope | tuple[TokenScope, ...] | None, shown: str
    ) -> Access | Refusal:
        """Check an HTTP request that needs a scope, or one of several, and carries a token, empty for none."""
        headers = head.headers
        token = self.tokens.find(shown) if shown else None
        # A page in a browser that was led here under another name cannot know a token.
        if token is None and not is_known_host(headers.get("host", ""), self._hosts):
            host = headers.get("host", "")[:100]
            return Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"the host name {host!r} is not allowed: start the hub with --allow-host, or use a token",
            )
        foreign = self._foreign_page(head.method, headers)
        if foreign is not None:
            return foreign
        if needed is None or not self._needs_token():
            return Access(token)
        return self.admit(shown, needed)

    def admit(self, shown: str, needed: TokenScope | tuple[TokenScope, ...]) -> Access | Refusal:
        """Check the token alone, for gRPC."""
        if not self._needs_token():
            return Access()
        token = self.tokens.find(shown) if shown else None
        if token is None:
            how = "send a token: Authorization: Bearer TOKEN (stepscope hub token create)"
            return Refusal(HTTPStatus.UNAUTHORIZED, how if not shown else f"this token is not known; {how}")
        enough = (needed,) if isinstance(needed, str) else needed
        if not any(token.allows(scope) for scope in enough):
            return Refusal(HTTPStatus.FORBIDDEN, f"this token lacks the scope {' or '.join(map(repr, enough))}")
        wait = self._rates.take(token.id, token.requests)
        if wait:
            return Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many requests with this token", wait)
        return Access(token)

    def still_valid(self, access: Access) -> bool:
        """Return whether an admitted client would be admitted again: its token may be revoked, or one be needed now."""
        if access.token is None:
            return not self._needs_token()
        return self.tokens.knows(access.token)

    def _needs_token(self) -> bool:
        self._required = self._required or bool(self.tokens)
        return self._required

    def allows_origin(self, origin: str) -> bool:
        """Return whether the origin of another page is allowed."""
        return origin.rstrip("/").lower() in self.foreign

    def is_preflight(self, head: RequestHead) -> bool:
        """Return whether the browser asks for an allowed page which requests it may send; that needs no token."""
        asks = head.method == "OPTIONS" and "access-control-request-method" in head.headers
        return asks and self.allows_origin(head.headers.get("origin", ""))

    def _foreign_page(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        origin = headers.get("origin")
        if origin is not None:
            if is_same_origin(origin, headers.get("host", ""), self._scheme) or self.allows_origin(origin):
                return None
            return Refusal(HTTPStatus.FORBIDDEN, f"requests from pages of {origin[:100]!r} are not allowed")
        if headers.get("sec-fetch-site") == "cross-site" and method not in _SAFE_METHODS:
            return Refusal(HTTPStatus.FORBIDDEN, "requests from pages of other sites are not allowed")
        return None


def api_scope(method: str, path: str) -> TokenScope | tuple[TokenScope, ...] | None:
    """The scopes of which the JSON API and the page need one; None for the page itself, which holds no data."""
    if path in _OPEN:
        return None
    if method == "POST" and path.startswith("/api/runs/") and path.endswith(_CONTROL):
        return "control"
    if path.startswith("/api/") or path == "/metrics":
        changes = (method not in _SAFE_METHODS and path != "/api/sql") or path.startswith(_SHARES)
        return "admin" if changes else _READ if path.startswith(_OF_RUNS) and method in _SAFE_METHODS else "read"
    return None


def bearer(header: str) -> str:
    """The token of a Bearer Authorization header; empty without one."""
    kind, _, text = header.strip().partition(" ")
    return text.strip() if kind.lower() == "bearer" else ""


def basic_password(header: str) -> str:
    """The password of a Basic Authorization header; empty without one."""
    kind, _, text = header.strip().partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def cookie(header: str) -> str:
    """The token in the cookie of a browser."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return whether an address to bind is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def known_hosts(host: str, extra: Iterable[str] = ()) -> frozenset[str]:
    """The host names of a hub: loopback, the address it binds, this machine's names."""
    names = {*_LOOPBACK, *(name.lower() for name in extra)}
    if not is_loopback(host):
        names |= {host.lower(), socket.gethostname().lower()}
    return frozenset(names)


def host_name(header: str) -> str:
    """The name in a Host header, without its port, in lower case; empty without one."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def is_known_host(header: str, known: frozenset[str]) -> bool:
    """Return whether a Host header names this hub; any loopback address does."""
    name = host_name(header)
    return name in known or (name[:4] == "127." and is_loopback(name))


def is_same_origin(origin: str, host_header: str, scheme: str) -> bool:
    """Return whether a page's origin is the hub itself."""
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return False
    return parts.scheme == scheme and parts.netloc == host_header.strip().lower()


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
