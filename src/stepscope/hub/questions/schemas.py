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


def maybe(schema: Schema) -> Schema:
    """A value that can be null."""
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": schema}


def thing(**fields: Schema) -> Schema:
    """An object that has exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def table(values: Schema) -> Schema:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


SECONDS = {"type": ["number", "null"], "description": "Seconds since 1970."}
MS = {"type": ["number", "null"], "description": "Milliseconds."}
STEP = maybe(INTEGER)
COUNTS = table(INTEGER)
ERROR = thing(error=thing(code=TEXT, message=TEXT))


def seconds(ns: int) -> float | None:
    """A time in seconds to the microsecond; None for none."""
    return round(ns / 1e9, 6) if ns else None


def milliseconds(ns: float | None) -> float | None:
    """A duration in milliseconds; None for what is still open."""
    return None if ns is None else round(ns / 1e6, 6)
