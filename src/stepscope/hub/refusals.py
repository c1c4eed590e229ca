"""Error responses: a google.rpc.Status to OTLP clients, `{"error": ...}` to others."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from stepscope.model.errors import StepscopeError
from stepscope.model.otel_names import CONTENT_TYPES, Encoding
from stepscope.wire.otlp.replies import Status, write_status


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, a message, and when to retry, in seconds."""

    status: HTTPStatus
    message: str
    retry_after: float | None = None

    @property
    def code(self) -> str:
        """The status in words, for programs."""
        return self.status.phrase.lower().replace(" ", "_")


class Refused(StepscopeError):
    """The request is rejected."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def changed_meanwhile(name: str) -> Refused:
    """The refusal of a change of something that another one changed first."""
    text = f"{name} was changed by somebody else in the meantime: reload it and repeat the change"
    return Refused(Refusal(HTTPStatus.CONFLICT, text))


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


def json_response(value: Any, status: int = 200) -> Response:
    """Respond with JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    """Respond with an error of the JSON API."""
    body = {"error": {"code": refusal.code, "message": refusal.message}}
    response = json_response(body, refusal.status)
    response.headers.update({**refusal_headers(refusal), **(headers or {})})
    return response


def status_response(encoding: Encoding, refusal: Refusal) -> Response:
    """Respond with an error of OTLP, in the request's encoding."""
    status = Status(rpc_code(refusal.status), refusal.message, refusal.retry_after)
    return Response(
        write_status(encoding, status),
        refusal.status,
        headers=refusal_headers(refusal),
        media_type=CONTENT_TYPES[encoding],
    )


def refusal_headers(refusal: Refusal) -> dict[str, str]:
    """The headers of a refusal: when to retry, how to authenticate, and whether the connection ends."""
    found = {}
    if refusal.retry_after is not None:
        found["Retry-After"] = str(max(math.ceil(refusal.retry_after), 1))
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = "Bearer"
    if refusal.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus(413)):
        found["Connection"] = "close"  # the rest of the body is not read
    return found
