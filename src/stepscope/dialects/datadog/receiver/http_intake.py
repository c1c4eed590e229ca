"""Datadog's HTTP intake for unmodified clients: series, distribution points, events, service checks and logs."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from stepscope.dialects.datadog.receiver.request_records import RequestRecords, Steps
from stepscope.dialects.datadog.wire.items import LONGEST_TITLE, Notice
from stepscope.dialects.datadog.wire.requests import (
    BadBody,
    Clock,
    Reading,
    read_checks,
    read_distributions,
    read_event,
    read_json,
    read_logs,
    read_series,
)
from stepscope.extend.receiver import (
    SAFE,
    Access,
    ArrivalClock,
    ReceiverPorts,
    ReceiverRoute,
    Refusal,
    Refused,
    Repeats,
    RequestHead,
    Upload,
    Writers,
    access_of,
    bearer,
    digest,
    json_response,
    refusal_headers,
    with_body,
    written,
)

LOGS = ("/api/v2/logs", "/v1/input")
_LOG_PARAMETERS = ("ddsource", "ddtags", "hostname", "service")
_ACCEPTED = int(HTTPStatus.ACCEPTED)
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
Read = Callable[[bytes, Mapping[str, str], Clock], Reading]
Reply = Callable[["Taken"], Response]


class Taken(NamedTuple):
    """A parsed request: a future that completes when it is on disk, rejected items, and the event to return, if any."""

    safe: "Future[None]"
    refused: Mapping[str, int]
    event: Mapping[str, Any] | None = None


class Datadog:
    """The receiver of the HTTP intake; the API key is the token."""

    name = "datadog"
    prefixes = ()

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ingest = ports.ingest(self.name)
        self._workers = ports.workers
        self._writers = Writers(self._ingest)
        self._steps = Steps()
        self._repeats: Repeats[Taken] = Repeats()

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes, with full paths: Tinker's API has the same prefix."""
        found = [ReceiverRoute(path, self._taker(path, reply)) for path, (_, reply) in PATHS.items()]
        validate = ReceiverRoute("/api/v1/validate", _validate, methods=("GET",))
        return [*found, validate, *(ReceiverRoute(path, _no_traces, methods=("POST", "PUT")) for path in TRACES)]

    def credential(self, head: RequestHead) -> str:
        """Return the API key from a header or parameter, or a bearer token."""
        shown = head.headers.get("dd-api-key", "") or bearer(head.headers.get("authorization", ""))
        return shown or parse_qs(head.query).get("api_key", [""])[0]

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return a list of errors; a missing or unknown key is 403, as with Datadog."""
        denied = refusal.status in _DENIED
        message = f"Forbidden: {refusal.message}" if denied else refusal.message
        status = int(HTTPStatus.FORBIDDEN) if denied else int(refusal.status)
        listed: list[Any] = [message]
        if head.path in LOGS:
            listed = [{"status": str(status), "title": HTTPStatus(status).phrase, "detail": message}]
        response = json_response({"errors": listed}, status)
        response.headers.update(refusal_headers(refusal))
        if "Retry-After" in response.headers:
            response.headers["X-RateLimit-Reset"] = response.headers["Retry-After"]
        return response

    def _taker(self, path: str, reply: Reply) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            access, fields = access_of(request.scope), _log_fields(request)
            try:
                taken = await with_body(request, self._workers, lambda data: self.take(path, data, fields, access))
                await written(taken.safe)
            except BadBody as error:
                raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None
            return reply(taken)

        return answer

    def take(self, path: str, data: bytes, fields: Mapping[str, str], access: Access) -> Taken:
        """Decode a request and submit its records; BadBody when nothing can be decoded.

        A retried request gets the same response and is not stored again.
        """
        who = access.token.id if access.token is not None else ""
        key = digest((path, who, *(f"{name}={value}" for name, value in sorted(fields.items()))), data)
        if (known := self._repeats.find(key)) is not None:
            self._ingest.repeat()
            return known
        clock = ArrivalClock()
        try:
            reading = PATHS[path][0](data, fields, clock)
        except BadBody:
            self._ingest.reject("unreadable request")
            raise
        taken = self._submit(reading, access, b"" if clock.was_read else key)
        if not clock.was_read:  # different requests without times can be identical
            self._repeats.keep_when_safe(key, taken.safe, taken, taken._replace(safe=SAFE))
        return taken

    def _submit(self, reading: Reading, access: Access, key: bytes) -> Taken:
        upload = Upload(key)
        upload.rejected.update(reading.refused)
        for origin, records in RequestRecords(self._steps).sort(reading.items):
            self._writers.add(upload, origin.writer(), records, access.project)
        if reading.refused and not upload.taken:
            for reason, count in (+upload.rejected).items():
                self._ingest.reject(reason, count)
            raise BadBody("; ".join(+upload.rejected))
        event = next((_shown(item) for item in reading.items if isinstance(item, Notice)), None)
        return Taken(self._ingest.submit(upload), dict(+upload.rejected), event)


def _log_fields(request: Request) -> dict[str, str]:
    """Return the log fields in the query and headers of a request."""
    fields = {name: request.query_params[name] for name in _LOG_PARAMETERS if name in request.query_params}
    return fields | {"content_type": request.headers.get("content-type", "").partition(";")[0].strip().lower()}


def _series(data: bytes, fields: Mapping[str, str], clock: Clock) -> Reading:
    if fields["content_type"] == "application/x-protobuf":
        text = "series are accepted as JSON only: the Content-Type must be application/json"
        raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text))
    return read_series(read_json(data))


def _logs(data: bytes, fields: Mapping[str, str], clock: Clock) -> Reading:
    if fields["content_type"] == "text/plain":
        lines = data.decode("utf-8", "replace").splitlines()
        return read_logs([line for line in lines if line.strip()], fields, clock)
    return read_logs(read_json(data), fields, clock)


def _status(taken: Taken) -> Response:
    return json_response({"status": "ok"}, _ACCEPTED)


def _event_status(taken: Taken) -> Response:
    return json_response({"status": "ok", "event": taken.event}, _ACCEPTED)


def _errors(taken: Taken) -> Response:
    return json_response({"errors": [f"{reason} ({count})" for reason, count in taken.refused.items()]}, _ACCEPTED)


def _shown(notice: Notice) -> dict[str, Any]:
    """Return an event for the response, without its text and tags: responses are kept in memory."""
    return {
        "id": notice.time,
        "id_str": str(notice.time),
        "title": notice.title[:LONGEST_TITLE],
        "date_happened": notice.time // 1_000_000_000,
        "priority": "low" if notice.priority == "low" else "normal",
        "handle": None,
        "related_event_id": None,
        "url": None,
    }


PATHS: dict[str, tuple[Read, Reply]] = {
    "/api/v1/series": (_series, _status),
    "/api/v2/series": (_series, _errors),
    "/api/v1/distribution_points": (lambda data, fields, clock: read_distributions(read_json(data)), _status),
    "/api/v1/events": (lambda data, fields, clock: Reading([read_event(read_json(data), clock)]), _event_status),
    "/api/v1/check_run": (lambda data, fields, clock: read_checks(read_json(data), clock), _status),
    "/api/v2/logs": (_logs, lambda taken: json_response({}, _ACCEPTED)),
    "/v1/input": (_logs, lambda taken: json_response({})),
}
"""The body parser and the response of each path."""


TRACES = (
    *(f"/{version}/traces" for version in ("v0.2", "v0.3", "v0.4", "v0.5", "v0.7", "v1.0", "api/v0.2")),
    "/v0.6/stats",
)
"""Where tracers of Datadog send spans to an Agent, an Agent to Datadog, and both their statistics."""
NO_TRACES = (
    "the hub does not read the trace format of Datadog's tracers: send spans by OTLP to /v1/traces of this hub, with"
    " OpenTelemetry's SDK, or through an OpenTelemetry Collector, which has a receiver for these tracers"
)


async def _no_traces(request: Request) -> Response:
    raise Refused(Refusal(HTTPStatus.NOT_FOUND, NO_TRACES))


async def _validate(request: Request) -> Response:
    return json_response({"valid": True})
