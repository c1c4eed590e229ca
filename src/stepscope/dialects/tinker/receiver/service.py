"""The HTTP routes for Tinker clients: telemetry, and the minimal service that clients need without an upstream."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stepscope.dialects.tinker.receiver.client_telemetry import TelemetryReceiver
from stepscope.dialects.tinker.receiver.operations import Operations
from stepscope.dialects.tinker.receiver.proxy import Proxy
from stepscope.dialects.tinker.receiver.record_queue import RecordQueue
from stepscope.dialects.tinker.receiver.session_records import SessionRecords, new_session, read_object
from stepscope.extend.receiver import (
    PREFIX,
    ReceiverPorts,
    ReceiverRoute,
    Refusal,
    Refused,
    RequestHead,
    Upload,
    Upstream,
    access_of,
    bearer,
    json_response,
    list_runs,
    refusal_headers,
    with_body,
    written,
)
from stepscope.model.ports import run_id_problem

TELEMETRY = "/api/v1/telemetry"
UPSTREAM = "tinker-upstream"
"""The option with the URL of the upstream service."""
ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Answer = Mapping[str, Any]
_ACCEPTED: Answer = {"status": "accepted"}
_FOR_GOOD = frozenset((400, 413, 415))
"""Statuses of refusals that a retry cannot change."""


class Tinker:
    """Receives from Tinker clients."""

    name = "tinker"
    prefixes = ()

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ingest = ports.ingest(self.name)
        self._workers = ports.workers
        self._records = SessionRecords(self._ingest)
        upstream = ports.settings.get(UPSTREAM)
        queue = RecordQueue(self._ingest)

        def stored_step(session: str) -> int | None:
            return next((row.step for row in list_runs(ports.engine, ids=[session])), None)

        operations = Operations(self._records, queue, stored_step)
        self._proxy = Proxy(Upstream(upstream), operations) if upstream else None
        folder = ports.files / self.name / "positions"
        self._events = TelemetryReceiver(self._ingest, self._records, folder, operations.join)
        ports.closing.append(queue.flush)

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes of telemetry and of the minimal service; with an upstream, every other path is proxied."""
        telemetry = ReceiverRoute(TELEMETRY, self._telemetry)
        if self._proxy is not None:
            paths = ("/api/v1/{path:path}", "/oai/{path:path}")
            return [telemetry, *(ReceiverRoute(path, self._proxy.forward, ALL_METHODS, stream=True) for path in paths)]
        return [
            telemetry,
            ReceiverRoute("/api/v1/client/config", self._fixed({})),
            ReceiverRoute("/api/v1/client/dynamic_config", self._fixed({})),
            ReceiverRoute("/api/v1/get_server_capabilities", self._fixed({"supported_models": []}), ("GET",)),
            ReceiverRoute("/api/v1/healthz", self._fixed({"status": "ok"}), ("GET",)),
            ReceiverRoute("/api/v1/create_session", self._recorded(self._create)),
            ReceiverRoute("/api/v1/session_heartbeat", self._recorded(self._beat)),
            ReceiverRoute("/api/v1/sessions/{session}/finish", self._recorded(self._finish)),
            ReceiverRoute("/api/v1/{path:path}", self._nothing, ALL_METHODS),
        ]

    def credential(self, head: RequestHead) -> str:
        """Return the token: from the key `tml-TOKEN`, the secret of Cloudflare Access, or a bearer token."""
        shown = (
            head.headers.get("cf-access-client-secret", ""),
            head.headers.get("x-api-key", "").removeprefix("tml-"),
            bearer(head.headers.get("authorization", "")),
        )
        return next((each for each in shown if each.startswith(f"{PREFIX}_")), "")

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return `{"detail": ...}`; telemetry that can never be accepted is answered with success and counted.

        A client would retry a refused batch every second forever, and send nothing else.
        """
        if head.path == TELEMETRY and refusal.status in _FOR_GOOD:
            self._ingest.reject(refusal.status.phrase.lower())
            response = json_response(_ACCEPTED)
        else:
            how = " or, for Tinker clients, TINKER_API_KEY=tml-TOKEN" if refusal.status == 401 else ""
            response = json_response({"detail": refusal.message + how}, refusal.status)
        response.headers.update(refusal_headers(refusal))
        return response

    async def _telemetry(self, request: Request) -> Response:
        project = access_of(request.scope).project
        await written(await with_body(request, self._workers, lambda data: self._events.take(data, project)))
        return json_response(_ACCEPTED)

    def _create(self, upload: Upload, request: Request, given: dict[str, Any], project: str | None) -> Answer:
        session = new_session(request.headers.get("x-idempotency-key", ""))
        self._records.start(upload, session, given, project)
        return {"type": "create_session", "session_id": session}

    def _beat(self, upload: Upload, request: Request, given: dict[str, Any], project: str | None) -> Answer:
        session = given.get("session_id")
        if isinstance(session, str) and not run_id_problem(session):
            self._records.beat(upload, session, project)
        return {"type": "session_heartbeat"}

    def _finish(self, upload: Upload, request: Request, given: dict[str, Any], project: str | None) -> Answer:
        self._records.finish(upload, request.path_params["session"], given, project)
        return {}

    async def _nothing(self, request: Request) -> Response:
        text = (
            "this hub accepts the telemetry of Tinker clients and does no training: start it with "
            "--tinker-upstream URL to put it in front of a service"
        )
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, text))

    def _fixed(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def reply(request: Request) -> Response:
            return json_response(answer)

        return reply

    def _recorded(
        self, record: Callable[[Upload, Request, dict[str, Any], str | None], Answer]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Let a function convert the objects in bodies to records, and answer once these are on disk."""

        async def reply(request: Request) -> Response:
            upload, project = Upload(), access_of(request.scope).project

            def take(data: bytes) -> "tuple[Answer, Future[None]]":
                return record(upload, request, read_object(data), project), self._ingest.submit(upload)

            answer, safe = await with_body(request, self._workers, take)
            await written(safe)
            return json_response(answer)

        return reply
