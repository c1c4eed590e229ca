"""The spans of a trace in the store, as OpenTelemetry's messages in the JSON of MLflow's answers."""

import base64
from collections.abc import Mapping
from typing import Any

from stepscope.extend.receiver import Engine, SpanRow, read_trace
from stepscope.model.names import ATTR_FLAGS
from stepscope.model.records import word

MAX_SPANS = 100_000
"""Spans of one answer."""
_STATUSES = ("STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR")


def trace_key(trace_id: str) -> bytes | None:
    """Return the id that the spans of a trace have; MLflow puts `tr-` before it."""
    try:
        found = bytes.fromhex(trace_id.removeprefix("tr-"))
    except ValueError:
        return None
    return found if len(found) == 16 else None


def spans_of(engine: Engine, trace_id: str, project: str | None, limit: int = MAX_SPANS) -> list[dict[str, Any]]:
    """Return the spans of a trace that ended, roots first; of a token's project only those that it may see."""
    key = trace_key(trace_id)
    if key is None:
        return []
    rows, _ = read_trace(engine, key, limit=limit)
    if project is not None:
        rows = _visible(engine, rows, project)
    unique = {row.span.span_id: row for row in rows}
    return [_span(row) for row in sorted(unique.values(), key=lambda row: row.span.parent_id is not None)]


def _visible(engine: Engine, rows: list[SpanRow], project: str) -> list[SpanRow]:
    runs = {row.run for row in rows}
    if not runs:
        return []
    found = engine.query(f"SELECT run, project FROM runs WHERE run IN ({', '.join(map(str, sorted(runs)))})")
    seen = {run for run, of in found.rows("run", "project") if of == project}
    return [row for row in rows if row.run in seen]


def _span(row: SpanRow) -> dict[str, Any]:
    span = row.span
    made: dict[str, Any] = {
        "trace_id": _base64(span.trace_id),
        "span_id": _base64(span.span_id),
        "name": span.name,
        "kind": span.span_kind,
        "start_time_unix_nano": str(span.time),
        "end_time_unix_nano": str(span.time + (span.duration or 0)),
        "status": {"code": _STATUSES[span.status] if span.status < len(_STATUSES) else _STATUSES[0]},
        "attributes": _attributes(span.attrs),
    }
    if span.message:
        made["status"]["message"] = span.message
    if span.parent_id is not None:
        made["parent_span_id"] = _base64(span.parent_id)
    if span.events:
        made["events"] = [
            {"time_unix_nano": str(each.time), "name": each.name, "attributes": _attributes(each.attrs)}
            for each in span.events
        ]
    if span.links:
        made["links"] = [
            {
                "trace_id": _base64(each.trace_id),
                "span_id": _base64(each.span_id),
                "attributes": _attributes({key: value for key, value in each.attrs.items() if key != ATTR_FLAGS}),
            }
            for each in span.links
        ]
    return made


def _base64(id: bytes) -> str:
    return base64.b64encode(id).decode()


def _attributes(attrs: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attrs.items()]


def _value(value: Any) -> dict[str, Any]:
    """Return an AnyValue; None is one without a value."""
    if isinstance(value, bool):
        return {"bool_value": value}
    if isinstance(value, int):
        return {"int_value": str(value)} if -(2**63) <= value < 2**63 else {"string_value": str(value)}
    if isinstance(value, float):
        return {"double_value": word(value)}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes_value": _base64(bytes(value))}
    if isinstance(value, Mapping):
        return {"kvlist_value": {"values": _attributes({str(key): each for key, each in value.items()})}}
    if isinstance(value, (list, tuple)):
        return {"array_value": {"values": [_value(each) for each in value]}}
    return {} if value is None else {"string_value": str(value)}
