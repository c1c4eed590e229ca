"""The plain tuples that both readers of OTLP produce, before anything is judged."""

from collections.abc import Iterable
from typing import Any, TypeVar

from stepscope.model.records import Attrs, Link, SpanEvent, Value
from stepscope.wire.otlp import names
from stepscope.wire.otlp.refusals import Rejections

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
    bytes, bytes, bytes, str, int, int, int, Attrs, tuple[SpanEvent, ...], tuple[Link, ...], int, str, int
]  # fmt: skip
"""trace id, span id, parent id, name, kind, start, end, attrs, events, links, status code, message, flags."""

RawPoint = tuple[int, int, Value | None, Attrs, int]
"""time, start, value, attrs, flags."""

RawMetric = tuple[str, str, str, str, int, bool, Iterable[RawPoint]]
"""name, data type, unit, description, temporality, monotonic, points."""

RawLog = tuple[int, int, int, str, str, Any, Attrs, bytes, bytes, int]
"""time, observed time, severity number, severity text, event name, body, attrs, trace id, span id, flags."""

SCOPE_FIELDS = ("name", "version", "schema_url", "dropped_attributes_count")
"""What a scope has beside its attributes; an attribute of the same name has no place."""

SCOPE_CLASH = "an attribute of a scope that has the name of one of its fields"


def scope_of(name: str, version: str, schema_url: str, attrs: Attrs, dropped: int, refused: Rejections) -> Scope:
    """Keep what a scope says beyond its name as `otel.scope.*` attributes of its records."""
    if clashes := [field for field in SCOPE_FIELDS if field in attrs]:
        attrs = {key: value for key, value in attrs.items() if key not in clashes}
        refused.warn(SCOPE_CLASH, clashes[0], len(clashes))
    said = {names.ATTR_SCOPE + key: value for key, value in attrs.items()}
    fields = {"version": version, "schema_url": schema_url, "dropped_attributes_count": dropped}
    said.update((names.ATTR_SCOPE + field, value) for field, value in fields.items() if value)
    return name, said


def note_dropped(attrs: Attrs, *counts: tuple[str, int]) -> None:
    """Keep the counts that are not zero among the attributes."""
    for name, count in counts:
        if count:
            attrs[name] = count


def is_id(data: bytes, size: int) -> bool:
    """Tell a valid trace or span id: of the right length and not all zero."""
    return len(data) == size and any(data)
