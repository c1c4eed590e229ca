"""Weights & Biases: GraphQL, file_stream and uploads, as its clients of version 0.15 and later send them."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from stepscope.hub.receivers.bodies import read_body, with_body
from stepscope.hub.receivers.receiver import ReceiverPorts, ReceiverRoute
from stepscope.hub.receivers.wandb.file_stream import FileStream
from stepscope.hub.receivers.wandb.graphql import GraphQLError, execute, parse
from stepscope.hub.receivers.wandb.operations import Caller, RunOperations
from stepscope.hub.receivers.wandb.tracked_runs import TrackedRuns
from stepscope.hub.receivers.wandb.uploads import Uploads, masking
from stepscope.hub.refusals import Refusal, Refused, error_response, json_response
from stepscope.hub.security.guard import Access, RequestHead, basic_password, bearer
from stepscope.hub.security.middleware import access_of

_STREAM = "/files/{entity}/{project}/{run}/file_stream"
_FILE = "/files/{entity}/{project}/{run}/{path:path}"


class Wandb:
    """The receiver of W&B clients."""

    name = "wandb"
    prefixes = ("/graphql", "/files/", "/sdk/otel/")

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ingest = ports.ingest(self.name)
        self._workers = ports.workers
        runs = TrackedRuns(ports.files, self._ingest, lambda: ports.engine)
        self._stream = FileStream(runs, self._ingest)
        self._operations = RunOperations(runs)
        self._runs, self._uploads = runs, Uploads(runs)

    def routes(self) -> list[ReceiverRoute]:
        """GraphQL, the streams of runs, and the client's telemetry about itself, which is dropped."""
        return [
            ReceiverRoute("/graphql", self._graphql, scope=("ingest", "read")),
            ReceiverRoute(_STREAM, self._file_stream),
            ReceiverRoute(_FILE, self._upload, methods=("PUT",), stream=True),
            ReceiverRoute("/sdk/otel/v1/{signal}", _drop, scope=None),
        ]

    def credential(self, head: RequestHead) -> str:
        """The API key, which is the password; a dash that old clients ask for is not part of a token."""
        header = head.headers.get("authorization", "")
        return (basic_password(header) or bearer(header)).replace("-", "")

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Write an error as W&B's clients read it, with when to retry."""
        response = error_response(refusal)
        response.body = json.dumps({"error": refusal.message, "errors": [{"message": refusal.message}]}).encode()
        response.headers["content-length"] = str(len(response.body))
        return response

    async def _file_stream(self, request: Request) -> Response:
        access, path = access_of(request.scope), request.path_params
        safe = await with_body(
            request,
            self._workers,
            lambda data: self._stream.take(data, path["project"], path["run"], access.project),
        )
        await asyncio.shield(asyncio.wrap_future(safe))
        return json_response({"limits": {}})

    async def _upload(self, request: Request) -> Response:
        path = request.path_params
        self._admit(access_of(request.scope), path["project"])
        run = await run_in_threadpool(self._runs.find_or_make, path["project"], path["run"])
        mask = masking(path["path"], run.about.config)
        await self._uploads.keep(run.folder / "files", path["path"], request.stream(), mask)
        return json_response({})

    def _admit(self, access: Access, project: str) -> None:
        if access.project not in (None, project):
            text = f"this token is for the project {access.project!r}, not {project!r}"
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, text))

    async def _graphql(self, request: Request) -> Response:
        base = f"{request.url.scheme}://{request.headers.get('host', '')}"
        caller = Caller(access_of(request.scope), base, request.headers.get("authorization", ""))
        body = await read_body(request)
        answer = await run_in_threadpool(lambda: self._execute(body.unpacked(), caller))
        for each in caller.waits:
            await asyncio.shield(asyncio.wrap_future(each))
        return Response(json.dumps(answer), media_type="application/json")

    def _execute(self, data: bytes, caller: Caller) -> dict[str, Any]:
        query, variables, name = self._read(data)
        roots = {"mutation": self._operations.mutations(caller), "query": self._operations.queries(caller)}
        try:
            document = parse(query)
            if document.operation(name).kind == "mutation" and not caller.access.allows("ingest"):
                raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this token lacks the scope 'ingest'"))
            return {"data": execute(document, roots, variables, name)}
        except GraphQLError as error:
            self._ingest.reject("GraphQL that cannot be answered")
            return {"data": None, "errors": [{"message": str(error)}]}

    def _read(self, data: bytes) -> tuple[str, Mapping[str, Any], str | None]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("query"), str):
            self._ingest.reject("unreadable request")
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, 'send JSON with a GraphQL "query"'))
        variables, name = found.get("variables"), found.get("operationName")
        return found["query"], variables if isinstance(variables, dict) else {}, name if isinstance(name, str) else None


async def _drop(request: Request) -> Response:
    """Read what a client says of itself, and keep nothing of it."""
    await read_body(request)
    return json_response({})
