"""Log records: logs, events and alerts, none of them refused."""

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope

from stepscope.model.records import Alert, Event, Log, Record
from stepscope.wire.otlp.decode.decode_request import BAD_CONTEXT
from stepscope.wire.otlp.names import Encoding
from tests.wire.otlp.bodies import ENCODINGS, SPAN, TIME, TRACE, decoded, log, records, request

pytestmark = pytest.mark.parametrize("encoding", ENCODINGS)


def one(message: Any, encoding: Encoding, **options: Any) -> Record:
    """The only record of a request that holds this log record."""
    scope = options.pop("scope", None)
    found = decoded("logs", request("logs", [message], scope=scope), encoding, **options)
    assert found.rejections.count == 0
    (record,) = records(found)
    return record


def test_a_log_keeps_everything(encoding: Encoding) -> None:
    """Time, ids, severity, body, attributes, step and scope."""
    message = log(
        {"train.step": 3, "k": True},
        trace_id=TRACE,
        span_id=SPAN,
        severity_number=13,
        severity_text="WARN",
        body=AnyValue(string_value="hot"),
    )
    found = one(message, encoding, scope=InstrumentationScope(name="root"))
    assert found == Log(TIME, 3, None, TRACE, SPAN, 13, "hot", {"k": True}, "root")


def test_time_falls_back_to_observed_then_to_the_clock(encoding: Encoding) -> None:
    """A log without a time has the time it was seen."""
    observed = log(time_unix_nano=0, observed_time_unix_nano=9)
    assert one(observed, encoding).time == 9
    assert one(log(time_unix_nano=0), encoding, clock=lambda: 77).time == 77
    assert one(log(time_unix_nano=2**64 - 1), encoding, clock=lambda: 77).time == 77


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ({"trace_id": b"short", "span_id": SPAN}, (None, None)),
        ({"trace_id": bytes(16), "span_id": SPAN}, (None, None)),
        ({"trace_id": TRACE, "span_id": b"bad"}, (TRACE, None)),
        ({"span_id": SPAN}, (None, None)),
    ],
)
def test_bad_ids_unlink_a_log(encoding: Encoding, ids: Any, kept: tuple[Any, Any]) -> None:
    """The line is kept, the link is not."""
    found = one(log(**ids), encoding)
    assert isinstance(found, Log)
    assert (found.trace_id, found.span_id) == kept


@pytest.mark.parametrize(
    ("number", "text", "severity", "attrs"),
    [
        (0, "WARNING", 13, {}),
        (0, "warn", 13, {}),
        (9, "INFO", 9, {}),
        (10, "NOTICE", 10, {"otel.severity_text": "NOTICE"}),
        (0, "NOTICE", 0, {"otel.severity_text": "NOTICE"}),
        (99, "ERROR", 17, {}),
        (0, "", 0, {}),
    ],
)
def test_severity_from_number_or_word(
    encoding: Encoding, number: int, text: str, severity: int, attrs: dict[str, Any]
) -> None:
    """The number counts, else the word; a word of its own is kept."""
    found = one(log(severity_number=number, severity_text=text), encoding)
    assert isinstance(found, Log)
    assert (found.severity, found.attrs) == (severity, attrs)


def test_an_event_name_makes_an_event(encoding: Encoding) -> None:
    """A log with an event name becomes an event with its body, and the scope as attributes."""
    message = log({"n": 1}, event_name="train.loss_spike", body=AnyValue(int_value=5), trace_id=TRACE)
    found = one(message, encoding, scope=InstrumentationScope(name="lib"))
    assert found == Event(TIME, None, None, TRACE, None, 0, "train.loss_spike", {"n": 1, "otel.scope.name": "lib"}, 5)


def test_the_older_attribute_makes_an_event_too(encoding: Encoding) -> None:
    """Before log records had an event name it was an attribute."""
    assert one(log({"event.name": "page_view"}), encoding) == Event(TIME, None, None, None, None, 0, "page_view")


def test_alert_firing_makes_an_alert(encoding: Encoding) -> None:
    """The event in which alerts travel becomes an alert again."""
    message = log(
        {"alert.rule.name": "loss.nan", "x": 1},
        event_name="alert.firing",
        severity_number=17,
        body=AnyValue(string_value="the loss is NaN"),
    )
    assert one(message, encoding) == Alert(TIME, None, None, None, None, 17, "loss.nan", "the loss is NaN", {"x": 1})


def test_what_a_scope_says_rides_on_its_logs(encoding: Encoding) -> None:
    """A scope's version is added to the attributes of its logs."""
    found = one(log({"a": 1}), encoding, scope=InstrumentationScope(name="lib", version="2"))
    assert isinstance(found, Log)
    assert (found.scope, found.attrs) == ("lib", {"a": 1, "otel.scope.version": "2"})


def test_the_count_of_dropped_attributes_is_kept(encoding: Encoding) -> None:
    """What the client dropped is shown."""
    found = one(log(dropped_attributes_count=2), encoding)
    assert isinstance(found, Log)
    assert found.attrs == {"otel.dropped_attributes_count": 2}


@pytest.mark.parametrize(
    ("ids", "warned"),
    [
        ({}, False),
        ({"trace_id": TRACE, "span_id": SPAN}, False),
        ({"trace_id": TRACE}, False),
        ({"trace_id": bytes(16), "span_id": bytes(8)}, False),
        ({"trace_id": b"short"}, True),
        ({"trace_id": TRACE, "span_id": b"short"}, True),
        ({"span_id": SPAN}, True),
    ],
)
def test_a_context_that_is_left_out_is_said(ids: Any, warned: bool, encoding: Encoding) -> None:
    """The record is taken without it."""
    found = decoded("logs", request("logs", [log(**ids)]), encoding)
    assert (len(records(found)), found.rejections.warnings) == (1, {BAD_CONTEXT: 1} if warned else {})
