"""OTLP requests: decoded, and accepted or partly rejected; over HTTP at /v1/traces, /v1/metrics, /v1/logs and /."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import NamedTuple

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response

from stepscope.extend.receiver import (
    SAFE,
    Access,
    ArrivalClock,
    Ingest,
    ReceiverPorts,
    ReceiverRoute,
    Refusal,
    Refused,
    Repeats,
    RequestHead,
    RunLink,
    RunLinks,
    Upload,
    Writers,
    access_of,
    basic_password,
    bearer,
    digest,
    error_response,
    refusal_headers,
    with_body,
    written,
)
from stepscope.wire.otlp.decode.decode_request import Decoded, decode
from stepscope.wire.otlp.decode.request_limits import bound_values
from stepscope.wire.otlp.names import (
    ATTR_PROJECT,
    CONTENT_TYPES,
    HEADER_EXPERIMENT,
    HEADER_RUN,
    HTTP_PATHS,
    SIGNALS,
    Encoding,
    Signal,
)
from stepscope.wire.otlp.protobuf_writing import scan
from stepscope.wire.otlp.replies import BadRequest, Rejections, Status, write_reply, write_status

_CODES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.REQUEST_TIMEOUT: 4,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.MISDIRECTED_REQUEST: 7,
    HTTPStatus(413): 8,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.METHOD_NOT_ALLOWED: 12,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
    HTTPStatus.UNAUTHORIZED: 16,
}
"""The codes of google.rpc."""


def rpc_code(status: HTTPStatus) -> int:
    """The google.rpc code of a rejection."""
    return _CODES.get(status, 3)


def status_response(encoding: Encoding, refusal: Refusal) -> Response:
    """Respond with an error of OTLP, in the request's encoding."""
    status = Status(rpc_code(refusal.status), refusal.message, refusal.retry_after)
    return Response(
        write_status(encoding, status),
        refusal.status,
        headers=refusal_headers(refusal),
        media_type=CONTENT_TYPES[encoding],
    )


NO_RECORDED_VALUE = "a point without a recorded value"


class Taken(NamedTuple):
    """A decoded request: a future that completes when it is synced, and what was rejected."""

    safe: "Future[None]"
    rejections: Rejections


class OtlpReceiver:
    """Receives export requests of all signals. Safe to use from any thread."""

    def __init__(self, entry: Ingest, links: RunLinks | None = None) -> None:
        self._entry = entry
        self._links = links or RunLinks()
        self._writers = Writers(entry)
        self._repeats: Repeats[Taken] = Repeats()

    def take(
        self, signal: Signal, encoding: Encoding, data: bytes, headers: Mapping[str, str], access: Access
    ) -> Taken:
        """Decode and submit a request; BadRequest when it cannot be decoded.

        A retried request gets the same response and is not stored again.
        """
        who = access.token.id if access.token is not None else ""
        scope_headers = (headers.get(HEADER_RUN, ""), headers.get(HEADER_EXPERIMENT, ""))
        key = digest((signal, encoding, who, *scope_headers), data)
        if (known := self._repeats.find(key)) is not None:
            self._entry.repeat()
            return known
        clock, link = ArrivalClock(), self._links.find(headers)
        try:
            if encoding == "json":
                bound_values(data)
            named = {**headers, HEADER_RUN: link.run} if link is not None and link.run else headers
            decoded = decode(signal, encoding, data, named, clock)
        except BadRequest:
            self._entry.reject("unreadable request")
            raise
        taken = self._submit(decoded, link, access.project, b"" if clock.was_read else key)
        if not clock.was_read:
            rejections = taken.rejections if taken.rejections.message else _NOTHING[signal]
            self._repeats.keep_when_safe(key, taken.safe, taken, Taken(SAFE, rejections))
        return taken

    def _submit(self, decoded: Decoded, link: RunLink | None, project: str | None, key: bytes) -> Taken:
        upload = Upload(key)
        for origin, records in decoded.groups:
            if link is not None and link.run in ("", origin.run) and ATTR_PROJECT not in origin.resource:
                origin = structs.replace(origin, project=link.project)
            self._writers.add(upload, origin.writer(), records, project)
        rejections = decoded.rejections
        for reason, count in rejections.reasons.items():
            self._entry.reject(reason, count)
        upload.cut.update(rejections.warnings)
        upload.cut[NO_RECORDED_VALUE] += decoded.gaps
        safe = self._entry.submit(upload)
        for reason, count in (+upload.rejected).items():
            rejections.add(reason, count=count)
        return Taken(safe, rejections)


_NOTHING = {signal: Rejections(signal) for signal in SIGNALS}


_JSON_NAMES: tuple[tuple[bytes, Signal], ...] = (
    (b'"resourceSpans"', "traces"),
    (b'"resourceMetrics"', "metrics"),
    (b'"resourceLogs"', "logs"),
)


def guess_signal(encoding: Encoding, data: bytes) -> Signal:
    """Detect the signal from the first item; traces when there is none."""
    if encoding == "json":
        return next((signal for name, signal in _JSON_NAMES if name in data), "traces")
    try:
        item = _first(_first(_first(data, 1), 2), 2)
        numbers = {number for number, value in scan(item) if isinstance(value, int)}
    except (LookupError, ValueError):
        return "traces"
    if 7 in numbers:  # a span's start time; a metric has no numeric field
        return "traces"
    return "logs" if numbers & {1, 11} else "metrics"


def _first(message: bytes, number: int) -> bytes:
    """The first value of a repeated field; LookupError when there is none."""
    for field, value in scan(message):
        if field == number and isinstance(value, bytes):
            return value
    raise LookupError(number)


Answer = Callable[[Request], Awaitable[Response]]


class OtlpHttp:
    """The receiver of OTLP/HTTP."""

    name = "otlp_http"
    prefixes = ("/v1/",)

    def __init__(self, ports: ReceiverPorts) -> None:
        self._receiver = OtlpReceiver(ports.ingest(self.name), ports.links)
        self._workers = ports.workers

    def routes(self) -> list[ReceiverRoute]:
        """Return the paths of the three signals, and the root."""
        found = [ReceiverRoute(path, self._exporter(signal)) for path, signal in HTTP_PATHS.items()]
        return [*found, ReceiverRoute("/", self._exporter(None))]

    def credential(self, head: RequestHead) -> str:
        """Return the bearer token, or the password that MLflow's clients send."""
        header = head.headers.get("authorization", "")
        return bearer(header) or basic_password(header)

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return a google.rpc.Status in the encoding of the request."""
        encoding = _encoding_of(head.headers.get("content-type", ""))
        return error_response(refusal) if encoding is None else status_response(encoding, refusal)

    def _exporter(self, signal: Signal | None) -> Answer:
        async def export(request: Request) -> Response:
            encoding = _encoding_of(request.headers.get("content-type", ""))
            if encoding is None:
                known = " or ".join(CONTENT_TYPES.values())
                raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {known}"))
            return await self._export(request, signal, encoding)

        return export

    async def _export(self, request: Request, signal: Signal | None, encoding: Encoding) -> Response:
        access, headers = access_of(request.scope), dict(request.headers)

        def take(data: bytes) -> Taken:
            found = signal or guess_signal(encoding, data)
            return self._receiver.take(found, encoding, data, headers, access)

        try:
            taken = await with_body(request, self._workers, take)
            await written(taken.safe)
        except BadRequest as error:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None
        return Response(write_reply(encoding, taken.rejections), media_type=CONTENT_TYPES[encoding])


def _encoding_of(content_type: str) -> Encoding | None:
    """Return the encoding of a Content-Type; None when it is neither (415)."""
    media = content_type.partition(";")[0].strip().lower()
    if media == "application/x-protobuf":
        return "protobuf"
    return "json" if media == "application/json" else None
