"""The JSON API on the web framework: requests in, endpoints asked on a few threads, answers out."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from stepscope.hub.alerting.service import Alerting
from stepscope.hub.deletion import Deleted
from stepscope.hub.live import Live
from stepscope.hub.questions import params
from stepscope.hub.questions.alert_snapshot import take as take_snapshot
from stepscope.hub.questions.endpoint import Endpoint, Lane, Reader, Stream
from stepscope.hub.questions.live_events import PATH, Watching, describe
from stepscope.hub.questions.openapi import ENDPOINTS, document
from stepscope.hub.receivers.bodies import Body, read_body
from stepscope.hub.receivers.ingest import Ingest
from stepscope.hub.refusals import Refusal, Refused, json_response
from stepscope.hub.run_states import RunStates
from stepscope.hub.security.guard import Access
from stepscope.hub.security.middleware import access_of
from stepscope.hub.service import Hub
from stepscope.hub.store.engine import Damaged, Engine, EngineError, Stop
from stepscope.hub.store.run_catalog import RunRow
from stepscope.hub.threads import Workers
from stepscope.journal.run_edits import Edits

USER = "x-stepscope-user"
"""The header in which a client says who uses it, for the record of an edit; a token's name counts more."""
_LONGEST_USER = 100


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
    """Where answers come from: the engine, how runs fare, what is live, and the threads that read."""

    engine: Engine
    states: RunStates
    live: Live
    lanes: Mapping[Lane, Workers]
    version: str
    home: Path | None = None
    entry: Ingest | None = None
    edits: Edits | None = None
    alerting: Alerting | None = None
    delete: Callable[[RunRow, str], Deleted] | None = None
    diagnosed: Callable[[str], float] = lambda run: 1.0
    """Tells the share of a run's records that is diagnosed."""
    hurt: Callable[[str], None] = lambda said: None
    """Told what is damaged when a question comes upon it."""
    stops: set[Stop] = field(default_factory=set)
    """Ends the queries that are under way."""
    still_valid: Callable[[Access], bool] = lambda access: True
    """Tells whether who began to watch still may."""


def api_routes(source: Source) -> list[BaseRoute]:
    """Make the routes of the JSON API."""
    described = document(ENDPOINTS, source.version, describe())

    async def openapi(request: Request) -> Response:
        return json_response(described)

    return [
        Route("/api/openapi.json", openapi),
        Route(PATH, Watching(source.live, source.still_valid).answer),
        *(Route(_pattern(each.path), _route(source, each), methods=[each.method]) for each in ENDPOINTS),
    ]


def _pattern(path: str) -> str:
    """A run's id may hold slashes."""
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
            return await (_unless_left(answering, request, stop, source.stops) if body else answering)
        except Damaged as error:
            source.hurt(str(error))
            raise Refused(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))) from None
        except EngineError as error:
            if not error.passing:
                raise
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the store is busy", 2.0)) from None

    return answer


def _respond(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Response:
    found = _answer(source, endpoint, request, body, stop)
    if isinstance(found, Stream):
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        # The first piece is read before the answer begins, while it can still be an error.
        pieces = itertools.chain([next(found.pieces, b"")], found.pieces)
        streamed = _pieces(source.lanes["read"], pieces)
        return StreamingResponse(streamed, media_type=found.media_type, headers=headers)
    return Response(msgspec.json.encode(found), media_type="application/json")


async def _stream(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Response:
    """Answer piece by piece from one thread, which holds a session of the engine: so many threads, so many sessions."""
    pieces = source.lanes[endpoint.lane].stream(lambda: _answer(source, endpoint, request, body, stop).pieces)
    first = await anext(pieces, b"")
    return StreamingResponse(_followed(first, pieces, stop, source.stops), media_type=endpoint.media_types[0])


async def _followed(first: bytes, rest: AsyncIterator[bytes], stop: Stop, stops: set[Stop]) -> AsyncIterator[bytes]:
    """Yield an answer that has begun; its query is ended when the client leaves, or when the hub closes."""
    stops.add(stop)
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        stops.discard(stop)
        asyncio.get_running_loop().run_in_executor(None, stop.set)


async def _unless_left(
    answer: Coroutine[Any, Any, Response], request: Request, stop: Stop, stops: set[Stop]
) -> Response:
    """Wait for an answer; the query behind it is ended when its client leaves, or when the hub closes."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_left(request))
    stops.add(stop)
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            await asyncio.to_thread(stop.set)
        return await answering
    finally:
        stops.discard(stop)
        leaving.cancel()


async def _left(request: Request) -> None:
    """Return when the client of a request, whose body is read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answer(source: Source, endpoint: Endpoint, request: Request, body: Body | None, stop: Stop) -> Any:
    given = params.check(endpoint.params, request.path_params, request.query_params.multi_items(), attrs=endpoint.attrs)
    if body is not None:
        given["body"] = body.unpacked()
    access = access_of(request.scope)
    reader = Reader(
        *(source.engine, source.states, access.project, source.home, source.entry, stop),
        edits=source.edits,
        alerting=source.alerting,
        delete=source.delete,
        diagnosed=source.diagnosed,
        who=_who(access, request.headers.get(USER, "")),
    )
    return endpoint.answer(reader, given)


def _who(access: Access, said: str) -> str:
    """Who asks: a token says it, and where none is needed the client."""
    if access.token is not None:
        return access.token.name or f"token {access.token.id}"
    return said[:_LONGEST_USER].strip() or "local"


async def _pieces(workers: Workers, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await workers.run(next, pieces, None)) is not None:
        yield piece


def _each(call: Callable[[Any], None], things: Iterable[Any]) -> None:
    for thing in things:
        call(thing)


def mount(hub: Hub, version: str) -> list[BaseRoute]:
    """Put the JSON API on a hub: what it stores goes to those who watch, and all ends before the store closes."""
    limits = hub.options.limits
    live, stops = Live(most_watchers=limits.streams, most_of_one=limits.client_streams), set[Stop]()
    lanes: dict[Lane, Workers] = {lane: Workers(lane, **size) for lane, size in _LANES.items()}
    hub.pump.listeners.append(live.take)
    hub.closing += (live.close, lambda: _each(Stop.set, list(stops)))
    hub.ending.append(lambda: _each(Workers.close, lanes.values()))
    hub.larger_bodies |= {each.path: each.most_body for each in ENDPOINTS if each.most_body != limits.small_body}
    home, entry = hub.home.home, hub.entry("import")
    hub.alerting.snapshot = lambda alert: take_snapshot(hub.store.engine, alert)
    return api_routes(
        Source(
            *(hub.store.engine, hub.states, live, lanes, version),
            home=home,
            entry=entry,
            edits=hub.edits,
            alerting=hub.alerting,
            delete=hub.delete_run,
            diagnosed=hub.diagnosing.progress,
            hurt=hub.note_damage,
            stops=stops,
            still_valid=hub.guard.still_valid,
        )
    )
