"""The receiver of MLflow's REST API: routes, authentication, responses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from stepscope.dialects.mlflow.dialect import DIALECT
from stepscope.dialects.mlflow.receiver import errors as mlflow_errors
from stepscope.dialects.mlflow.receiver import (
    experiment_calls,
    logged_models,
    metric_calls,
    registry_calls,
    run_calls,
    run_inputs,
    trace_calls,
)
from stepscope.dialects.mlflow.receiver.artifact_calls import ArtifactCalls
from stepscope.dialects.mlflow.receiver.artifact_files import ArtifactFiles, delete_run
from stepscope.dialects.mlflow.receiver.experiments import create_default
from stepscope.dialects.mlflow.receiver.request_fields import Fields, read_json, read_query
from stepscope.dialects.mlflow.receiver.run_files import MlflowRunFiles
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.extend.receiver import (
    EngineError,
    ReceiverPorts,
    ReceiverRoute,
    Refusal,
    RequestHead,
    Scope,
    Workers,
    access_of,
    basic_password,
    bearer,
    json_response,
    pauses,
    with_body,
)
from stepscope.model.errors import Retry

Answer = Callable[[Tracking, Call], Reply]
SpansAnswer = Callable[[Tracking, Call], Reply | None]
MLFLOW_VERSION = "3.17.2"
"""The version of MLflow's server that the responses are compared with."""
STORE_SECONDS = 30.0
"""How long a read waits for the client's own writes to be stored, before it fails with 503."""

_BASES = ("/api/2.0/mlflow", "/ajax-api/2.0/mlflow")
_NEWER_BASES = ("/api/3.0/mlflow", "/ajax-api/3.0/mlflow")
SPANS_SECONDS = 3.0
"""How long a read of a trace waits for spans that another hub has taken."""
_READS: dict[str, tuple[str, Answer]] = {
    "/experiments/get": ("GET", experiment_calls.get),
    "/experiments/get-by-name": ("GET", experiment_calls.get_by_name),
    "/experiments/search": ("GET POST", experiment_calls.search),
    "/runs/get": ("GET", run_calls.get),
    "/runs/search": ("POST", run_calls.search),
    "/logged-models/{model_id}": ("GET", logged_models.get),
    "/logged-models/search": ("POST", logged_models.search),
    "/registered-models/get": ("GET", registry_calls.get_model),
    "/registered-models/search": ("GET", registry_calls.search_models_call),
    "/registered-models/get-latest-versions": ("GET POST", registry_calls.get_latest_versions),
    "/registered-models/alias": ("GET", registry_calls.get_by_alias),
    "/model-versions/get": ("GET", registry_calls.get_version),
    "/model-versions/get-download-uri": ("GET", registry_calls.get_download_uri),
    "/model-versions/search": ("GET", registry_calls.search_versions_call),
}
_HISTORIES: dict[str, Answer] = {
    "/metrics/get-history": metric_calls.get_history,
    "/metrics/get-history-bulk": metric_calls.get_history_bulk,
    "/metrics/get-history-bulk-interval": metric_calls.get_history_bulk_interval,
}
_WRITES: dict[str, Answer] = {
    "/experiments/create": experiment_calls.create,
    "/experiments/update": experiment_calls.update,
    "/experiments/delete": experiment_calls.delete,
    "/experiments/restore": experiment_calls.restore,
    "/experiments/set-experiment-tag": experiment_calls.set_tag,
    "/experiments/delete-experiment-tag": experiment_calls.delete_tag,
    "/runs/create": run_calls.create,
    "/runs/update": run_calls.update,
    "/runs/delete": run_calls.delete,
    "/runs/restore": run_calls.restore,
    "/runs/log-metric": run_calls.log_metric,
    "/runs/log-batch": run_calls.log_batch,
    "/runs/log-parameter": run_calls.log_parameter,
    "/runs/set-tag": run_calls.set_tag,
    "/runs/delete-tag": run_calls.delete_tag,
    "/runs/log-inputs": run_inputs.log_inputs,
    "/runs/outputs": run_inputs.log_outputs,
    "/runs/log-model": run_calls.log_model,
    "/logged-models": logged_models.create,
    "/logged-models/{model_id}/params": logged_models.log_params,
    "/registered-models/create": registry_calls.create_model,
    "/registered-models/rename": registry_calls.rename_model,
    "/registered-models/set-tag": registry_calls.set_model_tag,
    "/registered-models/alias": registry_calls.set_alias,
    "/model-versions/create": registry_calls.create_version,
    "/model-versions/transition-stage": registry_calls.transition_stage,
    "/model-versions/set-tag": registry_calls.set_version_tag,
}
_MODEL = "/logged-models/{model_id}"
_CHANGES: list[tuple[str, str, Answer]] = [
    ("PATCH", _MODEL, logged_models.finish),
    ("DELETE", _MODEL, logged_models.delete),
    ("PATCH", f"{_MODEL}/tags", logged_models.set_tags),
    ("DELETE", f"{_MODEL}/tags/{{key:path}}", logged_models.delete_tag),
    ("PATCH", "/registered-models/update", registry_calls.update_model),
    ("DELETE", "/registered-models/delete", registry_calls.delete_model),
    ("DELETE", "/registered-models/delete-tag", registry_calls.delete_model_tag),
    ("DELETE", "/registered-models/alias", registry_calls.delete_alias),
    ("PATCH", "/model-versions/update", registry_calls.update_version),
    ("DELETE", "/model-versions/delete", registry_calls.delete_version),
    ("DELETE", "/model-versions/delete-tag", registry_calls.delete_version_tag),
]


_TRACE_READS: dict[str, tuple[str, Answer]] = {
    "/traces/batchGetInfos": ("POST", trace_calls.batch_get_infos),
    "/traces/search": ("POST", trace_calls.search),
    "/traces/{trace_id}": ("GET", trace_calls.get_info),
}
_TRACE_TAGS = "/traces/{trace_id}/tags"
_TRACE_CHANGES: list[tuple[str, str, Answer]] = [
    ("POST", "/traces/delete-traces", trace_calls.delete),
    ("POST", "/traces/link-to-run", trace_calls.link_to_run),
    ("PATCH", _TRACE_TAGS, trace_calls.set_tag),
    ("DELETE", _TRACE_TAGS, trace_calls.delete_tag),
]
"""Calls that clients send below both versions of the API."""

_DELETIONS = frozenset(
    {
        experiment_calls.delete,
        experiment_calls.restore,
        run_calls.delete,
        run_calls.restore,
        logged_models.delete,
        registry_calls.delete_model,
        registry_calls.delete_version,
        trace_calls.delete,
    }
)
"""What takes a run, an experiment, a model or a trace away from others, or back."""


def _scope(call: Answer) -> Scope:
    return "admin" if call in _DELETIONS else "ingest"


class Mlflow:
    """Serves MLflow's clients; each MLflow run is a run of the hub."""

    name = "mlflow"
    prefixes = ("/api/2.0/", "/api/3.0/", "/ajax-api/", "/get-artifact")

    def __init__(self, ports: ReceiverPorts) -> None:
        self._folder = ports.files / self.name
        self._workers = ports.workers
        self._readers = Workers("mlflow", threads=2, waiting=128)
        self._read_back = ports.read_back
        database = TrackingDatabase(self._folder / "tracking.db")
        self._tracking = Tracking(database, ports.ingest(self.name), lambda: ports.engine, ports.progress)
        files = ArtifactFiles(self._folder / "artifacts", database)
        self._artifacts = ArtifactCalls(self._tracking, files)
        ports.deleting.append(lambda run, before: delete_run(database, files, run))
        ports.run_files.append(MlflowRunFiles(files, database))
        with database.write() as db:
            create_default(db, self._tracking.now)
        ports.links.add(DIALECT.headers, self._tracking.find_link)
        ports.ending += [self._readers.close, database.close]

    def routes(self) -> list[ReceiverRoute]:
        """Return all routes, under the API prefix and under the one of MLflow's UI."""
        made = [
            ReceiverRoute("/api/3.0/mlflow/server-info", _server_info, ("GET",), "read"),
            ReceiverRoute("/health", _health, ("GET",), None),
            ReceiverRoute("/version", _version, ("GET",), None),
        ]
        for base in _NEWER_BASES:
            made += [
                self._route(f"{base}/traces", ("POST",), "ingest", self._write(trace_calls.end_trace)),
                self._route(f"{base}/traces/get", ("GET",), "read", self._read_spans(trace_calls.get_trace)),
                self._route(f"{base}/traces/batchGet", ("GET",), "read", self._read_spans(trace_calls.batch_get)),
            ]
            made += [
                self._route(base + path, (method,), "read", self._read(call))
                for path, (method, call) in _TRACE_READS.items()
            ]
        for base in (*_BASES, *_NEWER_BASES):
            made += [
                self._route(base + path, (method,), _scope(call), self._write(call))
                for method, path, call in _TRACE_CHANGES
            ]
        for base in _BASES:
            made += [
                self._route(base + path, (method,), _scope(call), self._write(call))
                for method, path, call in (*(("POST", *each) for each in _WRITES.items()), *_CHANGES)
            ]
            made += [
                self._route(base + path, tuple(methods.split()), "read", self._read(call))
                for path, (methods, call) in _READS.items()
            ]
            made += [
                self._route(base + path, ("GET",), "read", self._read(call, stored=True))
                for path, call in _HISTORIES.items()
            ]
        return made + self._artifacts.routes()

    @staticmethod
    def _route(
        path: str, methods: tuple[str, ...], scope: Scope, answer: Callable[[Request], Awaitable[Response]]
    ) -> ReceiverRoute:
        return ReceiverRoute(path, answer, methods, scope)

    def credential(self, head: RequestHead) -> str:
        """Return the bearer token, or the password of basic authentication."""
        header = head.headers.get("authorization", "")
        return bearer(header) or basic_password(header)

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return MLflow's error code and message."""
        return mlflow_errors.refusal_response(refusal, head.path)

    def _write(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def write(request: Request) -> Response:
            reply = await with_body(request, self._workers, lambda data: answer(self._tracking, _call(request, data)))
            await _all(reply.safe)
            if reply.run:
                self._tracking.note_safe(reply.run)
            return json_response(reply.body)

        return write

    def _read(self, answer: Answer, *, stored: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            if stored:
                await self._wait_stored(metric_calls.runs_of(Fields(read_query(request.url.query), query=True)))

            def respond(data: bytes) -> Response:
                return json_response(answer(self._tracking, _call(request, data)).body)

            return await with_body(request, self._readers, respond)

        return read

    def _read_spans(self, answer: SpansAnswer) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            await self._wait_stored((), everything=True)
            call = _call(request, b"")
            pause, until = pauses(), time.monotonic() + SPANS_SECONDS
            try:
                while (reply := await self._readers.run(answer, self._tracking, call)) is None:
                    if time.monotonic() > until:
                        raise trace_calls.incomplete(call)
                    await asyncio.sleep(next(pause))
            except EngineError as error:
                raise Retry(f"the store is failing: {error}", after=5.0) from error
            return json_response(reply.body)

        return read

    async def _wait_stored(self, runs: Sequence[str], *, everything: bool = False) -> None:
        """Wait until the acknowledged records of some runs can be read from the store; Retry after a timeout."""
        tracking = self._tracking
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await asyncio.wrap_future(tracking.all_stored() if everything else tracking.stored(runs))
                pause = pauses()
                while not await self._readers.run(self._read_back.is_complete, self.name, runs):
                    await asyncio.sleep(next(pause))
        except TimeoutError:
            self._tracking.stop_waiting()
            raise Retry("the store is behind: the values are safe and can be read later", after=5.0) from None
        except EngineError as error:
            raise Retry(f"the store is failing: {error}", after=5.0) from error


def _call(request: Request, data: bytes) -> Call:
    query = request.method in ("GET", "DELETE") and bool(request.url.query)
    fields = Fields(read_query(request.url.query), query=True) if query else Fields(read_json(data))
    return Call(fields, request.path_params, access_of(request.scope).project)


async def _all(futures: Sequence["Future[None]"]) -> None:
    for future in futures:
        await asyncio.shield(asyncio.wrap_future(future))  # a client that disconnects cancels only its own wait


async def _health(request: Request) -> Response:
    """Answer health checks of containers and load balancers."""
    return PlainTextResponse("OK")


async def _version(request: Request) -> Response:
    """Return the MLflow version of the API."""
    return PlainTextResponse(MLFLOW_VERSION)


async def _server_info(request: Request) -> Response:
    """Return the optional server features: none."""
    features = ("workspaces", "trace_archival", "multipart_uploads", "multipart_downloads")
    return json_response({"store_type": "SqlStore", **{f"{name}_enabled": False for name in features}})
