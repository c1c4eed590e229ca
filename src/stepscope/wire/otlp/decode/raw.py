"""The plain tuples that both readers of OTLP produce, before anything is judged."""

from collections.abc import Iterable
from typing import Any, TypeVar

from stepscope.model.records import Attrs, Link, SpanEvent, Value
from stepscope.wire.otlp import names

Item = TypeVar("Item")

MOST_PAIRS = 10_000
"""Key-values that are read of one list; whoever keeps them keeps far fewer."""

LATEST = 2**63 - 1
"""No time is later: stores keep nanoseconds as a signed 64-bit number."""

NO_TRACE, NO_SPAN = bytes(16), bytes(8)
"""The ids that mean none."""

NO_ID = b"?"
"""Stands for an id that could not be read: neither one nor none."""

BAD_LINK = "a link without valid ids"

Scope = tuple[str, Attrs]
"""The name of a scope, and what else it says as attributes of its records."""

RawResource = tuple[Attrs, Iterable[tuple[Scope, Iterable[Item]]]]
"""The attributes of a resource, and its scopes with their items."""

RawSpan = tuple[
    bytes, bytes, bytes, str, int, int, int, Attrs, tuple[SpanEvent, ...], tuple[Link, ...], int, str
]  # fmt: skip
"""trace id, span id, parent id, name, kind, start, end, attrs, events, links, status code, status message."""

RawPoint = tuple[int, int, Value | None, Attrs, int]
"""time, start, value, attrs, flags."""

RawMetric = tuple[str, str, str, str, int, bool, Iterable[RawPoint]]
"""name, data type, unit, description, temporality, monotonic, points."""

RawLog = tuple[int, int, int, str, str, Any, Attrs, bytes, bytes]
"""time, observed time, severity number, severity text, event name, body, attrs, trace id, span id."""


def scope_of(name: str, version: str, schema_url: str, attrs: Attrs) -> Scope:
    """Keep what a scope says beyond its name as `otel.scope.*` attributes of its records."""
    said = {names.ATTR_SCOPE + key: value for key, value in attrs.items()}
    if version:
        said[names.ATTR_SCOPE + "version"] = version
    if schema_url:
        said[names.ATTR_SCOPE + "schema_url"] = schema_url
    return name, said


def is_id(data: bytes, size: int) -> bool:
    """Tell a valid trace or span id: of the right length and not all zero."""
    return len(data) == size and any(data)
