"""The gate in front of the app: asks the guard about each request and puts safe headers on each answer."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.hub.answers import refusal_response
from stepscope.hub.refusals import Refusal
from stepscope.hub.security.guard import Access, Guard

ACCESS = "stepscope.access"
"""Where a request's scope says who sent it."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
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
_STRICT = (b"strict-transport-security", b"max-age=31536000")


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path: str = scope["path"]
        verdict = self._guard.check(scope["method"], path, headers)
        guarded = _Answer(send, path, scope["scheme"], self._foreign_page(headers))
        if isinstance(verdict, Refusal):
            await refusal_response(path, headers, verdict)(scope, receive, guarded)
            return
        scope[ACCESS] = verdict
        await self._app(scope, receive, guarded)

    def _foreign_page(self, headers: dict[str, str]) -> str:
        origin = headers.get("origin", "")
        return origin if origin and self._guard.allows_origin(origin) else ""


class _Answer:
    """Sends with our headers added; no page from elsewhere is allowed but by name."""

    def __init__(self, send: Send, path: str, scheme: str, foreign: str) -> None:
        self._send = send
        self._path = path
        self._scheme = scheme
        self._foreign = foreign

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *self._extra(message)]
        await self._send(message)

    def _extra(self, message: Message) -> list[tuple[bytes, bytes]]:
        extra = list(_HEADERS)
        present = {name for name, _ in message.get("headers", ())}
        if self._path.startswith("/api/") and b"cache-control" not in present:
            extra.append(_KEPT_NOWHERE)
        if self._scheme == "https":
            extra.append(_STRICT)
        if self._foreign:
            extra += (
                (b"access-control-allow-origin", self._foreign.encode("latin-1")),
                (b"access-control-allow-headers", b"authorization, content-type, content-encoding"),
                (b"vary", b"origin"),
            )
        return extra


def access_of(scope: Scope) -> Access:
    """Tell who sent the request of a scope that passed the gate."""
    found: Access = scope[ACCESS]
    return found
