"""What start_as_current_span returns."""

import asyncio
import contextvars

import pytest
from opentelemetry import trace

from stepscope.model.records import Span
from stepscope.sdk.context import current_span
from stepscope.testing import recorded

tracer = trace.get_tracer("entries")


def test_as_a_decorator_each_call_has_its_span() -> None:
    """A decorated function and coroutine keep name and result; no span is made before the first call."""

    @tracer.start_as_current_span("work")
    def work(number: int) -> int:
        """Work."""
        assert current_span() is not None
        return number * 2

    @tracer.start_as_current_span("later")
    async def later() -> str:
        await asyncio.sleep(0.01)
        return "done"

    with recorded(otel=True) as recording:
        assert [work(1), work(2)] == [2, 4]
        assert asyncio.run(later()) == "done"
        assert current_span() is None
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    spans = recording.of(Span)
    assert [span.name for span in spans if span.scope] == ["work", "work", "later"]
    assert all(span.duration >= 10_000_000 for span in spans if span.name == "later")


def test_it_may_leave_the_span_open() -> None:
    """With end_on_exit=False the span stays open and can be ended elsewhere."""
    with recorded(otel=True) as recording:
        with tracer.start_as_current_span("open", end_on_exit=False) as span:
            pass
        assert span.is_recording()
        assert current_span() is None
        span.end()
    assert [span.name for span in recording.of(Span) if span.scope] == ["open"]


def test_what_is_no_error_is_not_noted() -> None:
    """Only exceptions fail a span, not what merely leaves it, as in OpenTelemetry."""
    with recorded(otel=True) as recording:
        for error in (GeneratorExit, asyncio.CancelledError, KeyboardInterrupt):
            with pytest.raises(error), tracer.start_as_current_span(error.__name__):
                raise error
    assert [(span.status, span.events) for span in recording.of(Span) if span.scope] == [(0, ())] * 3


def test_it_may_be_left_elsewhere() -> None:
    """Leaving in another context than it was entered in ends the span and raises nothing."""
    with recorded(otel=True) as recording:
        entry = tracer.start_as_current_span("wandering")
        contextvars.copy_context().run(entry.__enter__)
        contextvars.copy_context().run(entry.__exit__, None, None, None)
    assert [span.name for span in recording.of(Span) if span.scope] == ["wandering"]
