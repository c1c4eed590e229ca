"""Fields of a span as they are recorded: times, links, and the limits that OpenTelemetry's variables set on them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from opentelemetry import trace

from stepscope.model.names import (
    ATTR_DROPPED,
    ATTR_DROPPED_EVENTS,
    ATTR_DROPPED_LINKS,
    ATTR_FLAGS,
    ATTR_SCOPE,
    ATTR_TRACE_STATE,
)
from stepscope.sdk.attributes import clean
from stepscope.sdk.run_protocols import PackedLink

LATEST = 2**63 - 1
MAX_LINKS = 128
HAS_IS_REMOTE = 0x100
IS_REMOTE = 0x200
"""OpenTelemetry's span flags: whether it is known where the parent is, and that it is elsewhere."""

_BOOLS = frozenset(("bool", "bool_"))

PackedEvent = tuple[int, str, dict[str, Any]]


def nanoseconds(given: Any) -> int:
    """Return a time since the epoch as an int, whatever type of number it is; ValueError for any other value."""
    time = given if type(given) is int else _integer(given)
    if not 0 <= time <= LATEST:
        raise ValueError("a time must be in nanoseconds since 1970")
    return int(time)


def _integer(given: Any) -> int:
    """Return what behaves like an integer or a float as an int: numpy's scalars and arrays without axes, decimals."""
    kind = type(given)
    is_number = hasattr(kind, "__float__") or hasattr(kind, "__index__")
    has_axes = getattr(given, "ndim", 0) != 0
    if not is_number or kind.__name__ in _BOOLS or has_axes:
        raise ValueError("a time must be a number of nanoseconds")
    try:
        return index(given)
    except TypeError:
        if not math.isfinite(given):
            raise ValueError("a time must be a finite number") from None
        return int(given) if hasattr(kind, "__int__") else int(float(given))


def link(context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> PackedLink:
    """Pack a link to another span; its trace state and whether it is remote are kept among its attributes."""
    attrs = clean(attributes)
    if context.trace_state:
        attrs[ATTR_TRACE_STATE] = context.trace_state.to_header()
    if context.is_remote:
        attrs[ATTR_FLAGS] = context.trace_flags | HAS_IS_REMOTE | IS_REMOTE
    return (context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), attrs)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a span is kept; None is no limit beside Stepscope's own."""

    attributes: int | None = None
    events: int | None = None
    links: int | None = None
    event_attributes: int | None = None
    link_attributes: int | None = None
    length: int | None = None
    """Characters of a text, also of one in a list."""

    def fit(
        self, attrs: dict[str, Any], events: Sequence[PackedEvent], links: Sequence[PackedLink]
    ) -> tuple[dict[str, Any], list[PackedEvent], list[PackedLink]]:
        """Return the parts of a span that are kept; what is left out is counted in its attributes."""
        kept = self._attributes(attrs, self.attributes)
        for name, given, most in (
            (ATTR_DROPPED_EVENTS, events, self.events),
            (ATTR_DROPPED_LINKS, links, self.links),
        ):
            if most is not None and len(given) > most:
                kept[name] = attrs.get(name, 0) + len(given) - most
        return (
            kept,
            [
                (time, name, self._attributes(attrs, self.event_attributes))
                for time, name, attrs in events[: self.events]
            ],
            [
                (first, second, self._attributes(attrs, self.link_attributes))
                for first, second, attrs in links[: self.links]
            ],
        )

    def _attributes(self, attrs: dict[str, Any], most: int | None) -> dict[str, Any]:
        aside = {key: value for key, value in attrs.items() if _is_protocol_field(key)}
        limited = {
            key: value if self.length is None else self._cut(value) for key, value in attrs.items() if key not in aside
        }
        if most is not None and len(limited) > most:
            aside[ATTR_DROPPED] = aside.get(ATTR_DROPPED, 0) + len(limited) - most
            limited = dict(list(limited.items())[:most])
        return {**aside, **limited}

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):  # all of it where there is no limit
            return value[: self.length]
        return [self._cut(each) for each in value] if isinstance(value, list) else value


def unusual_fields(
    limits: Limits | None,
    origin: trace.SpanContext | None,
    remote: bool,
    attrs: dict[str, Any],
    events: Sequence[PackedEvent],
    links: Sequence[PackedLink],
) -> tuple[dict[str, Any], Sequence[PackedEvent], Sequence[PackedLink], int]:
    """Attributes, events, links and flags of a span that has limits, or a parent in another process."""
    if limits is not None:
        attrs, events, links = limits.fit(attrs, events, links)
    if origin is not None and origin.trace_state:
        attrs = {**attrs, ATTR_TRACE_STATE: origin.trace_state.to_header()}
    flags = HAS_IS_REMOTE | (IS_REMOTE if remote else 0)
    return attrs, events, links, flags | (trace.TraceFlags.SAMPLED if origin is None else origin.trace_flags)


def _is_protocol_field(key: str) -> bool:
    """Return whether a key holds a field of the protocol that is not an attribute there."""
    return key.startswith((ATTR_SCOPE, "otel.dropped_", ATTR_FLAGS)) or key == ATTR_TRACE_STATE


def read_limits(env: Mapping[str, str]) -> Limits | None:
    """Read OTEL_SPAN_*_LIMIT and the general OTEL_ATTRIBUTE_*_LIMIT; None when none of them is set to a number."""
    found = Limits(
        attributes=_limit(env, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
        events=_limit(env, "OTEL_SPAN_EVENT_COUNT_LIMIT"),
        links=_limit(env, "OTEL_SPAN_LINK_COUNT_LIMIT"),
        event_attributes=_limit(env, "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
        link_attributes=_limit(env, "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"),
        length=_limit(env, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
    )
    return None if found == Limits() else found


def invalid_limits(env: Mapping[str, str]) -> list[str]:
    """Return a warning for each limit that is set and not an integer; OpenTelemetry asks for one, and ignores them."""
    names = [name for name in env if name.startswith("OTEL_") and name.endswith(("_COUNT_LIMIT", "_LENGTH_LIMIT"))]
    wrong = [name for name in names if env[name].strip() and not env[name].strip().isdecimal()]
    return [f"{name}={env[name]!r} is ignored: expected an integer of 0 or more" for name in sorted(wrong)]


def _limit(env: Mapping[str, str], *variables: str) -> int | None:
    """The first of some variables that is an integer; others are skipped, as OpenTelemetry specifies."""
    texts = (env.get(variable, "").strip() for variable in variables)
    return next((int(text) for text in texts if text.isdecimal()), None)
