"""The artifact endpoints: MLflow's artifact proxy, and the artifact lists of runs and models."""

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from stepscope.dialects.mlflow.receiver import logged_models
from stepscope.dialects.mlflow.receiver.artifact_files import ArtifactFiles, safe_path
from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, MISSING, refused
from stepscope.dialects.mlflow.receiver.request_fields import Fields, read_query
from stepscope.dialects.mlflow.receiver.run_table import find_run
from stepscope.dialects.mlflow.receiver.tracking import Tracking
from stepscope.extend.receiver import ReceiverRoute, access_of, json_response

_BASES = ("/api/2.0", "/ajax-api/2.0")


class ArtifactCalls:
    """Serves the artifact endpoints."""

    def __init__(self, tracking: Tracking, files: ArtifactFiles) -> None:
        self._tracking, self._files = tracking, files

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes."""
        made = [ReceiverRoute("/get-artifact", self._get_of_run, ("GET",), "read")]
        for base in _BASES:
            place = f"{base}/mlflow-artifacts/artifacts"
            models = f"{base}/mlflow/logged-models/{{model_id}}/artifacts"
            made += [
                ReceiverRoute(place, self._list, ("GET",), "read"),
                ReceiverRoute(f"{place}/{{path:path}}", self._download, ("GET",), "read"),
                ReceiverRoute(f"{place}/{{path:path}}", self._upload, ("PUT",), stream=True),
                ReceiverRoute(f"{place}/{{path:path}}", self._delete, ("DELETE",), "admin"),
                ReceiverRoute(f"{base}/mlflow/artifacts/list", self._list_of_run, ("GET",), "read"),
                ReceiverRoute(f"{models}/directories", self._list_of_model, ("GET",), "read"),
                ReceiverRoute(f"{models}/files", self._get_of_model, ("GET",), "read"),
            ]
        return made

    async def _upload(self, request: Request) -> Response:
        path = _path(request)
        access = access_of(request.scope)
        await run_in_threadpool(self._files.admit, path, access.project)
        if not access.allows("admin"):
            await run_in_threadpool(self._files.check_unused, path, access.token.id if access.token else "")
        await self._files.keep(path, request.stream())
        if access.token is not None:
            await run_in_threadpool(self._files.note_token, path, access.token.id)
        return json_response({})

    async def _download(self, request: Request) -> Response:
        return await self._with_path(request, self._files.send)

    async def _delete(self, request: Request) -> Response:
        def delete(path: str) -> Response:
            self._files.delete(path)
            return json_response({})

        return await self._with_path(request, delete)

    async def _with_path(self, request: Request, work: Callable[[str], Response]) -> Response:
        def admitted() -> Response:
            path = _path(request)
            self._files.admit(path, access_of(request.scope).project)
            return work(path)

        return await run_in_threadpool(admitted)

    async def _list(self, request: Request) -> Response:
        def listed() -> Response:
            path = safe_path(_fields(request).text("path"))
            self._files.admit(path, access_of(request.scope).project)
            found = self._files.list(path)
            return json_response({"files": found} if found else {})

        return await run_in_threadpool(listed)

    async def _list_of_run(self, request: Request) -> Response:
        return await run_in_threadpool(lambda: self._listed(request, self._run_uri(request), "path"))

    async def _list_of_model(self, request: Request) -> Response:
        return await run_in_threadpool(
            lambda: self._listed(request, self._model_uri(request), "artifact_directory_path")
        )

    def _model_uri(self, request: Request) -> str:
        with self._tracking.database.read() as db:
            return str(logged_models.find(db, request.path_params["model_id"], access_of(request.scope).project)[3])

    async def _get_of_model(self, request: Request) -> Response:
        def sent() -> Response:
            given = _fields(request).text("artifact_file_path")
            if not given:
                raise refused('Request must include the "artifact_file_path" query parameter.', BAD_REQUEST)
            return self._sent(safe_path(given), self._model_uri(request))

        return await run_in_threadpool(sent)

    def _sent(self, path: str, uri: str) -> Response:
        folder = self._files.run_folder(uri)
        if folder is None:
            raise refused(f"No such artifact: '{path}'", MISSING)
        return self._files.send(f"{folder}/{path}")

    def _listed(self, request: Request, uri: str, name: str) -> Response:
        path = safe_path(_fields(request).text(name))
        folder = self._files.run_folder(uri)
        found = self._files.list(f"{folder}/{path}" if path else folder, path) if folder is not None else []
        return json_response({"root_uri": uri, "files": found} if found else {"root_uri": uri})

    def _run_uri(self, request: Request) -> str:
        run = _fields(request).run()
        with self._tracking.database.read() as db:
            return find_run(db, run, access_of(request.scope).project).artifact_uri

    async def _get_of_run(self, request: Request) -> Response:
        def sent() -> Response:
            path = safe_path(_fields(request).text("path", required=True))
            return self._sent(path, self._run_uri(request))

        return await run_in_threadpool(sent)


def _path(request: Request) -> str:
    return safe_path(request.path_params["path"])


def _fields(request: Request) -> Fields:
    return Fields(read_query(request.url.query), query=True)
