"""Trace context and baggage from the process that started this one, and to those it starts, by the environment."""

import os
from collections.abc import Mapping

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from stepscope.model.names import ATTR_RUN_ID
from stepscope.sdk.context import SPAN_KEY
from stepscope.sdk.otel.current_run import CURRENT, CurrentRun

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


def environment(current: CurrentRun = CURRENT) -> dict[str, str]:
    """The variables that make a subprocess part of this trace: {**os.environ, **environment()}.

    They carry the current span, else that of the run, and the baggage with the run's id. Never raises.
    """
    from opentelemetry import baggage, propagate

    here = otel_context.get_current()
    carrier: dict[str, str] = {}
    try:
        run = current.run
        if run is not None:
            here = baggage.set_baggage(ATTR_RUN_ID, run.id, here)
            if here.get(SPAN_KEY) is None:
                trace_id, span_id = (int.from_bytes(part, "big") for part in run.link[:2])
                own = trace.SpanContext(trace_id, span_id, False, _SAMPLED)
                here = trace.set_span_in_context(trace.NonRecordingSpan(own), here)
        propagate.inject(carrier, here)
    except Exception:
        return {}
    if "TRACESTATE" in os.environ:  # not to be joined with a trace it is not of
        carrier.setdefault("tracestate", "")
    return {_variable(field): value for field, value in carrier.items()}


def inherited(env: Mapping[str, str]) -> Context:
    """What the environment carries: a remote span, baggage, both or nothing."""
    if not any(name in env for name in ("TRACEPARENT", "BAGGAGE")) and "OTEL_PROPAGATORS" not in env:
        return Context()
    from opentelemetry import propagate

    fields = propagate.get_global_textmap().fields
    carrier = {field: env[_variable(field)] for field in fields if _variable(field) in env}
    return propagate.extract(carrier, Context()) if carrier else Context()


def _variable(field: str) -> str:
    """Name the environment variable of a header, as OpenTelemetry does."""
    return field.upper().replace("-", "_")
