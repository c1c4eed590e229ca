"""Error responses of OTLP: a google.rpc.Status in the encoding of the request."""

from http import HTTPStatus

from starlette.responses import Response

from stepscope.extend.receiver import Refusal, refusal_headers
from stepscope.wire.otlp.names import CONTENT_TYPES, Encoding
from stepscope.wire.otlp.replies import Status, write_status

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
