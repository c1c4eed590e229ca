"""Times, links and limits of spans, as they come through the OpenTelemetry API."""

import math
import time
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace

from stepscope.model.records import Span
from stepscope.sdk.otel.current_run import CurrentRun
from stepscope.sdk.otel.tracer import TracerProvider
from stepscope.testing import Recording, recorded

REMOTE = trace.SpanContext(0xABC, 0xDEF, True, trace.TraceFlags(3), trace.TraceState([("vendor", "secret-free")]))
tracer = trace.get_tracer("library")


def by_name(recording: Recording) -> dict[str, Span]:
    """The finished spans, by name."""
    return {span.name: span for span in recording.of(Span) if span.duration is not None}


@pytest.mark.parametrize("number", [np.int64, np.uint64, np.float64, np.int32, np.array, float, Decimal, Fraction, int])
def test_times_may_be_any_real_number(number: Callable[[int], Any]) -> None:
    """Starts, ends and times of events are kept exactly, 0 included."""
    with recorded(otel=True) as recording:
        span = tracer.start_span("timed", start_time=number(0))
        span.add_event("begun", timestamp=number(0))
        span.end(number(2048))
        tracer.start_span("ended at once", start_time=number(4096)).end(end_time=number(0))
    timed = by_name(recording)["timed"]
    assert (timed.time, timed.duration, timed.events[0].time) == (0, 2048, 0)
    assert by_name(recording)["ended at once"].duration == 0


@pytest.mark.parametrize("odd", [True, "now", math.nan, math.inf, -5, 2**64, np.bool_(True), np.array([5]), object()])
def test_what_is_no_time_is_counted_and_the_clock_taken(odd: Any) -> None:
    """A start or end that is no number of nanoseconds costs the span nothing else."""
    with recorded(otel=True) as recording:
        before = time.time_ns()
        tracer.start_span("odd", start_time=odd).end(odd)
        counts = recording.run.outcomes.snapshot()
    span = by_name(recording)["odd"]
    assert before <= span.time <= time.time_ns()
    assert span.duration is not None
    assert span.duration < 60e9
    assert sum("start_time" in key for key in counts) == sum("end_time" in key for key in counts) == 1


def test_limits_of_the_variables_hold_and_what_is_left_out_is_counted() -> None:
    """Attributes, events, links and lengths, with the counts in which OTLP carries them."""
    limits = {
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "2",
        "OTEL_SPAN_EVENT_COUNT_LIMIT": "1",
        "OTEL_SPAN_LINK_COUNT_LIMIT": "1",
        "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": "1",
        "OTEL_ATTRIBUTE_COUNT_LIMIT": "3",
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "4",
    }
    with recorded(otel=True) as recording:
        current = CurrentRun()
        current.run = recording.run
        limited = TracerProvider(current, limits).get_tracer("limited", "1")
        span = limited.start_span("limited", attributes={"a": "abcdef", "b": ["abcdef", 5], "c": 1})
        for number in range(3):
            span.add_event(f"event {number}", {"x": 1, "y": 2})
            span.add_link(REMOTE, {str(each): each for each in range(4)})
        span.end()
        TracerProvider(current, {"OTEL_SPAN_LINK_COUNT_LIMIT": "-1"}).get_tracer("x").start_span("wrong").end()
    found = by_name(recording)["limited"]
    assert found.attrs == {
        "otel.scope.version": "1", "a": "abcd", "b": ["abcd", 5], "otel.dropped_attributes_count": 1,
        "otel.dropped_events_count": 2, "otel.dropped_links_count": 2,
    }  # fmt: skip
    assert [(event.name, event.attrs) for event in found.events] == [
        ("event 0", {"x": 1, "otel.dropped_attributes_count": 1})
    ]
    assert [link.attrs["otel.dropped_attributes_count"] for link in found.links] == [1]


def test_without_variables_events_and_links_have_limits_too() -> None:
    """128 of each are kept, and the record says how many more there were."""
    with recorded(otel=True) as recording:
        span = tracer.start_span("many")
        for _ in range(130):
            span.add_event("e")
            span.add_link(REMOTE)
        span.end()
        tracer.start_span("linked", links=[trace.Link(REMOTE)] * 131).end()
    found = by_name(recording)
    assert (len(found["many"].events), len(found["many"].links), len(found["linked"].links)) == (128, 128, 128)
    assert found["many"].attrs["otel.dropped_events_count"] == found["many"].attrs["otel.dropped_links_count"] == 2
    assert found["linked"].attrs["otel.dropped_links_count"] == 3
