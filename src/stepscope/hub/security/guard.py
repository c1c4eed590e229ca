"""Access control: whether a request may pass, and as which client. Synchronous and independent of any framework."""

import base64
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from stepscope.hub.refusals import Refusal
from stepscope.hub.security.tokens import RateLimits, Scope, Token, Tokens

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
_READ: tuple[Scope, ...] = ("read", "share")
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

    def allows(self, scope: Scope) -> bool:
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
    """Checks Host, Origin, token, scope and rate; `foreign` are allowed origins of other pages.

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

    def check(self, head: RequestHead, needed: "Scope | tuple[Scope, ...] | None", shown: str) -> Access | Refusal:
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

    def admit(self, shown: str, needed: "Scope | tuple[Scope, ...]") -> Access | Refusal:
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


def api_scope(method: str, path: str) -> "Scope | tuple[Scope, ...] | None":
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
