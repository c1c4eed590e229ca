"""The JSON API on the web framework: requests in, endpoints asked on a few threads, answers out."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from stepscope.hub.answers import error_response, json_response
from stepscope.hub.api import params
from stepscope.hub.api.endpoint import Endpoint, Reader, Stream
from stepscope.hub.api.openapi import document
from stepscope.hub.api.table import ENDPOINTS
from stepscope.hub.api.watching import PATH, Watching, describe
from stepscope.hub.live import Live
from stepscope.hub.receivers.body import read_body
from stepscope.hub.receivers.entry import Entry
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.run_states import RunStates
from stepscope.hub.security.gate import access_of
from stepscope.hub.service import Hub
from stepscope.hub.store.engine import Damaged, Engine, EngineError

READERS = 4


@dataclass(frozen=True, slots=True)
class Source:
    """Where answers come from: the engine, how runs fare, what is live, and the threads that read."""

    engine: Engine
    states: RunStates
    live: Live
    pool: ThreadPoolExecutor
    version: str
    home: Path | None = None
    entry: Entry | None = None
    hurt: Callable[[str], None] = lambda said: None
    """Told what is damaged when a question comes upon it."""


def api_routes(source: Source) -> list[BaseRoute]:
    """Make the routes of the JSON API."""
    described = document(ENDPOINTS, source.version, describe())

    async def openapi(request: Request) -> Response:
        return json_response(described)

    return [
        Route("/api/openapi.json", openapi),
        Route(PATH, Watching(source.live).answer),
        *(Route(_pattern(each.path), _route(source, each), methods=[each.method]) for each in ENDPOINTS),
    ]


def _pattern(path: str) -> str:
    """A run's id may hold slashes."""
    return path.replace("{run}", "{run:path}")


def _route(source: Source, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        try:
            wanted = endpoint.body is not None
            body = await read_body(request, endpoint.most_body, source.pool) if wanted else b""
            return await loop.run_in_executor(source.pool, _answer, source, endpoint, request, body)
        except Refused as refused:
            return error_response(refused.refusal)
        except Damaged as error:
            source.hurt(str(error))
            return error_response(Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)))
        except EngineError as error:
            if not error.passing:
                raise
            return error_response(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the store is busy", 2.0))

    return answer


def _answer(source: Source, endpoint: Endpoint, request: Request, body: bytes) -> Response:
    given = params.check(endpoint.params, request.path_params, request.query_params.multi_items(), attrs=endpoint.attrs)
    if endpoint.body is not None:
        given["body"] = body
    project = access_of(request.scope).project
    reader = Reader(source.engine, source.states, project, source.home, source.entry)
    found = endpoint.answer(reader, given)
    if isinstance(found, Stream):
        headers = {"Content-Disposition": f'attachment; filename="{found.name}"'}
        # The first piece is read before the answer begins, while it can still be an error.
        pieces = itertools.chain([next(found.pieces, b"")], found.pieces)
        return StreamingResponse(_pieces(source.pool, pieces), media_type=found.media_type, headers=headers)
    return Response(msgspec.json.encode(found), media_type="application/json")


async def _pieces(pool: ThreadPoolExecutor, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(pool, next, pieces, None)) is not None:
        yield piece


def mount(hub: Hub, version: str) -> list[BaseRoute]:
    """Put the JSON API on a hub: what it stores goes to those who watch, and all ends before the store closes."""
    live, pool = Live(), ThreadPoolExecutor(READERS, "stepscope-read")
    hub.pump.listeners.append(live.take)
    hub.closing.append(live.close)
    hub.ending.append(lambda: pool.shutdown(cancel_futures=True))
    home, entry = hub.home.home, hub.entry("import")
    return api_routes(
        Source(hub.store.engine, hub.states, live, pool, version, home=home, entry=entry, hurt=hub.note_damage)
    )
