"""The hub's HTTP application: receivers, health, session, and the routes of the JSON API and the page."""

import http.cookies
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from stepscope.hub.intake.store_pump import Readers
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.bodies import LimitedRoute
from stepscope.hub.receivers.receiver import Receiver, ReceiverRoute, open_receivers, ordered_routes
from stepscope.hub.refusals import OutcomeUnknown, Refusal, Refused, error_response, json_response
from stepscope.hub.security.guard import (
    COOKIE,
    AccessMiddleware,
    AccessRule,
    BodyLimits,
    RequestHead,
    api_scope,
    bearer,
    cookie,
    refusal_response,
)
from stepscope.hub.service import Hub
from stepscope.hub.serving.page import page_routes
from stepscope.model.errors import ConfigError, Retry
from stepscope.wire.openmetrics import CONTENT_TYPES, choose, expose

CATCH_UP_SECONDS = 2.0
_SESSION_SECONDS = 30 * 24 * 3600
_SESSION_BODY = 16 * 1024
"""Bytes of a login, which needs no token and is kept in memory."""


def build_app(hub: Hub, routes: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Build the ASGI application of a hub; `routes` are those of the JSON API."""
    fleet, receivers = hub.fleet, open_receivers(hub)
    hub.deletion.delete_left_uploads()
    received = [Route(route.path, route.answer, methods=list(route.methods)) for _, route in ordered_routes(receivers)]
    exact = ExactRoutes([route for route in received if "{" not in route.path])
    patterns = [route for route in received if "{" in route.path]
    between_hubs = fleet.routes(hub.workers) if fleet is not None else []
    inner = Starlette(
        routes=[exact, *patterns, *_own_routes(hub), *between_hubs, *routes, *page_routes()],
        exception_handlers={HTTPException: _refuse, Refused: _refused, Retry: _retry, Exception: _fail},
    )
    inner.router.redirect_slashes = False
    bodies = {"/api/session": _SESSION_BODY, **(fleet.bodies if fleet is not None else {})}
    for route in routes:
        if isinstance(route, LimitedRoute):
            bodies[route.path] = max(route.most_body, bodies.get(route.path, 0))
    api = JsonApi(bodies, hub.limits.small_body)
    rules = AccessRules(receivers, hub.limits, api.rule)
    app = AccessMiddleware(BodyLimits(_Noted(inner, hub.readers, hub.catch_up), hub.limits), hub.guard, rules.find)
    return app if fleet is None else fleet.relay(app, hub.guard, rules.find, hub.limits.body_seconds)


class _Noted:
    """ASGI middleware that notes the requests of clients that read through the JSON API.

    The first one waits for what was not stored because nobody read, but not long: an answer says how complete it is.
    """

    def __init__(self, app: ASGIApp, readers: Readers, catch_up: Callable[[float], object]) -> None:
        self._app, self._readers, self._catch_up = app, readers, catch_up

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["path"].startswith("/api/") and api_scope(scope["method"], scope["path"]) not in ("admin", None):
            first = not self._readers.any()
            with self._readers.reading():
                if first:
                    await run_in_threadpool(self._catch_up, CATCH_UP_SECONDS)
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class ExactRoutes(BaseRoute):
    """Routes without parameters, found by their path: Starlette tries one route after the other."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = routes
        self._routes: dict[str, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(route.path, []).append(route)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return how well a request matches: its path and method, its path alone, or nothing."""
        found = self._routes.get(scope["path"])
        if found is None or scope["type"] != "http":
            return Match.NONE, {}
        route = _with_method(found, scope["method"])
        known = {"endpoint": (route or found[0]).endpoint, "path_params": {}}
        return (Match.PARTIAL if route is None else Match.FULL), known

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matches; a wrong method is refused."""
        found = self._routes[scope["path"]]
        route = _with_method(found, scope["method"]) or found[0]
        await route.handle(scope, receive, send)


def _with_method(routes: Sequence[Route], method: str) -> Route | None:
    return next((route for route in routes if method in (route.methods or ())), None)


class AccessRules:
    """Finds the access rule of a request: that of its route, else of the receiver's prefix, else the default."""

    def __init__(
        self, receivers: Iterable[Receiver], limits: Limits, default: Callable[[RequestHead], AccessRule]
    ) -> None:
        self._default = default
        self._exact: dict[tuple[str, str], AccessRule] = {}
        self._patterns: list[tuple[Any, str, AccessRule]] = []
        self._prefixes: list[tuple[str, AccessRule]] = []
        everyone = list(receivers)
        for receiver, route in ordered_routes(everyone):
            most = limits.body if route.body is None else route.body
            self._add(route, AccessRule(receiver, route.scope, most, route.stream))
        for receiver in everyone:
            rule = AccessRule(receiver, "ingest", limits.small_body)
            self._prefixes += [(prefix, rule) for prefix in receiver.prefixes]
        self._prefixes.sort(key=lambda each: -len(each[0]))

    def _add(self, route: ReceiverRoute, rule: AccessRule) -> None:
        for method in dict.fromkeys((*route.methods, "HEAD") if "GET" in route.methods else route.methods):
            if "{" in route.path:
                self._patterns.append((compile_path(route.path)[0], method, rule))
            elif (method, route.path) in self._exact:
                raise ConfigError(f"two receivers have the route {method} {route.path}")
            else:
                self._exact[method, route.path] = rule

    def find(self, head: RequestHead) -> AccessRule:
        """The rule of a request."""
        rule = self._exact.get((head.method, head.path))
        if rule is not None:
            return rule
        for pattern, method, rule in self._patterns:
            if method == head.method and pattern.match(head.path):
                return rule
        for prefix, rule in self._prefixes:
            if head.path.startswith(prefix):
                return rule
        return self._default(head)


class JsonApi:
    """The access policy of the JSON API and the page."""

    def __init__(self, bodies: Mapping[str, int], small: int) -> None:
        self._bodies, self._small = bodies, small

    def rule(self, head: RequestHead) -> AccessRule:
        """The rule of a request."""
        return AccessRule(self, api_scope(head.method, head.path), self._bodies.get(head.path, self._small))

    def credential(self, head: RequestHead) -> str:
        """The bearer token, or the cookie of a browser that logged in."""
        return bearer(head.headers.get("authorization", "")) or cookie(head.headers.get("cookie", ""))

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Write `{"error": ...}`."""
        return error_response(refusal)


def _own_routes(hub: Hub) -> list[Route]:
    async def health(request: Request) -> Response:
        return json_response(await run_in_threadpool(hub.health))

    async def metrics(request: Request) -> Response:
        form = choose(request.headers.get("accept", ""))
        return Response(expose(await run_in_threadpool(hub.metrics), form), media_type=CONTENT_TYPES[form])

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return [
        Route("/api/health", health),
        Route("/metrics", metrics),
        Route("/healthz", alive),
        Route("/api/session", _session(hub), methods=["POST", "DELETE"]),
    ]


def _session(hub: Hub) -> Callable[[Request], Awaitable[Response]]:
    async def session(request: Request) -> Response:
        """Set the browser's token as a cookie that scripts cannot read, or delete it."""
        token = ""
        if request.method == "POST":
            try:
                token = str(msgspec.json.decode(await request.body(), type=dict[str, str])["token"])
            except (KeyError, ValueError):
                return error_response(Refusal(HTTPStatus.BAD_REQUEST, 'send {"token": "..."}'))
            if hub.guard.tokens.find(token) is None:
                return error_response(Refusal(HTTPStatus.UNAUTHORIZED, "this token is not known"))
        response = json_response({"token": bool(token)})
        response.headers["Set-Cookie"] = _cookie(token, secure=hub.options.tls is not None)
        return response

    return session


def _cookie(token: str, *, secure: bool) -> str:
    made: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
    made[COOKIE] = token
    made[COOKIE].update({"path": "/", "samesite": "Strict", "max-age": str(_SESSION_SECONDS if token else 0)})
    made[COOKIE]["httponly"] = True
    made[COOKIE]["secure"] = secure
    return made[COOKIE].OutputString()


async def _refuse(request: Request, error: Any) -> Response:
    """Answer 404, 405 and the like."""
    status = HTTPStatus(error.status_code)
    known = {404: "nothing is here", 405: "this needs another method"}
    response = refusal_response(request.scope, Refusal(status, known.get(error.status_code) or str(error.detail)))
    response.headers.update(error.headers or {})
    return response


async def _refused(request: Request, error: Any) -> Response:
    return refusal_response(request.scope, error.refusal)


async def _retry(request: Request, error: Any) -> Response:
    """Answer that a client must retry: its records could not be journaled now."""
    unknown = isinstance(error, OutcomeUnknown)
    status = HTTPStatus.GATEWAY_TIMEOUT if unknown else HTTPStatus.SERVICE_UNAVAILABLE
    return refusal_response(request.scope, Refusal(status, str(error), error.after or 5.0))


async def _fail(request: Request, error: Exception) -> Response:
    """Convert an unexpected exception to a retryable error, because nothing was acknowledged."""
    refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the hub failed: {type(error).__name__}", 5.0)
    return refusal_response(request.scope, refusal)
