"""Trace context, baggage and carried attributes to and from other processes."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context

from stepscope.model.names import ATTR_RUN_ID
from stepscope.model.redaction import redact
from stepscope.sdk.attributes import clean
from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, attach, current
from stepscope.sdk.interrupts import pass_on
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
                local = trace.SpanContext(trace_id, span_id, False, _SAMPLED)
                here = trace.set_span_in_context(trace.NonRecordingSpan(local), here)
        propagate.inject(carrier, here)
    except Exception:  # the propagator is the program's choice and may raise anything
        return {}
    if "TRACESTATE" in os.environ:  # not to be joined with a trace it is not of
        carrier.setdefault("tracestate", "")
    return {_variable(field): value for field, value in carrier.items()}


def inherited(env: Mapping[str, str]) -> Context:
    """The context in the environment: a remote span, baggage, both or nothing."""
    if not any(name in env for name in ("TRACEPARENT", "BAGGAGE")) and "OTEL_PROPAGATORS" not in env:
        return Context()
    from opentelemetry import propagate

    fields = propagate.get_global_textmap().fields
    carrier = {field: env[_variable(field)] for field in fields if _variable(field) in env}
    return propagate.extract(carrier, Context()) if carrier else Context()


def _variable(field: str) -> str:
    """The environment variable of a header, as OpenTelemetry names it."""
    return field.upper().replace("-", "_")


FIELD = "stepscope-carried"
MOST = 32
"""The most attributes that are carried; further ones are left out."""


def carried(context: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The attributes everything made in a context carries, the current one unless given."""
    found = (current() if context is None else context).get(CARRIED_KEY)
    return dict(found) if isinstance(found, dict) else {}


def carry(attrs: Mapping[str, Any]) -> Any:
    """Add attributes to everything recorded in this context; None removes one. Return a token for `detach`."""
    merged = {**carried(), **redact(clean(attrs))}
    kept = {key: value for key, value in merged.items() if value is not None}
    held = dict(list(kept.items())[:MOST])
    span = otel_trace.get_current_span()
    for key in attrs:
        if str(key) in held:
            span.set_attribute(str(key), held[str(key)])
    return attach(Context({**current(), CARRIED_KEY: held}))


def inject(carrier: dict[str, str] | None = None) -> dict[str, str]:
    """Write the current context into a dict of texts, a new one unless given. Never raises."""
    written = {} if carrier is None else carrier
    try:
        propagate.inject(written)
        if attrs := carried():
            written[FIELD] = msgspec.json.encode(attrs).decode()
    except BaseException as error:
        pass_on(error)
        _count("inject", error)
    return written


def extract(carrier: Mapping[str, str] | None) -> Context:
    """Read a context from such a dict; what cannot be read is left out. Never raises."""
    try:
        context = propagate.extract(dict(carrier or {}), Context())
        found = msgspec.json.decode(carrier[FIELD]) if carrier and FIELD in carrier else None
        return Context({**context, CARRIED_KEY: redact(clean(found))}) if isinstance(found, dict) else context
    except BaseException as error:
        pass_on(error)
        _count("extract", error)
        return Context()


def _count(what: str, error: BaseException) -> None:
    if CURRENT.run is not None:
        CURRENT.run.outcomes.add("rejected", what, type(error).__name__)
