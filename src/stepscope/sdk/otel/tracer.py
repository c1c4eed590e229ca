"""The tracer of OpenTelemetry's API: samplers, spans, and `start_as_current_span`."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from types import TracebackType
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.util.types import Attributes

from stepscope.model.names import ATTR_DROPPED_LINKS
from stepscope.sdk.attributes import clean, is_known, plain_texts, shorten
from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, attach, current, detach
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.otel.current_run import CurrentRun, attributes_of_scope, clean_attributes
from stepscope.sdk.run_protocols import PackedLink, Part, Resource
from stepscope.sdk.span_fields import MAX_LINKS, link, nanoseconds, read_limits
from stepscope.sdk.spans import Span, StepSpan

_LOW = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples roots by their trace id, and children like their parent if `parent_based`."""

    bound: int = _LOW + 1
    """A trace is sampled if the low 64 bits of its id are below this."""
    parent_based: bool = True

    def samples(self, parent: trace.SpanContext | None, trace_id: int) -> bool:
        """Return whether a span is to be recorded; `parent` is None for a root."""
        if self.parent_based and parent is not None:
            return parent.trace_flags.sampled
        return trace_id & _LOW < self.bound


ALWAYS = Sampler()
"""OpenTelemetry's default: every root, and children of sampled spans."""


def read_sampler(env: Mapping[str, str]) -> Sampler:
    """Read OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; an unknown name or ratio is the default, as specified."""
    name, kind = _sampler_name(env)
    bounds = {"always_on": _LOW + 1, "always_off": 0, "traceidratio": round(_ratio(env) * (_LOW + 1))}
    return Sampler(bounds[kind], kind != name) if kind in bounds else ALWAYS


def invalid_sampler(env: Mapping[str, str]) -> list[str]:
    """Return a warning for a sampler or a ratio that is not known."""
    name, kind = _sampler_name(env)
    if kind not in SAMPLERS:
        known = ", ".join([*SAMPLERS, *(f"parentbased_{each}" for each in SAMPLERS)])
        return [f"OTEL_TRACES_SAMPLER={name!r} is ignored: expected one of {known}"] if name else []
    given = env.get("OTEL_TRACES_SAMPLER_ARG", "")
    if kind != "traceidratio" or not given.strip() or _is_ratio(given):
        return []
    return [f"OTEL_TRACES_SAMPLER_ARG={given!r} is ignored: expected a number from 0 to 1"]


SAMPLERS = ("always_on", "always_off", "traceidratio")


def _sampler_name(env: Mapping[str, str]) -> tuple[str, str]:
    name = env.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    return name, name.removeprefix("parentbased_")


def _ratio(env: Mapping[str, str]) -> float:
    given = env.get("OTEL_TRACES_SAMPLER_ARG", "")
    return float(given) if _is_ratio(given) else 1.0


def _is_ratio(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


F = TypeVar("F", bound=Callable[..., Any])


class Entry:
    """A context manager, or a decorator of a function or coroutine function; each time with a fresh span."""

    __slots__ = ("_arguments", "_ends", "_span", "_start", "_token")

    def __init__(self, start: Callable[..., trace.Span], arguments: tuple[Any, ...], ends: bool) -> None:
        self._start = start
        self._arguments = arguments
        self._ends = ends

    def __enter__(self) -> trace.Span:
        self._span = span = self._start(*self._arguments)
        entered = {**current(), SPAN_KEY: span}
        context = self._arguments[1]
        if isinstance(context, dict) and CARRIED_KEY in context:
            entered[CARRIED_KEY] = context[CARRIED_KEY]
        self._token = attach(Context(entered))
        return span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        span = self._span
        try:
            detach(self._token)
        except Exception:  # left in another context than it was entered in, which is legal
            pass
        if error is not None and isinstance(error, Exception) and isinstance(span, Span):
            span.fail(error)
        if self._ends:
            span.end()

    def __call__(self, function: F) -> F:
        start, arguments, ends = self._start, self._arguments, self._ends
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **kwargs: Any) -> Any:
                with Entry(start, arguments, ends):
                    return await function(*args, **kwargs)

            return later  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Entry(start, arguments, ends):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]


_INTERNAL = trace.SpanKind.INTERNAL


class TracerProvider(trace.TracerProvider):
    """Gives every library in the process a tracer that writes to the current run."""

    def __init__(self, current: CurrentRun, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self.current = current
        self.limits = read_limits(env)
        self.sampler = read_sampler(env)

    @property
    def resource(self) -> Resource:
        """The resource of this process, as the SDK's providers have it."""
        return self.current.resource

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> "Tracer":
        """The tracer of a library."""
        scope_attrs = attributes_of_scope(instrumenting_library_version, attributes, schema_url)
        return Tracer(self, str(instrumenting_module_name or ""), scope_attrs)


class QuietSpan(Span):
    """A span that does not record the exception that ends it, or does not set its status from it."""

    notes = True
    fails = True

    def fail(self, error: BaseException) -> None:
        """Record an exception that ends the span, as configured."""
        if self.notes:
            self.record_exception(error)
        if self.fails:
            self.blame(error)


_OURS = frozenset({Span, StepSpan, QuietSpan})


class Tracer(trace.Tracer):
    """Starts spans of one scope. Nothing here raises; with no run the spans record nothing."""

    def __init__(self, provider: TracerProvider, scope: str, scope_attrs: dict[str, Any]) -> None:
        self._current = provider.current
        self._limits = provider.limits
        self._sampler = provider.sampler
        self._usual = provider.limits is None and provider.sampler is ALWAYS
        self._scope = scope
        self._scope_attrs = scope_attrs

    @property
    def resource(self) -> Resource:
        """The resource of this process; libraries read it off the SDK's tracers."""
        return self._current.resource

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
        run = self._current.run
        try:
            if run is None:
                return _unsampled(context)
            here: Mapping[str, Any] = current() if context is None else context
            above: Any = here.get(SPAN_KEY)
            if above is None and context is None:
                above = run.above
            attrs = self._attrs(run, attributes) if attributes or self._scope_attrs else {}
            if carried := {**current().get(CARRIED_KEY, {}), **here.get(CARRIED_KEY, {})}:
                attrs = {**carried, **attrs}
            known = is_known(attrs)
            if type(name) is not str or name not in plain_texts:
                name, known = shorten(str(name)), False
            if record_exception and set_status_on_exception:
                span = Span(run, name, attrs, above)
            else:
                span = QuietSpan(run, name, attrs, above)
                span.notes, span.fails = record_exception, set_status_on_exception
            span.joins = False  # in OpenTelemetry entering such a span only sees to its end
            span.scope, span.usual, span.unmasked = self._scope, False, not known
            if type(above) in _OURS and above._run is run:
                span.mark = above.mark
            if kind is not _INTERNAL:
                _set_kind(span, kind)
            if links or (above is None and run.above is not None):
                _link(run, span, links or (), above)
            if start_time is not None:
                _start_at(run, span, start_time)
            if self._usual and not span.special:
                return span
            if self._limits is not None:
                span.limits, span.special = self._limits, True
            return self._sampled(run, span, above)
        except BaseException as error:
            pass_on(error)
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

    def _sampled(self, run: Part, span: Span, above: trace.Span | None) -> trace.Span:
        """The span if it is sampled, else one that records nothing and passes that decision on."""
        parent = None if above is None or above is run.above else above.get_span_context()
        trace_id = int.from_bytes(span.trace, "big")
        origin = span._origin
        if self._sampler.samples(parent if parent and parent.is_valid else None, trace_id):
            if origin is not None and not origin.trace_flags.sampled:
                flags = trace.TraceFlags(origin.trace_flags | trace.TraceFlags.SAMPLED)
                span._origin = trace.SpanContext(trace_id, origin.span_id, True, flags, origin.trace_state)
            return span
        run.open_spans.pop(span.id, None)
        span_id = int.from_bytes(span.id, "big")
        state = None if origin is None else origin.trace_state
        return trace.NonRecordingSpan(trace.SpanContext(trace_id, span_id, False, trace.TraceFlags(), state))

    def _attrs(self, run: Part, attributes: Any) -> dict[str, Any]:
        try:
            merged = {**self._scope_attrs, **(attributes or {})}
            return merged if is_known(merged) else clean(merged)
        except BaseException as raised:  # not a mapping, or keys that are no text
            pass_on(raised)
            return {**self._scope_attrs, **clean_attributes(run, attributes)}


def _unsampled(context: Context | None) -> trace.Span:
    """Return the span used without a run: it records nothing and propagates its parent."""
    above = trace.get_current_span(context)
    return above if isinstance(above, trace.NonRecordingSpan) else trace.NonRecordingSpan(above.get_span_context())


def _set_kind(span: Span, kind: Any) -> None:
    """Set the kind of a span, if it is valid."""
    if isinstance(kind, trace.SpanKind):
        span.kind, span.kind_number = kind, kind.value + 1


def _link(run: Part, span: Span, links: Any, above: trace.Span | None) -> None:
    """Add the valid links of a span, and for a root one to the span in which the process was started."""
    packed: list[PackedLink] = []
    if above is None and run.above is not None:
        packed.append(link(run.above.get_span_context()))
    try:
        packed += [link(each.context, each.attributes) for each in links if each.context.is_valid]
    except BaseException as error:
        pass_on(error)
        run.outcomes.add("rejected", "link", type(error).__name__)
    span._links, span.unmasked = packed[:MAX_LINKS], True
    if len(packed) > MAX_LINKS:
        span._attrs[ATTR_DROPPED_LINKS] = len(packed) - MAX_LINKS


def _start_at(run: Part, span: Span, start: Any) -> None:
    """Set an explicit start of a span, if it is valid; its duration is counted from there."""
    try:
        span.start = nanoseconds(start)
        span._began -= max(time_ns() - span.start, 0)
    except BaseException as error:
        pass_on(error)
        run.outcomes.add("rejected", "start_time", type(error).__name__)
