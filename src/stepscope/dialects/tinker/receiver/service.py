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
_ACCEPTED: dict[str, Any] = {"status": "accepted"}
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
            ReceiverRoute("/api/v1/create_session", self._create),
            ReceiverRoute("/api/v1/session_heartbeat", self._beat),
            ReceiverRoute("/api/v1/sessions/{session}/finish", self._finish),
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
        await self._take(request, self._events.take)
        return json_response(_ACCEPTED)

    async def _create(self, request: Request) -> Response:
        session = new_session(request.headers.get("x-idempotency-key", ""))

        def add(upload: Upload, data: bytes, project: str | None) -> None:
            self._records.start(upload, session, read_object(data), project)

        await self._record(request, add)
        return json_response({"type": "create_session", "session_id": session})

    async def _beat(self, request: Request) -> Response:
        def add(upload: Upload, data: bytes, project: str | None) -> None:
            session = read_object(data).get("session_id")
            if isinstance(session, str) and not run_id_problem(session):
                self._records.beat(upload, session, project)

        await self._record(request, add)
        return json_response({"type": "session_heartbeat"})

    async def _finish(self, request: Request) -> Response:
        session = request.path_params["session"]

        def add(upload: Upload, data: bytes, project: str | None) -> None:
            self._records.finish(upload, session, read_object(data), project)

        await self._record(request, add)
        return json_response({})

    async def _nothing(self, request: Request) -> Response:
        text = (
            "this hub accepts the telemetry of Tinker clients and does no training: start it with "
            "--tinker-upstream URL to put it in front of a service"
        )
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, text))

    def _fixed(self, answer: Mapping[str, Any]) -> Callable[[Request], Awaitable[Response]]:
        async def reply(request: Request) -> Response:
            return json_response(answer)

        return reply

    async def _record(self, request: Request, add: Callable[[Upload, bytes, str | None], None]) -> None:
        """Read a body, let `add` convert it to records, and return once they are on disk."""

        def take(data: bytes, project: str | None) -> "Future[None]":
            upload = Upload()
            add(upload, data, project)
            return self._ingest.submit(upload)

        await self._take(request, take)

    async def _take(self, request: Request, take: Callable[[bytes, str | None], "Future[None]"]) -> None:
        """Read a body, run `take` on it in a thread, and return once the result is on disk."""
        project = access_of(request.scope).project
        safe = await with_body(request, self._workers, lambda data: take(data, project))
        await written(safe)
