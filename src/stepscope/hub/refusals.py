"""Error responses: a status, a message and when to retry, as `{"error": ...}`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from stepscope.model.errors import Retry, StepscopeError


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


class OutcomeUnknown(Retry):
    """A change may be stored, now or later, or not; to repeat it is safe, since it has the same keys and values."""

    def __init__(self, why: str) -> None:
        told = f"it is not known whether the change was stored ({why}): send it again, which changes nothing twice"
        super().__init__(told, after=2.0)


def bad_request(message: str) -> Refused:
    """The refusal of a request that cannot be understood."""
    return Refused(Refusal(HTTPStatus.BAD_REQUEST, message))


def not_found(message: str) -> Refused:
    """The refusal of a request for something that does not exist, or may not be seen."""
    return Refused(Refusal(HTTPStatus.NOT_FOUND, message))


def forbidden(message: str) -> Refused:
    """The refusal of a request that its token does not allow."""
    return Refused(Refusal(HTTPStatus.FORBIDDEN, message))


def conflict(message: str) -> Refused:
    """The refusal of a request that the state of a run does not allow."""
    return Refused(Refusal(HTTPStatus.CONFLICT, message))


def unavailable(message: str, retry_after: float) -> Refused:
    """The refusal of a request that may succeed after `retry_after` seconds."""
    return Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after))


def changed_meanwhile(name: str) -> Refused:
    """The refusal of a change of something that another one changed first."""
    text = f"{name} was changed by somebody else in the meantime: reload it and repeat the change"
    return Refused(Refusal(HTTPStatus.CONFLICT, text))


def json_response(value: Any, status: int = 200) -> Response:
    """Respond with JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_response(refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response:
    """Respond with an error of the JSON API."""
    body = {"error": {"code": refusal.code, "message": refusal.message}}
    response = json_response(body, refusal.status)
    response.headers.update({**refusal_headers(refusal), **(headers or {})})
    return response


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
