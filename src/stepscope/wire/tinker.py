"""Records as events of the Tinker service's telemetry, in the shape its own client sends."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stepscope.model import names
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, kind
from stepscope.model.redaction import redact
from stepscope.model.writer import Writer
from stepscope.wire.plain import plain

PATH = "/api/v1/telemetry"
MOST_EVENTS = 100
"""What one request holds at most, as the service's own client has it."""

_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:stepscope:tinker")
_pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode
_SEVERITIES = ((21, "CRITICAL"), (17, "ERROR"), (13, "WARNING"), (9, "INFO"))


def session_id(writer: Writer) -> str:
    """The session of an attempt of a run: the same on all ranks, and a UUID, for the service takes no other."""
    return str(uuid.uuid5(_IDS, f"{writer.project}/{writer.run}/{writer.attempt}"))


def process_uuid(writer: Writer) -> str:
    """The process that wrote."""
    return str(uuid.uuid5(_IDS, f"{writer.run}/{writer.id}"))


def event_of(writer: Writer, record: Record, number: int) -> dict[str, Any]:
    """Write a record as an event; its id comes from what it says, so a repeated one is told by it.

    `number` counts the events of the process, from 0.
    """
    made: dict[str, Any] = {
        "event": "GENERIC_EVENT",
        "event_id": str(uuid.uuid5(_IDS, _digest(writer, record))),
        "event_session_index": number,
        "severity": _severity(record),
        "timestamp": _timestamp(record.time),
    }
    if isinstance(record, Event):
        if record.name == names.EVENT_EXCEPTION and "exception.type" in record.attrs:
            return made | _exception(record)
        if _is_session(writer, record, names.EVENT_STARTED):
            return made | {"event": "SESSION_START"}
        if _is_session(writer, record, names.EVENT_FINISHED):
            passed = timedelta(microseconds=max(record.time - (writer.wall_ns or record.time), 0) // 1000)
            return made | {"event": "SESSION_END", "duration": str(passed)}
    return made | {"event_name": _name(record), "event_data": _data(writer, record)}


def body(writer: Writer, events: Sequence[dict[str, Any]], platform: str, version: str) -> bytes:
    """Write a request with the events of one process."""
    return _encode(
        {
            "events": events,
            "platform": platform,
            "sdk_version": version,
            "session_id": session_id(writer),
            "process_uuid": process_uuid(writer),
        }
    )


def idempotency_key(events: Sequence[dict[str, Any]]) -> str:
    """Name a request by its events, so that a repeated one has the same name."""
    return str(uuid.uuid5(_IDS, ",".join(event["event_id"] for event in events)))


def _digest(writer: Writer, record: Record) -> str:
    return f"{writer.run}/{writer.id}/{_pack(record).hex()}"


def _is_session(writer: Writer, event: Event, name: str) -> bool:
    """Whether an event is the session's: that of the first rank, for a session begins and ends once."""
    return event.name == name and writer.main and writer.rank == 0


def _severity(record: Record) -> str:
    number = 9 if isinstance(record, (Metric, Span)) else record.severity
    return next((word for least, word in _SEVERITIES if number >= least), "DEBUG")


def _timestamp(time: int) -> str:
    seconds, rest = divmod(time, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _exception(event: Event) -> dict[str, Any]:
    made = {
        "event": "UNHANDLED_EXCEPTION",
        "error_type": str(event.attrs["exception.type"]),
        "error_message": str(event.attrs.get("exception.message", "")),
    }
    stack = event.attrs.get("exception.stacktrace")
    return made | ({"traceback": str(stack)} if stack else {})


def _name(record: Record) -> str:
    """Name an event; metrics share one name, for there must not be many."""
    if isinstance(record, (Event, Alert, Span)):
        return record.name
    return kind(record)


def _data(writer: Writer, record: Record) -> dict[str, Any]:
    data: dict[str, Any] = {"run_id": writer.run, "rank": writer.rank}
    if record.step is not None:
        data[record.axis or "step"] = record.step
    if isinstance(record, Metric):
        data["values"] = plain(dict(record.points()))
    elif isinstance(record, Alert):
        data |= {"kind": "alert", "message": record.message}
    elif isinstance(record, Log):
        data["message"] = plain(redact(record.body))
    elif isinstance(record, Span):
        data |= {"kind": "span", "duration_ns": record.duration, "error": record.status == 2}
    elif record.body is not None:
        data["body"] = plain(redact(record.body))
    trace = None if isinstance(record, Metric) else record.trace_id
    if trace:
        data["trace_id"] = trace.hex()
    return data | {"attrs": plain(redact(record.attrs))} if record.attrs else data
