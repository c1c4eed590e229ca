"""Records as telemetry events of the Tinker service, in the format of its own client."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, kind
from stepscope.model.redaction import redact
from stepscope.wire import foreign_names as foreign
from stepscope.wire.plain import plain

PATH = "/api/v1/telemetry"
MAX_EVENTS = 100
"""The most events of one request, as in the service's own client."""

_IDS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:stepscope:tinker")
_pack = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode
_OURS = frozenset(
    (
        foreign.ATTR_SESSION_ID,
        foreign.ATTR_EVENT_ID,
        foreign.ATTR_EVENT_INDEX,
        foreign.ATTR_EVENT_TYPE,
        foreign.ATTR_DURATION,
    )
)
"""Attributes that are fields of the event or of its request, and no part of its data."""
_SEVERITIES = ((21, "CRITICAL"), (17, "ERROR"), (13, "WARNING"), (9, "INFO"))


def session_id(writer: Writer) -> str:
    """The session of an attempt of a run: the same on all ranks, and a UUID, as the service requires."""
    return str(uuid.uuid5(_IDS, f"{writer.project}/{writer.run}/{writer.attempt}"))


def process_uuid(writer: Writer) -> str:
    """The process that wrote."""
    return str(uuid.uuid5(_IDS, f"{writer.run}/{writer.id}"))


def session_of(writer: Writer, record: Record) -> str:
    """The session of a record: the one its client named, else that of the run's attempt."""
    session = record.attrs.get(foreign.ATTR_SESSION_ID)
    return session if isinstance(session, str) and session else session_id(writer)


def has_own_number(record: Record) -> bool:
    """Return whether the client numbered the event itself."""
    return isinstance(record.attrs.get(foreign.ATTR_EVENT_INDEX), int)


def event_of(writer: Writer, record: Record, number: int) -> dict[str, Any]:
    """Write a record as an event, under its own id and number where the client gave it some.

    Any other id is derived from the content, so that a repeated event has the same one; `number` counts the events of
    the process that have none of their own, from 0.
    """
    attrs = record.attrs
    event_id, index = attrs.get(foreign.ATTR_EVENT_ID), attrs.get(foreign.ATTR_EVENT_INDEX)
    if not isinstance(event_id, str):
        event_id = str(uuid.uuid5(_IDS, f"{writer.run}/{writer.id}/{_pack(record).hex()}"))
    made: dict[str, Any] = {
        "event": "GENERIC_EVENT",
        "event_id": event_id,
        "event_session_index": index if isinstance(index, int) else number,
        "severity": _severity(record),
        "timestamp": _timestamp(record.time),
    }
    if isinstance(record, Event):
        if record.name == names.EVENT_EXCEPTION and "exception.type" in record.attrs:
            return made | _exception(record)
        mark = _session_mark(writer, record)
        if mark is not None:
            return made | mark
    # Metrics share one name, to keep names few.
    name = record.name if isinstance(record, (Event, Alert, Span)) else kind(record)
    return made | {"event_name": name, "event_data": _data(writer, record)}


def body(writer: Writer, session: str, events: Sequence[dict[str, Any]], platform: str, version: str) -> bytes:
    """Write a request with the events of one session of one process."""
    return _encode(
        {
            "events": events,
            "platform": platform,
            "sdk_version": version,
            "session_id": session,
            "process_uuid": process_uuid(writer),
        }
    )


def idempotency_key(events: Sequence[dict[str, Any]]) -> str:
    """Name a request by its events, so that a repeated one has the same name."""
    return str(uuid.uuid5(_IDS, ",".join(event["event_id"] for event in events)))


def _session_mark(writer: Writer, event: Event) -> dict[str, Any] | None:
    """The type of an event that starts or ends a session, of a client or of rank 0 of a run; None for any other."""
    marked = event.attrs.get(foreign.ATTR_EVENT_TYPE)
    first = writer.main and writer.rank == 0
    if marked == foreign.SESSION_START or (first and event.name == names.EVENT_STARTED):
        return {"event": foreign.SESSION_START}
    if marked == foreign.SESSION_END:
        return {
            "event": foreign.SESSION_END,
            "duration": str(event.attrs.get(foreign.ATTR_DURATION, "0:00:00")),
        }
    if first and event.name == names.EVENT_FINISHED:
        passed = timedelta(microseconds=max(event.time - (writer.wall_ns or event.time), 0) // 1000)
        return {"event": foreign.SESSION_END, "duration": str(passed)}
    return None


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


def _data(writer: Writer, record: Record) -> dict[str, Any]:
    """The data of an event: the mapping that was logged, or for another record its content and `attrs`.

    Run, rank and step are added under names that no client uses; an event of a client's own session is the
    mapping and nothing else.
    """
    attrs: dict[str, Any] = plain(redact({key: value for key, value in record.attrs.items() if key not in _OURS}))
    if foreign.ATTR_SESSION_ID in record.attrs:
        return attrs
    if isinstance(record, Event):
        return _context(writer, record, (names.ATTR_RUN_ID, names.ATTR_RANK, names.ATTR_STEP)) | attrs
    data = _context(writer, record, ("run_id", "rank", record.axis or "step"))
    if isinstance(record, Metric):
        data["values"] = plain(dict(record.points()))
    elif isinstance(record, Alert):
        data |= {"kind": "alert", "message": record.message}
    elif isinstance(record, Log):
        data["message"] = plain(redact(record.body))
    else:
        data |= {"kind": "span", "duration_ns": record.duration, "error": record.status == 2}
    return data | {"attrs": attrs} if attrs else data


def _context(writer: Writer, record: Record, keys: tuple[str, str, str]) -> dict[str, Any]:
    """The context of a record: run, rank and step under these keys, its text and its trace."""
    run, rank, step = keys
    found: dict[str, Any] = {run: writer.run, rank: writer.rank}
    if record.step is not None:
        found[step] = record.step
    if isinstance(record, Event) and record.body is not None:
        found["body"] = plain(redact(record.body))
    trace = None if isinstance(record, Metric) else record.trace_id
    return found | {"trace_id": trace.hex()} if trace else found
