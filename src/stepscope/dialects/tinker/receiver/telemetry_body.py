"""`POST /api/v1/telemetry` bodies of any tinker or tinkex version, converted to events of runs."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from stepscope.model import names
from stepscope.model.ports import run_id_problem
from stepscope.model.records import Event
from stepscope.wire import foreign_names as foreign
from stepscope.wire.otlp.decode.origin import read_id
from stepscope.wire.otlp.decode.request_limits import bound_values
from stepscope.wire.otlp.replies import BadRequest

MAX_EVENTS = 10_000
"""The limit of events per request; the clients send 100."""
NO_SESSION = "tinker-no-session"
"""The run of events without a session."""
UNREADABLE_EVENT = "tinker.unreadable_event"
NOT_JSON, NO_EVENTS, TOO_MANY = "unreadable request", "request without events", "too many events in one request"

_BATCH_FIELDS = frozenset(("events", "platform", "sdk_version", "session_id", "process_uuid"))
_EVENT_FIELDS = frozenset(
    ("event", "event_id", "event_session_index", "event_name", "event_data", "severity", "timestamp", "session_id")
)
_EXCEPTION_FIELDS = {"error_type": "type", "error_message": "message", "traceback": "stacktrace"}
_STEPS = (names.ATTR_STEP, "step", "global_step")
"""Without `iteration`, in which Tinker's own events count the polls of a future."""
_LARGEST_INDEX, _LARGEST_STEP = 2**31, 2**62
_LATEST = 2**63 - 1
_FAILED = 17
"""The lowest severity that marks the end of a session as a failure."""


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """One event with its id, its position in the session and its request, as far as given."""

    record: Event
    id: str
    index: int | None = None
    request_id: str = ""


@dataclass(slots=True)
class ClientBatch:
    """The events of one session in one request, with the sending process."""

    session: str
    process: str = ""
    resource: dict[str, Any] = field(default_factory=dict)
    events: list[ClientEvent] = field(default_factory=list)

    @property
    def run(self) -> str:
        """Return the run of the session."""
        return NO_SESSION if run_id_problem(self.session) else self.session


def read_body(data: bytes, clock: Callable[[], int] = time.time_ns) -> tuple[list[ClientBatch], "Counter[str]"]:
    """Parse any body; also return the counts of what cannot be parsed, by reason."""
    bad: Counter[str] = Counter()
    try:
        bound_values(data)
        document = _parse(data)
    except (BadRequest, ValueError, RecursionError):
        return [], Counter({NOT_JSON: 1})
    body = document if isinstance(document, dict) else {"events": document}
    events = body.get("events")
    if not isinstance(events, list):
        return [], Counter({NO_EVENTS: 1})
    bad[TOO_MANY] += max(len(events) - MAX_EVENTS, 0)
    return _batches(body, events[:MAX_EVENTS], clock), +bad


def _parse(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)  # also accepts a bare NaN


def _batches(body: Mapping[str, Any], events: list[Any], clock: Callable[[], int]) -> list[ClientBatch]:
    unknown = {f"tinker.{key}": value for key, value in body.items() if key not in _BATCH_FIELDS}
    fields = ("platform", "sdk_version", "process_uuid")
    resource = {f"tinker.{key}": text for key in fields if (text := _text(body.get(key)))}
    process = _text(body.get("process_uuid"))
    found: dict[str, ClientBatch] = {}
    alike: Counter[str] = Counter()
    for given in events:
        event = given if isinstance(given, dict) else {"event": UNREADABLE_EVENT, "value": given}
        session = _text(event.get("session_id")) or _text(body.get("session_id"))
        batch = found.get(session)
        if batch is None:
            batch = found[session] = ClientBatch(session, process, {"service.name": "tinker", **resource})
        batch.events.append(_event(event, session, unknown, alike, batch.events[-1:], clock))
    return list(found.values())


def _event(
    event: Mapping[str, Any],
    session: str,
    unknown: Mapping[str, Any],
    alike: "Counter[str]",
    before: list[ClientEvent],
    clock: Callable[[], int],
) -> ClientEvent:
    """Parse one event; `before` is the previous one, `alike` counts identical events without an id."""
    identity = _text(event.get("event_id"))
    if not identity:
        content = _digest(event)
        alike[content] += 1
        identity = f"{content}/{alike[content]}"
    index = event.get("event_session_index")
    index = index if type(index) is int and 0 <= index < _LARGEST_INDEX else None
    attrs = _attributes(event, unknown) | {
        foreign.ATTR_SESSION_ID: session,
        foreign.ATTR_EVENT_ID: identity,
    }
    if index is not None:
        attrs[foreign.ATTR_EVENT_INDEX] = index
    elif event.get("event_session_index") is not None:
        attrs["tinker.event_session_index"] = event["event_session_index"]
    moment = _nanoseconds(event.get("timestamp"))
    if moment is None:
        attrs["tinker.timestamp"] = event.get("timestamp")
    name = _name(event)
    if name in (foreign.SESSION_START, foreign.SESSION_END):
        attrs[foreign.ATTR_EVENT_TYPE] = name
    if name == foreign.SESSION_END:
        name, attrs["status"] = names.EVENT_FINISHED, _ending(before)
    trace = read_id(attrs.get("trace_id"), 16)
    record = Event(moment or clock(), _step(attrs), None, trace, None, _severity(event), name, attrs)
    return ClientEvent(record, identity, index, _text(attrs.get("request_id")))


def _digest(event: Mapping[str, Any]) -> str:
    try:
        text = repr(event)  # JSON can contain lone surrogates, which UTF-8 cannot encode
    except RecursionError:
        text = "an event that is nested too deeply to be distinguished from others"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _name(event: Mapping[str, Any]) -> str:
    kind = _text(event.get("event"))
    if kind == "UNHANDLED_EXCEPTION":
        return names.EVENT_EXCEPTION
    return _text(event.get("event_name")) or kind or UNREADABLE_EVENT


def _attributes(event: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of an event, with the other fields of the event and its request under `tinker.*`."""
    data = event.get("event_data")
    attrs = dict(data) if isinstance(data, dict) else {} if data is None else {"event_data": data}
    attrs.update(unknown)
    is_exception = event.get("event") == "UNHANDLED_EXCEPTION"
    for key, value in event.items():
        if is_exception and key in _EXCEPTION_FIELDS:
            attrs[f"exception.{_EXCEPTION_FIELDS[key]}"] = "" if value is None else str(value)
        elif key not in _EVENT_FIELDS:
            attrs[f"tinker.{key}"] = value
    return attrs


def _ending(before: list[ClientEvent]) -> str:
    """Return how a session ended: tinker's client ends it only for an exception, logged right before the end."""
    last = before[0].record if before else None
    return "failed" if last is not None and (last.severity >= _FAILED or last.name == "user_error") else "finished"


def _severity(event: Mapping[str, Any]) -> int:
    word = event.get("severity")
    return names.SEVERITIES.get(word.upper(), 9) if isinstance(word, str) else 9


def _step(attrs: Mapping[str, Any]) -> int | None:
    found = (attrs.get(key) for key in _STEPS)
    return next((step for step in found if type(step) is int and abs(step) < _LARGEST_STEP), None)


def _text(value: Any) -> str:
    """Return a string, also from a number; lone surrogates are replaced."""
    if value is None or isinstance(value, (dict, list)):
        return ""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _nanoseconds(value: Any) -> int | None:
    """Parse ISO 8601, or a number since 1970 in s, ms, µs or ns, whichever gives a plausible time."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return _of_datetime(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e19:
        return None
    scale = next(scale for scale, most in ((10**9, 1e11), (10**6, 1e14), (10**3, 1e17), (1, 1e20)) if value < most)
    whole = int(value)
    found = whole * scale + round((value - whole) * scale)
    return found if found <= _LATEST else None


def _of_datetime(moment: datetime) -> int | None:
    passed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    found = (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1000
    return found if 0 < found <= _LATEST else None
