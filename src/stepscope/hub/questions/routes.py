"""The JSON API as routes of the web framework: endpoints run on thread pools."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from stepscope.hub.live import Live
from stepscope.hub.questions.alerts.alert_snapshot import take as take_snapshot
from stepscope.hub.questions.live_events import PATH, LiveEvents, describe
from stepscope.hub.questions.openapi import ENDPOINTS, document
from stepscope.hub.questions.toolbox.endpoint import (
    Endpoint,
    Lane,
    Reader,
    StoredFile,
    Stream,
    check,
    check_shared,
    encode_answer,
    partial_headers,
    partial_reads,
    partial_stream,
)
from stepscope.hub.receivers.bodies import Body, LimitedRoute, read_body
from stepscope.hub.refusals import Refusal, Refused, json_response, not_found
from stepscope.hub.runs.bucket import RemoteFile
from stepscope.hub.runs.run_files import RemoteFileResponse, StoredFileResponse, disposition
from stepscope.hub.security.guard import Access, access_of
from stepscope.hub.service import Hub
from stepscope.hub.store.engine import AWAY, BEHIND, Damaged, EngineError, MissingShards, Stop, partial_answers
from stepscope.hub.threads import Workers

USER = "x-stepscope-user"
"""The header with the user, for the record of an edit; the name of a token takes precedence."""
SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""The policy of stored files: no scripts, no requests, an origin of their own."""
_FRAMED = {
    "Content-Security-Policy": SANDBOX.replace("frame-ancestors 'none'", "frame-ancestors 'self'"),
    "X-Frame-Options": "SAMEORIGIN",
}
"""The same for one that our own page shows in a frame."""


class _Size(TypedDict):
    threads: int
    waiting: int


_LANES: dict[Lane, _Size] = {
    "read": {"threads": 4, "waiting": 512},
    "sql": {"threads": 2, "waiting": 8},
    "import": {"threads": 1, "waiting": 2},
}


@dataclass(frozen=True, slots=True)
class Source:
    """What all requests share: the context, the live events and the thread pools."""

    reader: Reader
    """The context without what a request adds: its project, its user, and what cancels its query."""
    live: Live
    lanes: Mapping[Lane, Workers]
    version: str
    on_damage: Callable[[str], None] = lambda message: None
    """Called when a query finds a damaged part of the store."""
    stops: set[Stop] = field(default_factory=set)
    """Cancel the running queries."""
    still_valid: Callable[[Access], bool] = lambda access: True
    """Whether the token of a live stream is still valid."""


def api_routes(source: Source) -> list[BaseRoute]:
    """Make the routes of the JSON API."""

    @cache
    def described() -> dict[str, Any]:  # a hub that starts does without: the schemas take a tenth of its start
        return document(ENDPOINTS, source.version, describe())

    async def openapi(request: Request) -> Response:
        return json_response(await source.lanes["read"].run(described))

    async def page(request: Request) -> Response:
        return RedirectResponse("./#/api")

    return [
        Route("/api", page),
        Route("/api/openapi.json", openapi),
        Route(PATH, LiveEvents(source.live, source.still_valid, marks=lambda: source.reader.marks).answer),
        *(LimitedRoute(_pattern(each.path), _route(source, each), each.method, each.most_body) for each in ENDPOINTS),
    ]


def _pattern(path: str) -> str:
    """The route pattern of a path: the id of a run may contain slashes."""
    return path.replace("{run}", "{run:path}")


def _route(source: Source, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body = await read_body(request) if endpoint.body is not None else None
        stop = Stop()
        answering = (
            _stream(source, endpoint, request, body, stop)
            if endpoint.lane == "sql"
            else source.lanes[endpoint.lane].run(_respond, source, endpoint, request, body, stop)
        )
        try:
            return await (_unless_disconnected(answering, request, stop, source.stops) if body else answering)
        except Damaged as error:
            source.on_damage(str(error))
            raise Refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))) from None
        except EngineError as error:
            if not error.passing:
                raise
            away = "a part of the store does not answer: try again when /api/health reports no missing shard"
            why = away if error.code in AWAY or error.code == BEHIND else "the store is busy"
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, 2.0)) from None

    return answer


def _respond(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Response:
    with partial_reads(endpoint.method) as missing:
        found = _answer(source, endpoint, request, body, stop)
        if isinstance(found, StoredFile):
            return _file(found, request.headers.get("range", ""))
        if not isinstance(found, Stream):
            return _with_headers(Response(encode_answer(found, missing), media_type="application/json"), missing)
        # The first piece is read before the answer begins, while it can still be an error.
        pieces = partial_stream(itertools.chain([next(found.pieces, b"")], found.pieces), missing)
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        streamed = _pieces(source.lanes["read"], pieces)
        return _with_headers(StreamingResponse(streamed, media_type=found.media_type, headers=headers), missing)


def _file(found: StoredFile, wanted: str) -> Response:
    """Respond with a file that a user uploaded: whatever it holds, a browser runs nothing of it."""
    headers = {**disposition(found.name, inline=found.inline), "Content-Security-Policy": SANDBOX}
    headers["Cache-Control"] = "private, max-age=60"
    if found.framed:
        headers |= _FRAMED
    if isinstance(found.path, RemoteFile):
        return RemoteFileResponse(found.path, wanted, found.media_type, headers)
    try:
        return StoredFileResponse(found.path, found.media_type, headers)
    except OSError:
        raise not_found(f"the file {found.name[:200]!r} was deleted") from None


def _with_headers(response: Response, missing: MissingShards) -> Response:
    response.headers.update(partial_headers(missing))
    return response


async def _stream(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Response:
    """Answer piece by piece from one thread; each thread of the pool holds one session of the engine."""
    missing = MissingShards()

    def made() -> Iterator[bytes]:
        with partial_answers(missing):
            yield from _answer(source, endpoint, request, body, stop).pieces

    pieces = source.lanes[endpoint.lane].stream(made)
    first = await anext(pieces, b"")
    streamed = _followed(first, pieces, stop, source.stops)
    return _with_headers(StreamingResponse(streamed, media_type=endpoint.media_types[0]), missing)


async def _followed(first: bytes, rest: AsyncIterator[bytes], stop: Stop, stops: set[Stop]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; its query is cancelled when the client disconnects or the hub closes."""
    stops.add(stop)
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        stops.discard(stop)
        asyncio.get_running_loop().run_in_executor(None, stop.set)


async def _unless_disconnected(
    answer: Coroutine[Any, Any, Response], request: Request, stop: Stop, stops: set[Stop]
) -> Response:
    """Wait for an answer; its query is cancelled when the client disconnects or the hub closes."""
    answering, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_disconnected(request))
    stops.add(stop)
    try:
        await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            await asyncio.to_thread(stop.set)
        return await answering
    finally:
        stops.discard(stop)
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client of a request, whose body has been read, disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Any:
    given = check(endpoint.params, request.path_params, request.query_params.multi_items(), attrs=endpoint.attrs)
    if body is not None:
        given["body"] = body.unpacked()
    access = access_of(request.scope)
    check_shared(access.run, given)
    who = access.user(request.headers.get(USER, ""))
    reader = replace(source.reader, project=access.project, only=access.run, stop=stop, who=who)
    return endpoint.answer(reader, given)


async def _pieces(workers: Workers, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await workers.run(next, pieces, None)) is not None:
        yield piece


def _each(call: Callable[[Any], None], items: Iterable[Any]) -> None:
    for item in items:
        call(item)


def mount(hub: Hub, version: str) -> list[BaseRoute]:
    """Add the JSON API to a hub: what it stores is sent to live streams, and all of it ends before the store closes."""
    limits = hub.options.limits
    topics = (hub.here, hub.elsewhere)
    live = Live(most_subscriptions=limits.streams, most_of_one=limits.client_streams, topics=topics)
    stops = set[Stop]()
    lanes: dict[Lane, Workers] = {lane: Workers(lane, **size) for lane, size in _LANES.items()}
    hub.closing.extend((live.close, lambda: _each(Stop.set, list(stops))))
    hub.ending.append(lambda: _each(Workers.close, lanes.values()))
    hub.alerting.explain_with(lambda alert: take_snapshot(hub.store.engine, alert))
    reader = Reader(
        engine=hub.store.engine,
        states=hub.states,
        home=hub.home.home,
        dashboards=hub.dashboards,
        views=hub.views,
        ingest=hub.ingest("import"),
        edits=hub.edits,
        alerting=hub.alerting,
        delete=hub.deletion.delete,
        diagnosed=hub.diagnosing.progress,
        files=hub.run_files,
        blobs=hub.blobs,
        tokens=hub.guard.tokens,
    )
    return api_routes(Source(reader, live, lanes, version, hub.note_damage, stops, hub.guard.still_valid))
