"""OpenTelemetry's TracerProvider and Tracer: they make our spans, for whatever run is current."""

from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.util.types import Attributes

from stepscope.sdk.attributes import clean_own, plain_texts, safe_text
from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, current
from stepscope.sdk.otel.entry import Entry
from stepscope.sdk.otel.seat import Seat, clean_attributes, said_by_scope
from stepscope.sdk.ports import PackedLink, Part
from stepscope.sdk.spans import Span, StepSpan, link

_INTERNAL = trace.SpanKind.INTERNAL


class TracerProvider(trace.TracerProvider):
    """Gives every library in the process a tracer that writes to the current run."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> "Tracer":
        """The tracer of a library."""
        said = said_by_scope(instrumenting_library_version, attributes)
        return Tracer(self._seat, str(instrumenting_module_name or ""), said)


class QuietSpan(Span):
    """A span that was asked not to note the exception that ends it, or not to fail by it."""

    notes = True
    fails = True

    def fail(self, error: BaseException) -> None:
        """Record an exception that ends the span as far as that was asked for."""
        if self.notes:
            self.record_exception(error)
        if self.fails:
            self.blame(error)


_OURS = frozenset({Span, StepSpan, QuietSpan})


class Tracer(trace.Tracer):
    """Starts spans of one scope. Nothing here raises; with no run the spans record nothing."""

    def __init__(self, seat: Seat, scope: str, said: dict[str, Any]) -> None:
        self._seat = seat
        self._scope = scope
        self._said = said

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = _INTERNAL,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """Start a span below that of the context, the current one when none is given; it is not made current."""
        run = self._seat.run
        try:
            if run is None:
                return _nowhere(context)
            here: Mapping[str, Any] = current() if context is None else context
            above: Any = here.get(SPAN_KEY)
            if above is None and context is None:
                above = run.above
            attrs = self._attrs(run, attributes) if attributes or self._said else {}
            if carried := {**current().get(CARRIED_KEY, {}), **here.get(CARRIED_KEY, {})}:
                attrs = {**carried, **attrs}
            name = name if type(name) is str and name in plain_texts else safe_text(str(name))
            if record_exception and set_status_on_exception:
                span = Span(run, name, attrs, above)
            else:
                span = QuietSpan(run, name, attrs, above)
                span.notes, span.fails = record_exception, set_status_on_exception
            span.joins = False  # in OpenTelemetry entering such a span only sees to its end
            span.scope, span.usual = self._scope, False
            if type(above) in _OURS and above._run is run:
                span.mark = above.mark
            if kind is not _INTERNAL:
                _be(span, kind)
            if links or (above is None and run.above is not None):
                span._links = _links(run, links or (), above)
            if start_time:
                _start_at(span, start_time)
            return span
        except Exception as error:
            if run is not None:
                run.outcomes.add("rejected", "span", type(error).__name__)
            return trace.INVALID_SPAN

    def start_as_current_span(  # type: ignore[override]  # less than a generator, and so less to wait for
        self,
        name: str,
        context: Context | None = None,
        kind: trace.SpanKind = _INTERNAL,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Entry:
        """Start a span when entered and make it current; a context manager, or a decorator."""
        start = self.start_span
        if record_exception and set_status_on_exception:
            return Entry(start, (name, context, kind, attributes, links, start_time), end_on_exit)
        flags = (record_exception, set_status_on_exception)
        return Entry(start, (name, context, kind, attributes, links, start_time, *flags), end_on_exit)

    def _attrs(self, run: Part, attributes: Any) -> dict[str, Any]:
        try:
            return clean_own({**self._said, **(attributes or {})})
        except Exception:  # not a mapping, or keys that are no text
            return {**self._said, **clean_attributes(run, attributes)}


def _nowhere(context: Context | None) -> trace.Span:
    """The span of no run: it records nothing and passes on the one above."""
    above = trace.get_current_span(context)
    return above if isinstance(above, trace.NonRecordingSpan) else trace.NonRecordingSpan(above.get_span_context())


def _be(span: Span, kind: Any) -> None:
    """Give a span its kind, if it is one."""
    if isinstance(kind, trace.SpanKind):
        span.kind, span.kind_number = kind, kind.value + 1


def _links(run: Part, links: Any, above: trace.Span | None) -> list[PackedLink]:
    """Pack the valid links, and for a root one to the span in which the process was started."""
    packed = []
    if above is None and run.above is not None:
        packed.append(link(run.above.get_span_context()))
    try:
        packed += [link(each.context, each.attributes) for each in links if each.context.is_valid]
    except Exception as error:
        run.outcomes.add("rejected", "link", type(error).__name__)
    return packed


def _start_at(span: Span, start: Any) -> None:
    """Give a span a start of its own, if it is a time, and a duration that is counted from there."""
    if isinstance(start, (int, float)):
        span.start = int(start)
        span._began -= max(time_ns() - span.start, 0)
