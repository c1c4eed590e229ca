"""Events in the shape of the Tinker service, judged by the unmodified types of its own client."""

import json
import math
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from stepscope.dialects.tinker import wire
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from tests.late import late

types = late("tinker.types")
WRITER = Writer(id="r0-a1-h-1-x", run="r1", project="gpt", wall_ns=1_700_000_000_000_000_000)
T = 1_700_000_004_001_495_123


def event(record: Record, number: int = 0, writer: Writer = WRITER) -> Any:
    """A record as the service's own type reads it; whatever the type does not know would be an error."""
    written = wire.body(writer, wire.session_of(writer, record), [wire.event_of(writer, record, number)], "Linux", "1")
    return types.TelemetrySendRequest.model_validate_json(written, strict=False).events[0]


def test_session_start_and_end() -> None:
    """Of the first rank, with the duration as the service's own client writes it."""
    start = event(Event(T, None, None, None, None, 9, "train.run.started", {"config": {"lr": 1}}))
    assert type(start).__name__ == "SessionStartEvent"
    assert (start.event, start.severity, start.event_session_index) == ("SESSION_START", "INFO", 0)
    assert start.timestamp == datetime(2023, 11, 14, 22, 13, 24, 1495, UTC)
    end = event(Event(T, None, None, None, None, 17, "train.run.finished", {"status": "failed"}), 4)
    assert type(end).__name__ == "SessionEndEvent"
    assert (end.duration, end.severity, end.event_session_index) == ("0:00:04.001495", "ERROR", 4)


def test_other_ranks_say_so_in_words() -> None:
    """A session begins once."""
    second = Writer(id="r1-a1-h-2-x", run="r1", project="gpt", rank=1, world_size=2)
    found = event(Event(T, None, None, None, None, 9, "train.run.started"), writer=second)
    assert (found.event, found.event_name, found.event_data["dl.rank"]) == ("GENERIC_EVENT", "train.run.started", 1)


def test_exceptions() -> None:
    """An exception has type, message and, if present, traceback."""
    attrs = {"exception.type": "ValueError", "exception.message": "boom", "exception.stacktrace": "at x"}
    found = event(Event(T, 3, None, None, None, 21, "exception", attrs))
    assert (found.event, found.error_type, found.error_message) == ("UNHANDLED_EXCEPTION", "ValueError", "boom")
    assert (found.traceback, found.severity) == ("at x", "CRITICAL")
    bare = event(Event(T, 3, None, None, None, 17, "exception", {"exception.type": "E"}))
    assert bare.traceback is None


@pytest.mark.parametrize(
    ("record", "name", "data"),
    [
        (Event(T, 7, None, None, None, 9, "milestone", {"text": "half"}), "milestone", {"text": "half"}),
        (Event(T, 7, "timesteps", None, None, 9, "e", {}, "said"), "e", {"train.step": 7, "body": "said"}),
        (Alert(T, 7, None, None, None, 13, "high KL", "0.2"), "high KL", {"kind": "alert", "message": "0.2"}),
        (Log(T, 7, None, b"\1" * 16, None, 13, "slow"), "log", {"message": "slow", "trace_id": "01" * 16}),
        (Metric(T, 7, None, "trainer", {"loss": math.nan}), "metric", {"values": {"trainer/loss": "NaN"}}),
        (Span(T, 5, 7, None, b"\1" * 16, b"\1" * 8, None, "train.step"), "train.step", {"duration_ns": 5}),
    ],
)
def test_everything_else_is_generic(record: Record, name: str, data: dict[str, Any]) -> None:
    """Other records become generic events with run, rank and step."""
    found = event(record)
    assert type(found).__name__ == "GenericEvent"
    assert found.event_name == name
    assert found.event_data["train.run.id" if isinstance(record, Event) else "run_id"] == "r1"
    assert data.items() <= found.event_data.items()


def test_severities() -> None:
    """OpenTelemetry's numbers as the five words."""
    words = {1: "DEBUG", 5: "DEBUG", 9: "INFO", 13: "WARNING", 17: "ERROR", 21: "CRITICAL", 24: "CRITICAL"}
    for number, word in words.items():
        assert event(Event(T, None, None, None, None, number, "e")).severity == word


def test_secrets_are_masked() -> None:
    """The service's own client sends its key in clear; we send none."""
    attrs = {"request_headers": {"x-api-key": "tml-secret"}}
    made = wire.event_of(WRITER, Event(T, None, None, None, None, 9, "e", attrs), 0)
    written = wire.body(WRITER, "s", [made], "", "")
    assert b"tml-secret" not in written


def test_identities() -> None:
    """Ids are UUIDs that a repetition shares and another record, process or attempt does not."""
    record = Event(T, 1, None, None, None, 9, "e")
    again, other = wire.event_of(WRITER, record, 5), wire.event_of(WRITER, Event(T, 2, None, None, None, 9, "e"), 5)
    assert wire.event_of(WRITER, record, 0)["event_id"] == again["event_id"] != other["event_id"]
    body = json.loads(wire.body(WRITER, wire.session_id(WRITER), [again], "Linux", "1"))
    for text in (body["session_id"], body["process_uuid"], again["event_id"]):
        assert str(uuid.UUID(text)) == text
    second = Writer(id="r1-a1-h-2-x", run="r1", project="gpt", rank=1)
    later = Writer(id="r0-a2-h-9-x", run="r1", project="gpt", attempt=2)
    assert wire.session_id(WRITER) == wire.session_id(second) != wire.session_id(later)
    assert wire.process_uuid(WRITER) != wire.process_uuid(second)
    assert wire.idempotency_key([again]) == wire.idempotency_key([again]) != wire.idempotency_key([other])


def test_an_event_of_a_session_is_the_mapping_that_was_logged() -> None:
    """Session, id and position are those the client gave, and the data has nothing that was not logged."""
    data = {"request_type": "Sample", "session_id": "mine", "nested": {"a": [1, None]}, "ok": True}
    ids = {"tinker.session_id": "session-1", "tinker.event_id": "an-id", "tinker.event_session_index": 7}
    record = Event(T, 3, None, b"\1" * 16, None, 9, "request.start", {**data, **ids})
    found = event(record)
    assert found.event_data == data
    assert (found.event_id, found.event_session_index) == ("an-id", 7)
    assert wire.session_of(WRITER, record) == "session-1"
    assert wire.session_of(WRITER, Event(T, 3, None, None, None, 9, "e")) == wire.session_id(WRITER)


def test_session_marks_of_a_client() -> None:
    """A client's session events have the service's own types, on every rank."""
    writer = Writer(id="r1-a1-h-2-x", run="r1", project="gpt", rank=1, world_size=2)
    start = Event(T, None, None, None, None, 9, "SESSION_START", {"tinker.event": "SESSION_START"})
    assert type(event(start, writer=writer)).__name__ == "SessionStartEvent"
    attrs = {"tinker.event": "SESSION_END", "tinker.duration": "0:00:01.500000"}
    end = event(Event(T, None, None, None, None, 9, "SESSION_END", attrs), writer=writer)
    assert (type(end).__name__, end.duration) == ("SessionEndEvent", "0:00:01.500000")
