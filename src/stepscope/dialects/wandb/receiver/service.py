"""The HTTP routes for W&B clients of version 0.15 and later: GraphQL, file_stream and uploads."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stepscope.dialects.wandb.receiver import links
from stepscope.dialects.wandb.receiver.artifact_queries import ArtifactQueries
from stepscope.dialects.wandb.receiver.artifacts import Artifacts
from stepscope.dialects.wandb.receiver.client_json import read_json
from stepscope.dialects.wandb.receiver.file_stream import FileStream
from stepscope.dialects.wandb.receiver.graphql import Document, GraphQLError, Node, execute, parse
from stepscope.dialects.wandb.receiver.introspection import with_types
from stepscope.dialects.wandb.receiver.manifests import MAX_BYTES
from stepscope.dialects.wandb.receiver.query_limits import CLIENT_LEFT, ClientTurns
from stepscope.dialects.wandb.receiver.run_files import WandbRunFiles
from stepscope.dialects.wandb.receiver.run_operations import ENTITY, Caller, RunOperations
from stepscope.dialects.wandb.receiver.run_queries import RECEIVER, RunQueries
from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRuns
from stepscope.dialects.wandb.receiver.uploaded_tables import UploadedTables, is_table
from stepscope.dialects.wandb.receiver.uploads import Uploads, masking, path_in
from stepscope.extend.receiver import (
    ReceiverPorts,
    ReceiverRoute,
    Refusal,
    Refused,
    RequestHead,
    Scope,
    StoredFileResponse,
    Workers,
    access_of,
    basic_password,
    bearer,
    error_response,
    json_response,
    too_large,
    with_body,
    written,
)

_STREAM = "/files/{entity}/{project}/{run}/file_stream"
_FILE = "/files/{entity}/{project}/{run}/{path:path}"
MAX_MUTATIONS = 20
"""Mutations per request; clients send one."""


FIELDS: Mapping[str, Mapping[str, Scope]] = {
    "mutation": {
        "upsertBucket": "ingest",
        "rewindRun": "ingest",
        "notifyScriptableRunAlert": "ingest",
        "createRunFiles": "ingest",
        "markRunFilesUploaded": "ingest",
        "deleteRun": "admin",
        "createArtifact": "ingest",
        "createArtifactManifest": "ingest",
        "updateArtifactManifest": "ingest",
        "createArtifactFiles": "ingest",
        "commitArtifact": "ingest",
        "useArtifact": "ingest",
        "linkArtifact": "ingest",
        "updateArtifact": "ingest",
        "addAliases": "ingest",
        "deleteAliases": "ingest",
        "deleteArtifact": "admin",
        "upsertSweep": "ingest",
        "createAgent": "ingest",
    },
    "query": {"models": "read", "projects": "read"},
}
"""The scope of each root field of GraphQL; a query without one returns no data of runs, or only of the token's own."""


class Wandb:
    """Receives from W&B clients."""

    name = RECEIVER
    prefixes = ("/graphql", "/files/", "/sdk/otel/", "/wandb/")

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ingest = ports.ingest(self.name)
        self._workers = ports.workers
        self._readers = Workers("wandb", threads=4, waiting=128)
        """Threads for requests that wait for the store, so that neither the page nor other requests wait with them."""
        self._queries, self._turns = Workers("wandb-queries", threads=2, waiting=128), ClientTurns()
        """Threads for queries that may take long, so that clients that log do not wait for them."""
        ports.ending += [self._readers.close, self._queries.close]
        runs = TrackedRuns(ports.files, self._ingest, lambda: ports.engine)
        ports.deleting.append(runs.delete_run)
        self._links, self._artifacts = links.Links(runs), Artifacts(runs)
        ports.run_files.append(WandbRunFiles(runs, self._artifacts))
        self._artifact_queries = ArtifactQueries(self._artifacts, self._links)
        self._run_queries = RunQueries(
            runs,
            lambda: ports.engine,
            self._artifact_queries,
            self._links,
            lambda: ports.progress.after(ports.progress.written),
            ports.states,
            ports.read_back,
            ports.deletion,
        )
        self._stream = FileStream(runs, self._ingest)
        self._operations = RunOperations(runs)
        self._runs, self._uploads = runs, Uploads(runs)
        self._tables = UploadedTables(runs, self._ingest)

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes: GraphQL, file streams, files, and the client's own telemetry, which is dropped."""
        return [
            ReceiverRoute("/graphql", self._graphql, scope=("ingest", "read")),
            ReceiverRoute(_STREAM, self._file_stream),
            ReceiverRoute(_FILE, self._upload, methods=("PUT",), stream=True),
            ReceiverRoute(_FILE, self._download, methods=("GET",), scope="read"),
            ReceiverRoute(links.PATH, self._linked, methods=("GET",), scope=None),
            ReceiverRoute("/wandb/objects/{project}/{digest}", self._object, methods=("PUT",), stream=True),
            ReceiverRoute("/wandb/manifests/{project}/{artifact}", self._manifest, methods=("PUT",), stream=True),
            ReceiverRoute(f"/{ENTITY}/{{project}}/runs/{{run}}", self._page, methods=("GET",), scope=None),
            ReceiverRoute(f"/{ENTITY}/{{project}}", self._project_page, methods=("GET",), scope=None),
            ReceiverRoute("/sdk/otel/v1/{signal}", _drop, scope=None, stream=True),
        ]

    def credential(self, head: RequestHead) -> str:
        """Return the API key, which is the password; the dash that old clients require is not part of the token."""
        header = head.headers.get("authorization", "")
        return (basic_password(header) or bearer(header)).replace("-", "")

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return a JSON error in W&B's format, with Retry-After where known."""
        response = error_response(refusal)
        response.body = json.dumps({"error": refusal.message, "errors": [{"message": refusal.message}]}).encode()
        response.headers["content-length"] = str(len(response.body))
        return response

    async def _file_stream(self, request: Request) -> Response:
        access, path = access_of(request.scope), request.path_params
        process = request.headers.get("x-wandb-async-client-id", "")
        safe = await with_body(
            request,
            self._workers,
            lambda data: self._stream.take(data, path["project"], path["run"], access.project, process),
        )
        await written(safe)
        return json_response({"limits": {}})

    async def _upload(self, request: Request) -> Response:
        path = request.path_params
        self._caller(request).admit(path["project"])
        run = await self._readers.run(self._runs.find_or_make, path["project"], path["run"])
        name, folder = path["path"], run.folder / "files"
        fresh = is_table(name) and not path_in(folder, name).exists()
        await self._uploads.keep(folder, name, request.stream(), masking(name, run.about.config))
        if fresh:
            bound = access_of(request.scope).project
            safe = await self._workers.run(self._tables.take, run, bound, name, path_in(folder, name))
            if safe is not None:
                await written(safe)
        return json_response({})

    def _caller(self, request: Request) -> Caller:
        base = f"{request.url.scheme}://{request.headers.get('host', '')}"
        return Caller(access_of(request.scope), base, request.headers.get("authorization", ""))

    async def _download(self, request: Request) -> Response:
        path = request.path_params
        self._caller(request).admit(path["project"])
        return _file(path_in(self._runs.folder(path["project"], "runs", path["run"]) / "files", path["path"]))

    async def _linked(self, request: Request) -> Response:
        kind, project, *names = self._links.read(request.path_params["ticket"])
        if kind == "run":
            return _file(path_in(self._runs.folder(project, "runs", names[0]) / "files", names[1]))
        if kind == "object":
            return _file(self._artifacts.object(project, names[0]))
        return _file(self._runs.folder(project, "artifacts", names[0]) / names[1])

    async def _object(self, request: Request) -> Response:
        path = request.path_params
        self._caller(request).admit(path["project"])
        place = self._artifacts.object(path["project"], path["digest"])
        await self._uploads.keep(place.parent, place.name, request.stream(), digest=place.name)
        return json_response({})

    async def _manifest(self, request: Request) -> Response:
        path = request.path_params
        self._caller(request).admit(path["project"])
        artifact = self._artifacts.get(path["project"], path["artifact"])
        if artifact is None:
            raise Refused(Refusal(HTTPStatus.NOT_FOUND, "no such artifact"))
        name = f"manifest-{secrets.token_hex(4)}.json"
        await self._uploads.keep(self._artifacts.folder(artifact), name, _bounded(request.stream(), MAX_BYTES))
        await run_in_threadpool(self._artifacts.set_manifest, artifact, name)
        return json_response({})

    async def _page(self, request: Request) -> Response:
        """Redirect the run URL that the client prints to the run on the page."""
        known = self._runs.find(request.path_params["project"], request.path_params["run"])
        id = request.path_params["run"] if known is None else known.about.run
        return RedirectResponse(f"/#/run/{quote(id, safe='')}", HTTPStatus.FOUND)

    async def _project_page(self, request: Request) -> Response:
        """Redirect the project URL that the client prints to the project's runs on the page."""
        found = quote(f"project = {json.dumps(request.path_params['project'])}", safe="")
        return RedirectResponse(f"/#/runs?filter={found}", HTTPStatus.FOUND)

    async def _graphql(self, request: Request) -> Response:
        caller = self._caller(request)
        answer = await with_body(request, self._readers, lambda data: self._answer(data, caller))
        if not isinstance(answer, str):
            answer = await self._answer_query(request, caller, answer)
        for each in caller.waits:
            await written(each)
        return Response(answer, media_type="application/json")

    async def _answer_query(self, request: Request, caller: Caller, execute: Callable[[], str]) -> str:
        """Execute a query that may take long, one of each client at a time; it ends when its client disconnects."""
        client = caller.access.token.id if caller.access.token else request.client.host if request.client else ""
        leaving = asyncio.ensure_future(_disconnected(request))
        leaving.add_done_callback(lambda done: None if done.cancelled() else caller.cost.cancel())
        try:
            async with self._turns.turn(client):
                return await self._queries.run(execute)
        finally:
            leaving.cancel()

    def _answer(self, data: bytes, caller: Caller) -> "str | Callable[[], str]":
        """Answer a mutation or a quick query; return the function that answers any other query."""
        query, variables, name = self._read(data)
        caller = replace(caller, entity=_entity(variables))
        try:
            document = parse(query)
            operation = document.operation(name)
            if operation.kind == "mutation" and not caller.access.allows("ingest"):
                raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this token lacks the scope 'ingest'"))
            if operation.kind == "mutation" and len(operation.selections) > MAX_MUTATIONS:
                raise GraphQLError(f"one request may have {MAX_MUTATIONS} mutations")
        except GraphQLError as error:
            return self._failed(error)
        answer = partial(self._execute, document, variables, name, caller)
        quick = {"__type", "__typename", *self._operations.queries(caller)}
        is_quick = operation.kind == "mutation" or all(each.name in quick for each in operation.selections)
        return answer() if is_quick else answer

    def _failed(self, error: GraphQLError, reason: str = "unsupported GraphQL") -> str:
        self._ingest.reject(reason)
        return json.dumps({"data": None, "errors": [{"message": str(error)}]})

    def _execute(self, document: Document, variables: Mapping[str, Any], name: str | None, caller: Caller) -> str:
        roots = {
            "mutation": {
                **self._operations.mutations(caller),
                **self._run_queries.mutations(caller),
                **self._artifact_queries.mutations(caller),
            },
            "query": {
                **self._operations.queries(caller),
                **self._run_queries.queries(caller),
                **self._artifact_queries.queries(caller),
            },
        }
        try:
            caller.cost.begin()
            permitted = with_types(_permitted(roots, caller))
            return json.dumps({"data": execute(document, permitted, variables, name, caller.cost.check)})
        except GraphQLError as error:
            return self._failed(error, CLIENT_LEFT if caller.cost.cancelled else "unsupported GraphQL")

    def _read(self, data: bytes) -> tuple[str, Mapping[str, Any], str | None]:
        try:
            found = read_json(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("query"), str):
            self._ingest.reject("unreadable request")
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, 'send JSON with a GraphQL "query"'))
        variables, name = found.get("variables"), found.get("operationName")
        return found["query"], variables if isinstance(variables, dict) else {}, name if isinstance(name, str) else None


def _permitted(roots: Mapping[str, Node], caller: Caller) -> dict[str, Node]:
    """Return the root fields; one whose scope the token lacks is an error in words."""

    def refuse(name: str, scope: Scope) -> Callable[[Mapping[str, Any]], Node]:
        def resolve(given: Mapping[str, Any]) -> Node:
            raise GraphQLError(f"{name} needs a key with the scope {scope!r}, which this one lacks")

        return resolve

    lacking = {
        kind: {name: refuse(name, scope) for name, scope in fields.items() if not caller.access.allows(scope)}
        for kind, fields in FIELDS.items()
    }
    return {kind: {**fields, **lacking[kind]} for kind, fields in roots.items()}


def _entity(variables: Mapping[str, Any]) -> str:
    """Return the entity in the variables of a request."""
    found = variables.get("entity") or variables.get("entityName")
    return found if isinstance(found, str) else ENTITY


def _file(path: Path) -> Response:
    headers = {"Content-Disposition": "attachment"}  # an uploaded file is never rendered as a page of the hub
    try:
        return StoredFileResponse(path, headers=headers)
    except OSError:
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, "no such file")) from None


async def _bounded(parts: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Pass on the parts of an upload; Refused when they are too large."""
    size = 0
    async for part in parts:
        size += len(part)
        if size > most:
            raise Refused(too_large(most))
        yield part


async def _disconnected(request: Request) -> None:
    """Return when the client of a request, whose body has been read, disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _drop(request: Request) -> Response:
    """Discard the client's own telemetry as it arrives: without a token nothing is kept in memory."""
    async for _ in request.stream():
        pass
    return json_response({})
