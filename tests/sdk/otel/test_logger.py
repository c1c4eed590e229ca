"""Logs and events that come through the OpenTelemetry API."""

import logging
import logging.handlers
import queue
from collections.abc import Iterator

import pytest
from opentelemetry import _logs, trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.instrumentation.logging import LoggingInstrumentor
from opentelemetry.instrumentation.logging.handler import LoggingHandler

from stepscope.model.records import Event, Log
from stepscope.testing import Recording, recorded

otel_logger = _logs.get_logger("library", "3")
"""Obtained before any run: OpenTelemetry hands out a proxy."""
app = logging.getLogger("test.otel.app")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    before, handlers = app.level, list(logging.getLogger().handlers)
    app.setLevel(logging.DEBUG)
    yield
    app.setLevel(before)
    logging.getLogger().handlers[:] = handlers


def bodies(recording: Recording) -> list[object]:
    """The bodies of the logs of this test, in order."""
    return [log.body for log in recording.of(Log) if log.scope in ("library", app.name)]


def test_an_emitted_record_is_a_log() -> None:
    """Severity, body, attributes, time, scope, ids and step are kept; secrets are masked."""
    with recorded(otel=True) as recording, recording.run.step(4), recording.run.span("work") as span:
        otel_logger.emit(
            LogRecord(
                timestamp=123,
                severity_number=SeverityNumber.WARN2,
                severity_text="beware",
                body={"text": "hot", "password": "x"},
                attributes={"gpu": 3, "token": "abc"},
            )
        )
    (log,) = recording.of(Log)
    assert (log.time, log.step, log.severity, log.scope) == (123, 4, 14, "library")
    assert log.body == {"text": "hot", "password": "[redacted]"}
    assert log.attrs == {
        "otel.scope.version": "3",
        "gpu": 3,
        "token": "[redacted]",
        "otel.severity_text": "beware",
    }
    assert (log.trace_id, log.span_id) == (span.trace, span.id)


@pytest.mark.parametrize("event_name", [None, "milestone"])
def test_observed_time_and_flags_are_kept(event_name: str | None) -> None:
    """A line with a time of its own also has the time at which it was seen, and the flags of its trace."""
    with recorded(otel=True) as recording, recording.run.span("work"):
        otel_logger.emit(
            LogRecord(timestamp=5.5, observed_timestamp=10**18, body="x", event_name=event_name)  # type: ignore[arg-type]
        )
        otel_logger.emit(LogRecord(timestamp=-1, observed_timestamp=10**18, body="y", event_name=event_name))
        counts = recording.run.outcomes.snapshot()
    found = [each for each in recording.records if getattr(each, "body", None) in ("x", "y")]
    assert [(each.time, each.observed, each.flags) for each in found] == [(5, 10**18, 1), (10**18, 10**18, 1)]
    assert counts["rejected/timestamp/ValueError"] == 1


def test_keyword_arguments_do_as_well() -> None:
    """A record may be given in parts; an exception is noted with its type."""
    with recorded(otel=True) as recording:
        otel_logger.emit(severity_text="ERROR", body="failed", exception=ValueError("bad"))
    (log,) = recording.of(Log)
    assert (log.severity, log.body, log.trace_id) == (17, "failed", None)
    assert (log.attrs["exception.type"], log.attrs["exception.message"]) == ("ValueError", "bad")


def test_a_record_with_an_event_name_is_an_event() -> None:
    """OpenTelemetry's events are ours, with body and attributes."""
    with recorded(otel=True) as recording:
        otel_logger.emit(LogRecord(event_name="checkpoint.saved", body="b", attributes={"path": "/x"}))
    event = recording.of(Event)[1]
    assert (event.name, event.severity, event.body) == ("checkpoint.saved", 9, "b")
    assert event.attrs == {"otel.scope.version": "3", "path": "/x", "otel.scope.name": "library"}
    assert recording.of(Log) == []


def test_a_given_context_counts() -> None:
    """The ids and the step are those of the span in the record's context, not of the code that emits it."""
    with recorded(otel=True) as recording:
        with recording.run.step(6) as step:
            context = trace.set_span_in_context(step, Context())
        otel_logger.emit(LogRecord(body="late", context=context))
    (log,) = recording.of(Log)
    assert (log.step, log.trace_id, log.span_id) == (6, step.trace, step.id)


@pytest.mark.parametrize("instrumented", ["before init", "after init"])
def test_each_python_log_is_recorded_once(instrumented: str) -> None:
    """OpenTelemetry's logging instrumentation brings every line again; each is recorded once, whichever came first."""
    instrumentor = LoggingInstrumentor()
    if instrumented == "before init":
        instrumentor.instrument(inject_trace_context=True)
    try:
        with recorded(otel=True, capture_logs=True) as recording:
            if instrumented == "after init":
                instrumentor.instrument(inject_trace_context=True)
            with recording.run.step(2), recording.run.span("work") as span:
                for number in range(50):
                    app.info("line %d", number, extra={"number": number})
            logging.getLogger("stepscope.test").warning("ours")
    finally:
        instrumentor.uninstrument()
    assert bodies(recording) == [f"line {number}" for number in range(50)]
    log = recording.of(Log)[7]
    assert (log.step, log.span_id, log.attrs["number"], log.scope) == (2, span.id, 7, app.name)
    assert "code.line.number" in log.attrs, "ours is kept: it knows more"
    assert not any(key.startswith("otel") for key in log.attrs)
    assert not [log for log in recording.of(Log) if log.body == "ours"]


def test_once_also_from_a_listener_thread() -> None:
    """A queue between the logger and OpenTelemetry's handler makes no second record."""
    waiting: queue.Queue[logging.LogRecord] = queue.Queue()
    with recorded(otel=True, capture_logs=True) as recording:
        listener = logging.handlers.QueueListener(waiting, LoggingHandler())
        sender = logging.handlers.QueueHandler(waiting)
        app.addHandler(sender)
        listener.start()
        for number in range(20):
            app.info("queued %d", number)
        listener.stop()
        app.removeHandler(sender)
    assert bodies(recording) == [f"queued {number}" for number in range(20)]


def test_what_only_opentelemetry_brings_is_recorded() -> None:
    """Without our own capture, or below its level, what OpenTelemetry's handler passes on is kept."""
    taker = LoggingHandler(level=logging.DEBUG)
    app.addHandler(taker)
    try:
        with recorded(otel=True, capture_logs=True) as with_capture:
            app.debug("fine")
            app.info("plain")
        with recorded(otel=True, capture_logs=False) as without:
            app.info("alone")
    finally:
        app.removeHandler(taker)
    assert bodies(with_capture) == ["fine", "plain"]
    assert bodies(without) == ["alone"]


def test_without_a_run_nothing_happens() -> None:
    """Emitting before init or after finish is harmless, and says that it is not enabled."""
    with recorded(otel=True):
        assert otel_logger.enabled()
    assert not otel_logger.enabled()
    otel_logger.emit(LogRecord(body="lost"))
    otel_logger.emit(body="lost")


def test_nothing_raises() -> None:
    """Emitting never raises, and valid parts are recorded."""
    with recorded(otel=True) as recording:
        otel_logger.emit(LogRecord(body=object(), attributes="text", severity_text=5))  # type: ignore[arg-type]
        otel_logger.emit("no record")  # type: ignore[call-overload]
        otel_logger.emit(LogRecord(timestamp="now", body="bad time"))  # type: ignore[arg-type]
        otel_logger.emit(body="sane", severity_number=99)  # type: ignore[arg-type]
    assert [log.body for log in recording.of(Log)][-1] == "sane"
    assert recording.of(Log)[-1].severity == 0
