"""Bodies of every Tinker client become events of runs, and none is too strange to read."""

import json
from typing import Any

import pytest

from stepscope.dialects.tinker.receiver.telemetry_body import MAX_EVENTS, NO_SESSION, UNREADABLE_EVENT, read_body
from stepscope.model import names
from stepscope.model.records import Event
from stepscope.wire import foreign_names

TINKER_036 = b"""{"events":[
{"event":"SESSION_START","event_id":"11111111-0000-4000-8000-000000000000","event_session_index":0,"severity":"INFO",
 "timestamp":"2026-11-16T08:00:00.000001Z"},
{"event":"GENERIC_EVENT","event_id":"11111111-0000-4000-8000-000000000001","event_session_index":1,
 "severity":"WARNING","timestamp":"2026-11-16T08:00:01Z","event_name":"APIFuture.result_async.api_status_error",
 "event_data":{"request_id":"req-7","request_type":"ForwardBackward","status_code":408,"iteration":3,
 "elapsed_time":null,"request_headers":{"x-api-key":"tml-secret"}}},
{"event":"UNHANDLED_EXCEPTION","event_id":"11111111-0000-4000-8000-000000000002","event_session_index":2,
 "severity":"ERROR","timestamp":"2026-11-16T08:00:02Z","error_type":"ValueError","error_message":"no",
 "traceback":"Traceback ..."},
{"event":"SESSION_END","event_id":"11111111-0000-4000-8000-000000000003","event_session_index":3,"severity":"INFO",
 "timestamp":"2026-11-16T08:00:03Z","duration":"0:00:03.000000"}],
"platform":"Linux","sdk_version":"0.36.0","session_id":"sess-1","process_uuid":"22222222-0000-4000-8000-000000000000"}"""
TINKEX = b"""{"session_id":"0f9d","platform":"unix/linux","sdk_version":"0.15.0","events":[{"event":"GENERIC_EVENT",
"event_id":"0123456789abcdef0123456789abcdef","event_session_index":4,"event_name":"tinkex.http.request.stop",
"severity":"INFO","timestamp":"2026-11-16T08:00:00.123456Z","event_data":{"measurements":{"duration":1200345},
"metadata":{"path":"/api/v1/asample","result":"ok","retry":"false"}}}]}"""
DOCUMENT_PYTHON = b"""{"events":[{"session_id":"doc","event_name":"request.complete","event_data":
{"request_type":"ForwardBackward","duration_ms":12.5,"status":"success"},"severity":"INFO","timestamp":1790000000.25}]}"""
DOCUMENT_ELIXIR = b"""{"session_id":"doc","events":[{"event_name":"tinkex.http.request.stop","measurements":
{"duration":7},"metadata":{"status":"success"},"timestamp":1790000000250}]}"""


def events(data: bytes) -> list[Event]:
    """The records of a body with one session."""
    (batch,), bad = read_body(data, lambda: 5)
    assert not bad
    return [event.record for event in batch.events]


def test_tinkers_own_body() -> None:
    """Starts, events, exceptions and ends keep their names, severities, data and times."""
    start, failed, raised, end = events(TINKER_036)
    assert [each.name for each in (start, failed, raised, end)] == [
        foreign_names.SESSION_START,
        "APIFuture.result_async.api_status_error",
        names.EVENT_EXCEPTION,
        names.EVENT_FINISHED,
    ]
    assert [each.severity for each in (start, failed, raised, end)] == [9, 13, 17, 9]
    assert start.time == 1_794_816_000_000_001_000
    assert failed.attrs["request_id"] == "req-7"
    assert (failed.attrs["elapsed_time"], failed.step) == (None, None)
    assert raised.attrs["exception.type"] == "ValueError"
    assert raised.attrs["exception.stacktrace"] == "Traceback ..."
    assert (end.attrs["status"], end.attrs[foreign_names.ATTR_DURATION]) == ("failed", "0:00:03.000000")
    (batch,), _ = read_body(TINKER_036)
    assert (batch.run, [event.index for event in batch.events]) == ("sess-1", [0, 1, 2, 3])
    assert batch.resource["tinker.sdk_version"] == "0.36.0"
    assert batch.events[1].request_id == "req-7"


def test_tinkexs_body() -> None:
    """Measurements and metadata stay as they came; an id need be no UUID, and the process may be unnamed."""
    (record,) = events(TINKEX)
    assert (record.name, record.attrs["measurements"]) == ("tinkex.http.request.stop", {"duration": 1200345})
    assert record.attrs[foreign_names.ATTR_EVENT_ID] == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(("body", "key"), [(DOCUMENT_PYTHON, "duration_ms"), (DOCUMENT_ELIXIR, "tinker.measurements")])
def test_the_documents_bodies(body: bytes, key: str) -> None:
    """Events without id, position or kind are read, with their session beside or inside them and times as numbers."""
    (record,) = events(body)
    assert record.time == 1_790_000_000_250_000_000
    assert (record.attrs[foreign_names.ATTR_SESSION_ID], key in record.attrs) == ("doc", True)


def test_events_without_an_id_have_the_same_one_again() -> None:
    """The same body gives the same identities, and events that look alike in one body have different ones."""
    body = json.dumps({"session_id": "s", "events": [{"event_name": "a"}, {"event_name": "a"}]}).encode()
    first, again = ([each.id for each in read_body(body)[0][0].events] for _ in range(2))
    assert first == again
    assert len(set(first)) == 2


@pytest.mark.parametrize("data", [r'"\ud800"', "[" * 900 + "]" * 900, "1" * 400, "1e999"])
def test_strange_values_spoil_nothing(data: str) -> None:
    """Whatever JSON can spell is read, and the other events of the request with it."""
    body = f'{{"session_id":"s","events":[{{"event_name":"a","event_data":{{"x":{data}}}}},{{"event_name":"b"}}]}}'
    assert [record.name for record in events(body.encode())] == ["a", "b"]


def test_unknown_fields_are_kept() -> None:
    """What a newer client adds to a request or an event is an attribute."""
    body = {
        "session_id": "s",
        "region": "eu",
        "events": [{"event": "NEW_KIND", "fresh": [1, {"a": None}], "event_id": 7}],
    }
    (record,) = events(json.dumps(body).encode())
    assert (record.name, record.attrs["tinker.fresh"]) == ("NEW_KIND", [1, {"a": None}])
    assert (record.attrs["tinker.region"], record.attrs[foreign_names.ATTR_EVENT_ID]) == ("eu", "7")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"7", b'{"events": 3}', b'{"events": {"a": 1}}', b"[" * 100_000, b"\xff\xfe", b'"text"'],
)
def test_what_has_no_events_is_counted(body: bytes) -> None:
    """A body that is no telemetry gives no event and one count."""
    found, bad = read_body(body)
    assert (found, sum(bad.values())) == ([], 1)


@pytest.mark.parametrize("session", [None, "", 3.5, [], "two\nlines", "x" * 5000])
def test_an_unknown_session_gets_a_run(session: Any) -> None:
    """Events are kept whatever their session is called."""
    (batch,), bad = read_body(json.dumps({"session_id": session, "events": [1, None, {"event_name": "a"}]}).encode())
    assert (batch.run, len(batch.events), not bad) == ("3.5" if session == 3.5 else NO_SESSION, 3, True)
    assert batch.events[0].record.name == UNREADABLE_EVENT


@pytest.mark.parametrize("moment", [None, "soon", True, -1, 1e300, "9999-12-31T23:59:59Z", {}, 10**30])
def test_an_invalid_time_becomes_now(moment: Any) -> None:
    """The event is kept at the time it arrived, with what it said beside it."""
    (record,) = events(json.dumps({"session_id": "s", "events": [{"event_name": "a", "timestamp": moment}]}).encode())
    assert (record.time, record.attrs["tinker.timestamp"]) == (5, moment)


@pytest.mark.parametrize("moment", ["1790000000", "NaN", "Infinity"])
def test_a_bare_nan_spoils_nothing(moment: str) -> None:
    """JSON as careless encoders write it is read."""
    body = f'{{"session_id":"s","events":[{{"event_name":"a","timestamp":{moment},"event_data":{{"x":NaN}}}}]}}'
    assert events(body.encode())[0].name == "a"


def test_too_many_events_are_counted() -> None:
    """A request is bounded, and what it had beyond that is counted."""
    (batch,), bad = read_body(json.dumps({"session_id": "s", "events": [{}] * (MAX_EVENTS + 3)}).encode())
    assert (len(batch.events), sum(bad.values())) == (MAX_EVENTS, 3)


def test_a_step_is_the_step_and_an_iteration_is_not() -> None:
    """`step` gives the position on the page; `iteration` counts the polls of a future."""
    body = {"session_id": "s", "events": [{"event_data": {"step": 7}}, {"event_data": {"iteration": 7}}]}
    assert [record.step for record in events(json.dumps(body).encode())] == [7, None]
