"""The artifact endpoints: MLflow's artifact proxy, and the artifact lists of runs and models."""

from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from stepscope.dialects.mlflow.receiver import logged_models, model_registry
from stepscope.dialects.mlflow.receiver.artifact_files import ArtifactFiles, safe_path
from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, MISSING, UNSUPPORTED, refused
from stepscope.dialects.mlflow.receiver.request_fields import Fields, read_query
from stepscope.dialects.mlflow.receiver.run_table import find_run
from stepscope.dialects.mlflow.receiver.tracking import Tracking
from stepscope.dialects.mlflow.receiver.version_sources import place_of
from stepscope.extend.receiver import ReceiverRoute, Scope, access_of, json_response

_BASES = ("/api/2.0", "/ajax-api/2.0")
MAX_UPLOAD = 10 * 1024 * 1024
"""The bytes of a file that is sent to a run by MLflow's page; the artifact proxy takes larger ones."""


class ArtifactCalls:
    """Serves the artifact endpoints."""

    def __init__(self, tracking: Tracking, files: ArtifactFiles) -> None:
        self._tracking, self._files = tracking, files

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes."""
        made = [
            _route("/get-artifact", self._get_of_run),
            _route("/model-versions/get-artifact", self._get_of_version),
        ]
        for base in _BASES:
            place = f"{base}/mlflow-artifacts/artifacts"
            models = f"{base}/mlflow/logged-models/{{model_id}}/artifacts"
            made += [
                _route(place, self._list),
                _route(f"{place}/{{path:path}}", self._download),
                ReceiverRoute(f"{place}/{{path:path}}", self._upload, ("PUT",), stream=True),
                _route(f"{place}/{{path:path}}", self._delete, "DELETE", "admin"),
                _route(f"{base}/mlflow-artifacts/mpu/{{call}}/{{path:path}}", _upload_at_once, "POST", "ingest"),
                _route(f"{base}/mlflow-artifacts/presigned/{{path:path}}", _download_here),
                _route(f"{base}/mlflow/artifacts/list", self._list_of_run),
                ReceiverRoute(f"{base}/mlflow/upload-artifact", self._upload_to_run, stream=True),
                _route(f"{models}/directories", self._list_of_model),
                _route(f"{models}/files", self._get_of_model),
            ]
        return made

    async def _upload(self, request: Request) -> Response:
        path = await run_in_threadpool(self._admitted, request, request.path_params["path"])
        return await self._keep(request, path, request.stream())

    async def _upload_to_run(self, request: Request) -> Response:
        """Keep a small file of a run, which is the body of the request as it is."""
        fields = _fields(request)
        for name in ("run_uuid", "path"):
            if not fields.text(name):
                raise refused(f"Request must specify {name}.")
        path, data = safe_path(fields.text("path")), await _small_body(request)
        folder = self._files.run_folder(await run_in_threadpool(self._run_uri, request))
        if folder is None:
            raise refused("The artifacts of this run are not in the hub: send them to where they are.")
        return await self._keep(request, f"{folder}/{path}", _whole(data))

    async def _keep(self, request: Request, path: str, parts: AsyncIterator[bytes]) -> Response:
        access = access_of(request.scope)
        if not access.allows("admin"):
            await run_in_threadpool(self._files.check_unused, path, access.token.id if access.token else "")
        await self._files.keep(path, parts)
        if access.token is not None:
            await run_in_threadpool(self._files.note_token, path, access.token.id)
        return json_response({})

    def _admitted(self, request: Request, given: str) -> str:
        """Return a path of the artifact proxy; Refused unless the token's project may use it."""
        path = safe_path(given)
        self._files.admit(path, access_of(request.scope).project)
        return path

    def _download(self, request: Request) -> Response:
        return self._files.send(self._admitted(request, request.path_params["path"]))

    def _delete(self, request: Request) -> Response:
        self._files.delete(self._admitted(request, request.path_params["path"]))
        return json_response({})

    def _list(self, request: Request) -> Response:
        found = self._files.list(self._admitted(request, _fields(request).text("path")))
        return json_response({"files": found} if found else {})

    def _list_of_run(self, request: Request) -> Response:
        return self._listed(self._run_uri(request), _fields(request).text("path"))

    def _list_of_model(self, request: Request) -> Response:
        return self._listed(self._model_uri(request), _fields(request).text("artifact_directory_path"))

    def _listed(self, uri: str, given: str) -> Response:
        path, folder = safe_path(given), self._files.run_folder(uri)
        found = self._files.list(f"{folder}/{path}" if path else folder, path) if folder is not None else []
        return json_response({"root_uri": uri, "files": found} if found else {"root_uri": uri})

    def _get_of_run(self, request: Request) -> Response:
        path = safe_path(_fields(request).required("path"))
        return self._sent(path, self._run_uri(request))

    def _get_of_version(self, request: Request) -> Response:
        fields = _fields(request)
        path, project = safe_path(fields.required("path")), access_of(request.scope).project
        with self._tracking.database.read() as db:
            _, version = model_registry.find_version(db, fields.required("name"), fields.required("version"), project)
            uri = place_of(db, version.location, project)
        if (folder := self._files.run_folder(uri)) is None:
            raise refused(f"The files of this model version are not in the hub, but at {uri}")
        self._files.admit(folder, project)
        return self._files.send(f"{folder}/{path}")

    def _get_of_model(self, request: Request) -> Response:
        given = _fields(request).text("artifact_file_path")
        if not given:
            raise refused('Request must include the "artifact_file_path" query parameter.', BAD_REQUEST)
        return self._sent(safe_path(given), self._model_uri(request))

    def _sent(self, path: str, uri: str) -> Response:
        folder = self._files.run_folder(uri)
        if folder is None:
            raise refused(f"No such artifact: '{path}'", MISSING)
        return self._files.send(f"{folder}/{path}")

    def _run_uri(self, request: Request) -> str:
        with self._tracking.database.read() as db:
            return find_run(db, _fields(request).run(), access_of(request.scope).project).artifact_uri

    def _model_uri(self, request: Request) -> str:
        with self._tracking.database.read() as db:
            project = access_of(request.scope).project
            return logged_models.find(db, request.path_params["model_id"], project).artifact_uri


async def _small_body(request: Request) -> bytes:
    """Return the body of a request; Refused when it is empty or large."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > MAX_UPLOAD:
            raise refused("Artifact size is too large. Max size is 10MB.")
    if not found:
        raise refused("Request must specify data.")
    return bytes(found)


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _upload_at_once(request: Request) -> Response:
    """Refuse an upload in parts with the words that make clients send the file in one request."""
    raise refused("Multipart upload is not supported for the current artifact repository", UNSUPPORTED)


def _download_here(request: Request) -> Response:
    """Refuse to name another place of a file, which makes clients get it from the hub."""
    raise refused("Multipart download is not supported for the current artifact repository", UNSUPPORTED)


def _route(
    path: str, answer: Callable[[Request], Response], method: str = "GET", scope: Scope = "read"
) -> ReceiverRoute:
    """Return a route whose requests are answered on a thread."""

    async def answered(request: Request) -> Response:
        return await run_in_threadpool(answer, request)

    return ReceiverRoute(path, answered, (method,), scope)


def _fields(request: Request) -> Fields:
    return Fields(read_query(request.url.query), query=True)
