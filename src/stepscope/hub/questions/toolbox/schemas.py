"""The JSON types of answers: their schemas, and how times and durations are written."""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
NUMBER: Schema = {
    "description": "A number, or one of NaN, Infinity and -Infinity as a string.",
    "oneOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}],
}
ANYTHING: Schema = {}
ATTRS: Schema = {"type": "object", "description": "Attributes by name."}


def nullable(schema: Schema) -> Schema:
    """A value that can be null."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": schema}


def object_of(**fields: Schema) -> Schema:
    """An object with exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def map_of(values: Schema) -> Schema:
    """An object with any names, and values of one schema."""
    return {"type": "object", "additionalProperties": values}


REPLACED: Schema = {
    "type": ["string", "null"],
    "description": "The version that this replaces, as it was read; if it is not the present one, nothing is saved.",
}
SECONDS = {"type": ["number", "null"], "description": "Seconds since 1970."}
MS = {"type": ["number", "null"], "description": "Milliseconds."}
STEP = nullable(INTEGER)
COUNTS = map_of(INTEGER)
ERROR = object_of(error=object_of(code=TEXT, message=TEXT))


def seconds(ns: int) -> float | None:
    """A time in seconds to the microsecond; None for 0."""
    return round(ns / 1e9, 6) if ns else None


def milliseconds(ns: float | None) -> float | None:
    """A duration in milliseconds; None when it is not known."""
    return None if ns is None else round(ns / 1e6, 6)
