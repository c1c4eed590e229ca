"""Words for JSON Schema, and the shapes that answers share."""

from typing import Any

from stepscope.model.states import STATES

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
RUN_FIELDS: dict[str, Schema] = {
    "id": TEXT,
    "project": TEXT,
    "name": maybe(TEXT),
    "status": {"type": "string", "enum": list(STATES)},
    "importing": maybe(thing(bytes=INTEGER, total=INTEGER)),
    "step": STEP,
    "attempts": INTEGER,
    "ranks": INTEGER,
    "world_size": INTEGER,
    "hosts": many(TEXT),
    "created": SECONDS,
    "started": SECONDS,
    "seen": SECONDS,
    "duration": {"type": ["number", "null"], "description": "Seconds from the start to the latest record."},
    "counts": COUNTS,
    "config": ATTRS,
    "tags": {"type": "object", "description": "Tags by name; those without a value are true."},
    "notes": TEXT,
    "group": maybe(TEXT),
    "job_type": maybe(TEXT),
    "archived": BOOLEAN,
    "values": table(thing(key=TEXT, value=NUMBER, step=STEP, time=SECONDS)),
}
SPAN_FIELDS: dict[str, Schema] = {
    "run": TEXT,
    "rank": INTEGER,
    "attempt": INTEGER,
    "trace_id": TEXT,
    "span_id": TEXT,
    "parent_id": maybe(TEXT),
    "name": TEXT,
    "kind": TEXT,
    "status": TEXT,
    "message": TEXT,
    "step": STEP,
    "axis": maybe(TEXT),
    "start": SECONDS,
    "duration_ms": MS,
    "scope": TEXT,
    "flags": INTEGER,
    "attrs": ATTRS,
    "events": many(thing(time=SECONDS, name=TEXT, attrs=ATTRS)),
    "links": many(thing(trace_id=TEXT, span_id=TEXT, attrs=ATTRS)),
}
NODE_FIELDS: dict[str, Schema] = {
    **SPAN_FIELDS,
    "offset_ms": MS,
    "depth": INTEGER,
    "own_ms": MS,
    "critical_ms": MS,
    "usual_ms": MS,
    "ratio": {"type": ["number", "null"], "description": "Its duration over the usual one."},
    "slow": {"type": "integer", "description": "0 as usual, 1 slow, 2 very slow."},
}
RECORD: Schema = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["log", "event", "alert"]},
        "run": TEXT,
        "rank": INTEGER,
        "attempt": INTEGER,
        "time": SECONDS,
        "step": STEP,
        "axis": maybe(TEXT),
        "trace_id": maybe(TEXT),
        "span_id": maybe(TEXT),
        "severity": TEXT,
        "severity_number": INTEGER,
        "name": maybe(TEXT),
        "body": ANYTHING,
        "attrs": ATTRS,
        "scope": TEXT,
        "observed": SECONDS,
        "flags": INTEGER,
    },
    "required": ["kind", "run", "rank", "time", "step", "severity", "name", "body", "attrs"],
    "additionalProperties": False,
}
ERROR = thing(error=thing(code=TEXT, message=TEXT))
