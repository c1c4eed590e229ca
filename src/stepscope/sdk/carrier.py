"""The context as texts that go to another process: trace, baggage, and the attributes everything in it carries."""

from collections.abc import Mapping
from typing import Any

import msgspec
from opentelemetry import propagate
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context

from stepscope.sdk.attributes import clean
from stepscope.sdk.context import CARRIED_KEY, attach, current
from stepscope.sdk.otel.current_run import CURRENT

FIELD = "stepscope-carried"
MOST = 32
"""Attributes that are carried at most; further ones are left out."""


def carried(context: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The attributes everything made in a context carries, the current one unless given."""
    found = (current() if context is None else context).get(CARRIED_KEY)
    return dict(found) if isinstance(found, dict) else {}


def carry(attrs: Mapping[str, Any]) -> Any:
    """Have everything made in this context from now on carry attributes; None takes one back. A token to leave by."""
    merged = {**carried(), **clean(attrs)}
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
    except Exception as error:
        _count("inject", error)
    return written


def extract(carrier: Mapping[str, str] | None) -> Context:
    """Read a context from such a dict; what cannot be read is left out. Never raises."""
    try:
        context = propagate.extract(dict(carrier or {}), Context())
        found = msgspec.json.decode(carrier[FIELD]) if carrier and FIELD in carrier else None
        return Context({**context, CARRIED_KEY: clean(found)}) if isinstance(found, dict) else context
    except Exception as error:
        _count("extract", error)
        return Context()


def _count(what: str, error: Exception) -> None:
    if CURRENT.run is not None:
        CURRENT.run.outcomes.add("rejected", what, type(error).__name__)
