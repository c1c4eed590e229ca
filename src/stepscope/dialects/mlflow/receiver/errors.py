"""MLflow's error codes, messages and error responses."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from stepscope.extend.receiver import Refusal, Refused, error_response, json_response

INVALID, MISSING, EXISTS = "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"
BAD_REQUEST, INVALID_STATE, TOO_MANY = "BAD_REQUEST", "INVALID_STATE", "RESOURCE_LIMIT_EXCEEDED"
DENIED, UNSUPPORTED = "PERMISSION_DENIED", "NOT_IMPLEMENTED"
_STATUSES = {MISSING: HTTPStatus.NOT_FOUND, DENIED: HTTPStatus.FORBIDDEN, UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED}
_BY_STATUS = {
    400: BAD_REQUEST,
    401: "UNAUTHENTICATED",
    403: DENIED,
    404: "ENDPOINT_NOT_FOUND",
    405: "ENDPOINT_NOT_FOUND",
    413: "INVALID_PARAMETER_VALUE",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}
"""MLflow's error codes for refusals by the hub itself."""
_CLASSES = {MISSING: "RESOURCE_NOT_FOUND", EXISTS: EXISTS, INVALID_STATE: "CLIENT_INTERNAL_ERROR"}
SEE_DOCS = " See the API docs for more information about request parameters."


@dataclass(frozen=True, slots=True)
class MlflowRefusal(Refusal):
    """A refusal with an MLflow error code."""

    error_code: str = BAD_REQUEST


def refused(message: str, code: str = INVALID) -> Refused:
    """Return the exception for an invalid request: a 4xx, or 501 for what clients then do in another way."""
    return Refused(MlflowRefusal(_STATUSES.get(code, HTTPStatus.BAD_REQUEST), message, None, code))


def missing_value(path: str, *, documented: bool = True) -> Refused:
    """Return the exception for a missing required field."""
    return refused(f"Missing value for required parameter '{path}'.{SEE_DOCS if documented else ''}")


def invalid_value(path: str, value: Any, why: str = "") -> Refused:
    """Return the exception for an invalid value, with the reason where known."""
    return refused(f"Invalid value {shown_value(value)} for parameter '{path}' supplied{f': {why}' if why else '.'}")


def wrong_type(path: str, value: Any) -> Refused:
    """Return the exception for a value of the wrong type."""
    return invalid_value(path, value, f" Hint: Value was of type '{type(value).__name__}'.{SEE_DOCS}")


def shown_value(value: Any) -> str:
    """Format a value as in MLflow's messages."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_ABSENT = {
    "traces": "assessments, metrics, correlations or prompts of traces, and no traces of clients before MLflow 3",
    "datasets": "store of evaluation datasets",
    "scorers": "registry of scorers",
    "webhooks": "registry of webhooks",
    "gateway": "AI gateway and no store of its secrets",
    "workspaces": "workspaces: tokens are for projects",
    "issues": "issues of traces",
    "label-schemas": "label schemas of traces",
    "prompt-optimization": "optimization of prompts",
}
"""Features of MLflow's server that a hub lacks, by the first part of the path below the API."""
_CALLS_OF_TRACES = ("traces/metrics", "traces/calculate-filter-correlation")
"""Unsupported calls whose path reads like that of a trace, which is got with another method."""


def refusal_response(refusal: Refusal, path: str = "") -> Response:
    """Return a refusal in MLflow's format; for an unsupported MLflow endpoint the message names the missing feature."""
    called = path.partition("/mlflow/")[2]
    other = "MLflow web page, which alone makes this call" if path.startswith("/ajax-api/") else "such call"
    absent = _ABSENT.get(called.partition("/")[0], other) if called else ""
    wrong_method = refusal.status == HTTPStatus.METHOD_NOT_ALLOWED and called in _CALLS_OF_TRACES
    unknown = wrong_method or refusal.status == HTTPStatus.NOT_FOUND
    if unknown and absent and not isinstance(refusal, MlflowRefusal):
        message = f"{called[:100]} is not supported: a Stepscope hub has MLflow's tracking API, but no {absent}"
        refusal = MlflowRefusal(HTTPStatus.NOT_FOUND, message, None, _BY_STATUS[HTTPStatus.NOT_FOUND])
    code = refusal.error_code if isinstance(refusal, MlflowRefusal) else _BY_STATUS.get(refusal.status, BAD_REQUEST)
    body = {"error_code": code, "message": refusal.message}
    if refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        body |= {"sqlstate": "KAM00", "error_class": _CLASSES.get(code, INVALID)}
    response = json_response(body, refusal.status)
    response.headers.update({k: v for k, v in error_response(refusal).headers.items() if k not in response.headers})
    return response
