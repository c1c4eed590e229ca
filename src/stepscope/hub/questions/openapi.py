"""Every endpoint of the JSON API, and the OpenAPI document made from them."""

from collections.abc import Iterable
from typing import Any

from stepscope.hub.questions import (
    checkpoints,
    control,
    dashboards,
    distributions,
    edits,
    export,
    files,
    findings,
    goodput,
    logs,
    pipeline,
    runs,
    samples,
    series,
    sql,
    step,
    summary,
    traces,
)
from stepscope.hub.questions.alerts import alert_rules, alert_states
from stepscope.hub.questions.checkpoints import artifacts
from stepscope.hub.questions.dashboards import views
from stepscope.hub.questions.distributions import quantiles
from stepscope.hub.questions.files import media
from stepscope.hub.questions.runs import run_groups
from stepscope.hub.questions.series import metric_keys, overlaid_runs
from stepscope.hub.questions.toolbox.endpoint import PARTIAL, PARTIAL_SCHEMA, Endpoint
from stepscope.hub.questions.toolbox.params import ERROR, Param, Schema
from stepscope.hub.questions.traces import stored_spans, trace_files

ENDPOINTS: tuple[Endpoint, ...] = (
    *step.ENDPOINTS,
    *export.ENDPOINTS,
    *files.ENDPOINTS,
    *media.ENDPOINTS,
    *quantiles.ENDPOINTS,
    *distributions.ENDPOINTS,
    *findings.ENDPOINTS,
    *goodput.ENDPOINTS,
    *series.ENDPOINTS,
    *metric_keys.ENDPOINTS,
    *overlaid_runs.ENDPOINTS,
    *samples.ENDPOINTS,
    *summary.ENDPOINTS,
    *artifacts.ENDPOINTS,
    *checkpoints.ENDPOINTS,
    *control.ENDPOINTS,
    *edits.ENDPOINTS,
    *runs.ENDPOINTS,
    *run_groups.ENDPOINTS,
    *stored_spans.ENDPOINTS,
    *traces.ENDPOINTS,
    *trace_files.ENDPOINTS,
    *alert_states.ENDPOINTS,
    *alert_rules.ENDPOINTS,
    *logs.ENDPOINTS,
    *sql.ENDPOINTS,
    *dashboards.ENDPOINTS,
    *views.ENDPOINTS,
    *pipeline.ENDPOINTS,
)
"""In the order of routing: `/api/runs/{run}` comes last of its kind, since it matches longer paths too."""


def endpoint_of(path: str, method: str = "GET") -> Endpoint:
    """Find an endpoint by its path, as in OpenAPI, and its method."""
    return next(endpoint for endpoint in ENDPOINTS if (endpoint.path, endpoint.method) == (path, method))


_ERRORS = {
    "400": "The request is not valid; the message says why.",
    "401": "A token is needed.",
    "403": "The token does not allow it.",
    "404": "It does not exist, or the token may not see it.",
    "409": "The state of the run does not allow it.",
    "429": "Too many requests; retry after Retry-After.",
    "500": "A part of the store is damaged; a retry does not help.",
    "503": "Temporarily unavailable; retry after Retry-After.",
    "504": "It is not known whether the change was stored; a repeat changes nothing twice.",
}


def document(endpoints: Iterable[Endpoint], version: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe endpoints; `extra` holds the paths that are described elsewhere."""
    paths: dict[str, Any] = dict(extra or {})
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stepscope hub",
            "version": version,
            "description": "Records of training runs. Times are in seconds since 1970.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _with_partial(schema: Schema) -> Schema:
    """The schema of an answer with the field that every JSON object may have."""
    if "properties" not in schema:
        return schema
    return {**schema, "properties": {**schema["properties"], PARTIAL: PARTIAL_SCHEMA}}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.text,
        "parameters": parameters(endpoint.params),
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {
                    media_type: {"schema": _with_partial(endpoint.schema)} for media_type in endpoint.media_types
                },
            },
            **errors(),
        },
    }
    if endpoint.attrs:
        made["parameters"].append(_ATTRS)
    if endpoint.body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": endpoint.body}}}
    return made


def errors() -> dict[str, Any]:
    """The error responses of every endpoint."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": text, "content": content} for status, text in _ERRORS.items()}


def parameters(params: Iterable[Param]) -> list[dict[str, Any]]:
    """Describe parameters."""
    return [_parameter(param) for param in params]


def _parameter(param: Param) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": param.name,
        "in": param.place,
        "required": param.required,
        "description": param.text,
        "schema": param.schema(),
    }
    return {**made, "style": "form", "explode": True} if param.many else made


_ATTRS = {
    "name": "attr",
    "in": "query",
    "required": False,
    "description": "Attributes by name, compared as text: attr[KEY]=VALUE, or attr.KEY=VALUE.",
    "style": "deepObject",
    "explode": True,
    "schema": {
        "type": "object",
        "propertyNames": {"minLength": 1, "maxLength": 4096},
        "additionalProperties": {"type": "string", "maxLength": 4096},
    },
}
