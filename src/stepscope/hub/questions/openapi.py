"""Every endpoint of the JSON API, and the OpenAPI document made from them."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec

from stepscope.hub import questions
from stepscope.hub.questions.toolbox.endpoint import PARTIAL, Endpoint, Error, Param, Partial, Schema

_BESIDE = ("openapi", "routes", "live_events")
"""The modules that use this one."""


def _found() -> Iterator[Endpoint]:
    """Yield the endpoints in the folder of questions, each from the module of its function."""
    for module in walk_packages(questions.__path__, f"{questions.__name__}."):
        if not module.name.endswith(_BESIDE):
            for each in vars(import_module(module.name)).values():
                if isinstance(each, Endpoint) and each.answer.__module__ == module.name:
                    yield each


ENDPOINTS = tuple(sorted(_found(), key=lambda each: each.path.endswith("{run}")))
"""In the order of routing: `/api/runs/{run}` comes last, since it matches longer paths too."""


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


_PLACE = "#/components/schemas/"


def document(endpoints: Iterable[Endpoint], version: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe endpoints; `extra` holds the paths that are described elsewhere."""
    every = tuple(endpoints)
    bodies, answers, components = schemas(every)
    paths: dict[str, Any] = dict(extra or {})
    for endpoint, body, answer in zip(every, bodies, answers, strict=True):
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stepscope hub",
            "version": version,
            "description": "Records of training runs. Times are in seconds since 1970.",
        },
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def schemas(endpoints: Iterable[Endpoint]) -> tuple[list[Schema], list[Schema], dict[str, Schema]]:
    """The schemas of the bodies (of anything, where there is none) and of the answers, and the parts that they name."""
    every = tuple(endpoints)
    bodies, answers = [Any if each.body is None else each.body for each in every], [each.content for each in every]
    found, parts = msgspec.json.schema_components([*bodies, *answers, Error, Partial], ref_template=_PLACE + "{name}")
    sent, answered = list(found[: len(every)]), list(found[len(every) : -2])
    of_bodies = {_named(schema) for schema in sent}
    for name, part in parts.items():
        _close(part, answer=name not in of_bodies)
    for endpoint, schema in zip(every, answered, strict=True):
        if endpoint.method == "GET" or endpoint.lane == "sql":  # what only reads may lack shards
            parts.get(_named(schema), {}).get("properties", {})[PARTIAL] = found[-1]
    return sent, answered, parts


def _named(schema: Schema) -> str:
    """The name of the part that a schema is; empty when it is none."""
    return str(schema.get("$ref", "")).removeprefix(_PLACE)


def _close(part: Schema, *, answer: bool) -> None:
    """Allow no other fields; those of an answer are there also where they have a default."""
    fields: dict[str, Schema] = part.get("properties", {})
    if fields:
        part["additionalProperties"] = False
    if answer:
        part["required"] = [name for name, each in fields.items() if name in part["required"] or "default" in each]
        for each in fields.values():
            each.pop("default", None)


def _operation(endpoint: Endpoint, body: Schema, answer: Schema) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.text,
        "parameters": parameters(endpoint.params),
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {media_type: {"schema": answer} for media_type in endpoint.media_types},
            },
            **errors(),
        },
    }
    if endpoint.attrs:
        made["parameters"].append(_ATTRS)
    if endpoint.body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return made


def errors() -> dict[str, Any]:
    """The error responses of every endpoint."""
    content = {"application/json": {"schema": {"$ref": f"{_PLACE}Error"}}}
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
