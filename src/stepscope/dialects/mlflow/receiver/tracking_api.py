"""The receiver of MLflow's REST API: routes, authentication, responses."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

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
    run_search,
    trace_calls,
)
from stepscope.dialects.mlflow.receiver.artifact_calls import ArtifactCalls
from stepscope.dialects.mlflow.receiver.artifact_files import ArtifactFiles, MlflowRunFiles, delete_run
from stepscope.dialects.mlflow.receiver.experiments import ACTIVE, DELETED, create_default
from stepscope.dialects.mlflow.receiver.request_fields import Fields, read_json, read_query
from stepscope.dialects.mlflow.receiver.tracking import Body, Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.tracking_database import TrackingDatabase
from stepscope.dialects.mlflow.receiver.tracking_rows import MODEL_PARAMS, MODEL_TAGS
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
    written,
)
from stepscope.model.errors import Retry

Answer = Callable[[Tracking, Call], Reply]
DatabaseAnswer = Callable[[sqlite3.Connection, Call], Body | None]
SpansAnswer = Callable[[Tracking, Call], Reply | None]
MLFLOW_VERSION = "3.17.2"
"""The version of MLflow's server that the responses are compared with."""
STORE_SECONDS = 30.0
"""How long a read waits for the client's own writes to be stored, before it fails with 503."""
SPANS_SECONDS = 3.0
"""How long a read of a trace waits for spans that another hub has taken."""

_BASES = ("/api/2.0/mlflow", "/ajax-api/2.0/mlflow")
_NEWER_BASES = ("/api/3.0/mlflow", "/ajax-api/3.0/mlflow")
_ENDPOINTS: list[tuple[str, str, Scope, Answer]] = [
    ("POST", "/runs/create", "ingest", run_calls.create),
    ("POST", "/runs/update", "ingest", run_calls.update),
    ("POST", "/runs/delete", "admin", partial(run_calls.move, DELETED)),
    ("POST", "/runs/restore", "admin", partial(run_calls.move, ACTIVE)),
    ("POST", "/runs/log-metric", "ingest", run_calls.log_metric),
    ("POST", "/runs/log-batch", "ingest", run_calls.log_batch),
    ("POST", "/runs/log-parameter", "ingest", run_calls.log_parameter),
    ("POST", "/runs/set-tag", "ingest", run_calls.set_tag),
    ("POST", "/runs/delete-tag", "ingest", run_calls.delete_tag),
    ("GET", "/metrics/get-history", "read", metric_calls.get_history),
    ("GET", "/metrics/get-history-bulk", "read", metric_calls.get_history_bulk),
    ("GET", "/metrics/get-history-bulk-interval", "read", metric_calls.get_history_bulk_interval),
    ("POST", "/logged-models", "ingest", logged_models.create),
]
"""Methods, path below the API, the scope of a token, and what answers."""
_DATABASE_ENDPOINTS: list[tuple[str, str, Scope, DatabaseAnswer]] = [
    ("POST", "/experiments/create", "ingest", experiment_calls.create),
    ("GET", "/experiments/get", "read", experiment_calls.get),
    ("GET", "/experiments/get-by-name", "read", experiment_calls.get_by_name),
    ("GET POST", "/experiments/search", "read", run_search.search_experiments),
    ("POST", "/experiments/search-datasets", "read", experiment_calls.search_datasets),
    ("POST", "/experiments/update", "ingest", experiment_calls.update),
    ("POST", "/experiments/delete", "admin", partial(experiment_calls.move, DELETED)),
    ("POST", "/experiments/restore", "admin", partial(experiment_calls.move, ACTIVE)),
    ("POST", "/experiments/set-experiment-tag", "ingest", experiment_calls.set_tag),
    ("POST", "/experiments/delete-experiment-tag", "ingest", experiment_calls.delete_tag),
    ("GET", "/runs/get", "read", run_calls.get),
    ("POST", "/runs/search", "read", run_search.search_runs),
    ("POST", "/runs/log-inputs", "ingest", run_calls.log_inputs),
    ("POST", "/runs/outputs", "ingest", run_calls.log_outputs),
    ("POST", "/runs/log-model", "ingest", run_calls.log_model),
    ("POST", "/logged-models/search", "read", logged_models.search),
    ("GET", "/logged-models/{model_id}", "read", logged_models.get),
    ("PATCH", "/logged-models/{model_id}", "ingest", logged_models.finish),
    ("DELETE", "/logged-models/{model_id}", "admin", logged_models.delete),
    ("POST", "/logged-models/{model_id}/params", "ingest", partial(logged_models.set_pairs, MODEL_PARAMS, "params")),
    ("PATCH", "/logged-models/{model_id}/tags", "ingest", partial(logged_models.set_pairs, MODEL_TAGS, "tags")),
    ("DELETE", "/logged-models/{model_id}/tags/{key:path}", "ingest", logged_models.delete_tag),
    ("POST", "/registered-models/create", "ingest", registry_calls.create_model),
    ("GET", "/registered-models/get", "read", registry_calls.get_model),
    ("GET", "/registered-models/search", "read", registry_calls.search_models_call),
    ("GET POST", "/registered-models/get-latest-versions", "read", registry_calls.get_latest_versions),
    ("PATCH", "/registered-models/update", "ingest", registry_calls.update_model),
    ("POST", "/registered-models/rename", "ingest", registry_calls.rename_model),
    ("DELETE", "/registered-models/delete", "admin", registry_calls.delete_model),
    ("POST", "/registered-models/set-tag", "ingest", registry_calls.set_model_tag),
    ("DELETE", "/registered-models/delete-tag", "ingest", registry_calls.delete_model_tag),
    ("GET", "/registered-models/alias", "read", registry_calls.get_by_alias),
    ("POST", "/registered-models/alias", "ingest", registry_calls.set_alias),
    ("DELETE", "/registered-models/alias", "ingest", registry_calls.delete_alias),
    ("POST", "/model-versions/create", "ingest", registry_calls.create_version),
    ("GET", "/model-versions/get", "read", registry_calls.get_version),
    ("GET", "/model-versions/get-download-uri", "read", registry_calls.get_download_uri),
    ("GET", "/model-versions/search", "read", registry_calls.search_versions_call),
    ("PATCH", "/model-versions/update", "ingest", registry_calls.update_version),
    ("POST", "/model-versions/transition-stage", "ingest", registry_calls.transition_stage),
    ("DELETE", "/model-versions/delete", "admin", registry_calls.delete_version),
    ("POST", "/model-versions/set-tag", "ingest", registry_calls.set_version_tag),
    ("DELETE", "/model-versions/delete-tag", "ingest", registry_calls.delete_version_tag),
]
"""The same for those that only read or change the tracking database."""
_TRACE_ENDPOINTS: list[tuple[str, str, Scope, DatabaseAnswer]] = [
    ("GET", "/traces/{trace_id}", "read", trace_calls.get_info),
    ("POST", "/traces/batchGetInfos", "read", trace_calls.batch_get_infos),
    ("POST", "/traces/search", "read", trace_calls.search),
]
_TRACE_CHANGES: list[tuple[str, str, Scope, DatabaseAnswer]] = [
    ("POST", "/traces/delete-traces", "admin", trace_calls.delete),
    ("POST", "/traces/link-to-run", "ingest", trace_calls.link_to_run),
    ("PATCH", "/traces/{trace_id}/tags", "ingest", trace_calls.set_tag),
    ("DELETE", "/traces/{trace_id}/tags", "ingest", trace_calls.delete_tag),
]
"""Calls that clients send below both versions of the API."""
_SPANS: dict[str, SpansAnswer] = {"/traces/get": trace_calls.get_trace, "/traces/batchGet": trace_calls.batch_get}
_HISTORIES = (metric_calls.get_history, metric_calls.get_history_bulk, metric_calls.get_history_bulk_interval)
"""Reads that wait until the client's own writes are stored."""


class Mlflow:
    """Serves MLflow's clients; each MLflow run is a run of the hub."""

    name = "mlflow"
    prefixes = ("/api/2.0/", "/api/3.0/", "/ajax-api/", "/get-artifact", "/model-versions/")

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
        made += [
            ReceiverRoute(base + path, self._read_spans(answer), ("GET",), "read")
            for base in _NEWER_BASES
            for path, answer in _SPANS.items()
        ]
        made += [self._route(base, "POST", "/traces", "ingest", trace_calls.end_trace) for base in _NEWER_BASES]
        made += [self._route(base, *endpoint) for base in _BASES for endpoint in _ENDPOINTS]
        for bases, endpoints in (
            (_BASES, _DATABASE_ENDPOINTS),
            (_NEWER_BASES, _TRACE_ENDPOINTS),
            ((*_BASES, *_NEWER_BASES), _TRACE_CHANGES),
        ):
            made += [
                self._route(base, methods, path, scope, _in_transaction(answer, scope))
                for base in bases
                for methods, path, scope, answer in endpoints
            ]
        return made + self._artifacts.routes()

    def credential(self, head: RequestHead) -> str:
        """Return the bearer token, or the password of basic authentication."""
        header = head.headers.get("authorization", "")
        return bearer(header) or basic_password(header)

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return MLflow's error code and message."""
        return mlflow_errors.refusal_response(refusal, head.path)

    def _route(self, base: str, methods: str, path: str, scope: Scope, answer: Answer) -> ReceiverRoute:
        """Return a route; those that only read have threads of their own, those that write wait for their records."""
        workers = self._readers if scope == "read" else self._workers

        async def served(request: Request) -> Response:
            if answer in _HISTORIES:
                await self._wait_stored(metric_calls.runs_of(Fields(read_query(request.url.query), query=True)))
            reply = await with_body(request, workers, lambda data: answer(self._tracking, self._call(request, data)))
            for future in reply.safe:
                await written(future)
            if reply.run:
                self._tracking.note_safe(reply.run)
            return json_response(reply.body)

        return ReceiverRoute(base + path, served, tuple(methods.split()), scope)

    def _call(self, request: Request, data: bytes) -> Call:
        query = request.method in ("GET", "DELETE") and bool(request.url.query)
        fields = Fields(read_query(request.url.query), query=True) if query else Fields(read_json(data))
        return Call(fields, request.path_params, access_of(request.scope).project, self._tracking.now)

    def _read_spans(self, answer: SpansAnswer) -> Callable[[Request], Awaitable[Response]]:
        async def read(request: Request) -> Response:
            await self._wait_stored((), everything=True)
            call = self._call(request, b"")
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


def _in_transaction(answer: DatabaseAnswer, scope: Scope) -> Answer:
    """Let a function answer in a transaction of the database, one that only reads for the scope `read`."""

    def reply(tracking: Tracking, call: Call) -> Reply:
        with tracking.database.read() if scope == "read" else tracking.database.write() as db:
            return Reply(answer(db, call) or {})

    return reply


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
