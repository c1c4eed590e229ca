"""Stepscope's OpenTelemetry providers: spans, measurements and logs of any library in the process become records."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context

from stepscope.sdk.context import SPAN_KEY, attach, current, detach
from stepscope.sdk.otel import propagation
from stepscope.sdk.otel.current_run import CURRENT
from stepscope.sdk.otel.logger import LoggerProvider
from stepscope.sdk.otel.meter import Collector, MeterProvider
from stepscope.sdk.otel.tracer import TracerProvider, invalid_sampler
from stepscope.sdk.run import Run
from stepscope.sdk.span_fields import invalid_limits

_collectors: list[Collector] = []


class _Providers:
    """The providers of this process, created once because OpenTelemetry forbids replacing them."""

    def __init__(self) -> None:
        self.tracers = TracerProvider(CURRENT)
        self.meters = MeterProvider(CURRENT)
        self.loggers = LoggerProvider(CURRENT)
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """Reset the instruments in a forked child, which is a separate writer."""
        self.meters.begin(time.time_ns())
        for collector in _collectors:
            collector.after_fork()

    def offer(self, run: Run) -> None:
        """Register the providers, except where the process has others already."""
        for text in (*invalid_sampler(os.environ), *invalid_limits(os.environ)):
            run.outcomes.notice_text(text)
        offers: tuple[tuple[str, Callable[[], Any], Callable[[Any], None], Any], ...] = (
            ("tracer", trace.get_tracer_provider, trace.set_tracer_provider, self.tracers),
            ("meter", metrics.get_meter_provider, metrics.set_meter_provider, self.meters),
            ("logger", _logs.get_logger_provider, _logs.set_logger_provider, self.loggers),
        )
        for what, present, offer, ours in offers:
            try:
                if _is_placeholder(present()):
                    offer(ours)
                taken = present() is not ours
            except Exception:  # OTEL_PYTHON_*_PROVIDER names one that can not be loaded
                taken = True
            if taken:
                run.outcomes.notice(
                    "otel",
                    what,
                    f"this process has an OpenTelemetry {what} provider already, which is kept: what libraries record "
                    "with it is not in the run. Call stepscope.init before it is set, or pass otel=False",
                )


def _is_placeholder(provider: object) -> bool:
    """Return whether a provider is the API's placeholder; two of these classes have private names."""
    kind = type(provider)
    return kind.__module__.startswith("opentelemetry.") and kind.__name__.lstrip("_").startswith("Proxy")


_providers = functools.cache(_Providers)


def install(run: Run) -> Callable[[], None]:
    """Record the process's OpenTelemetry calls into this run; the returned function stops it. Never raises."""
    providers = _providers()
    providers.meters.begin(run.started)
    leave = _inherit(run)
    collector = Collector(run, providers.meters)
    _collectors.append(collector)
    run.periodic.collectors.append(collector)
    CURRENT.run = run
    providers.offer(run)

    def undo() -> None:
        if CURRENT.run is run:
            CURRENT.run = None
        collector.end()
        _collectors.remove(collector)
        leave()

    return undo


def _as_sampled(above: trace.Span) -> trace.Span:
    """Return the span as sampled: the run is recorded whatever the parent process decided."""
    context = above.get_span_context()
    flags = trace.TraceFlags(context.trace_flags | trace.TraceFlags.SAMPLED)
    return trace.NonRecordingSpan(
        trace.SpanContext(context.trace_id, context.span_id, context.is_remote, flags, context.trace_state)
    )


def _inherit(run: Run) -> Callable[[], None]:
    """Make the run a child of the parent process's span, and put its baggage into the caller's context."""
    try:
        found = propagation.inherited(os.environ)
    except Exception as error:
        run.outcomes.add("rejected", "context", type(error).__name__)
        return lambda: None
    above = found.get(SPAN_KEY)
    if isinstance(above, trace.Span):
        run.above = _as_sampled(above)
        run.link = (above.get_span_context().trace_id.to_bytes(16, "big"), run.link[1], {})
    carried = Context({key: value for key, value in found.items() if key != SPAN_KEY})
    if not carried:
        return lambda: None
    entered = Context({**current(), **carried})
    token = attach(entered)

    def leave() -> None:
        try:
            if current() is entered:
                detach(token)
        except ValueError:  # in a copy of the context it was entered in
            pass

    return leave
