"""What a Chrome event has no field for: a span's ids, kind, links and the rest, in one argument of its event."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from stepscope.model.records import Attrs, Link, Span
from stepscope.wire.plain import plain

NAME = "stepscope"
"""The argument."""
_STATUSES = ("unset", "ok", "error")


def span_fields(span: Span) -> Attrs:
    """Collect the fields of a span; those that are unset are left out."""
    found = {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_id.hex() if span.parent_id else None,
        "step": span.step,
        "axis": span.axis,
        "kind": span.span_kind,
        "status": _STATUSES[min(span.status, 2)] if span.status else None,
        "message": span.message,
        "scope": span.scope,
        "flags": span.flags,
        "links": [
            {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), **attr_args(link.attrs)}
            for link in span.links
        ],
    }
    return {name: value for name, value in found.items() if value or (value == 0 and name == "step")}


def attr_args(attrs: Attrs) -> Attrs:
    """Write attributes for JSON; with them as bytes where JSON cannot hold a value, such as NaN."""
    shown = plain(attrs)
    found: Attrs = {"attrs": shown} if attrs else {}
    if shown != attrs:
        found["packed"] = base64.b64encode(msgspec.msgpack.encode(attrs)).decode()
    return found


def read_attrs(shown: Any, packed: Any) -> Attrs:
    """Read attributes back; those that JSON has, where there is nothing better."""
    if isinstance(packed, str):
        try:
            return msgspec.msgpack.decode(base64.b64decode(packed, validate=True), type=dict[str, Any])
        except (ValueError, msgspec.MsgspecError, RecursionError):
            pass
    return dict(shown) if isinstance(shown, dict) else {}


def status_number(given: Any) -> int:
    """Read a status; 0 when it is none."""
    return _STATUSES.index(given) if isinstance(given, str) and given in _STATUSES else 0


def small_number(given: Any, most: int) -> int:
    """Read a whole number from 0 to `most`; 0 when it is none."""
    return given if type(given) is int and 0 <= given <= most else 0


def text_of(given: Any) -> str:
    """Read a text; empty when it is none."""
    return given if isinstance(given, str) else ""


def read_links(given: Any) -> tuple[Link, ...]:
    """Read links; one without valid ids is left out."""
    found: Sequence[Any] = given if isinstance(given, list) else ()
    made = []
    for each in found:
        fields = each if isinstance(each, dict) else {}
        trace, span = id_of(fields.get("trace_id"), 16), id_of(fields.get("span_id"), 8)
        if trace is not None and span is not None:
            made.append(Link(trace, span, read_attrs(fields.get("attrs"), fields.get("packed"))))
    return tuple(made)


def id_of(given: Any, width: int) -> bytes | None:
    """Read an id in hexadecimal; None when it is none."""
    if not isinstance(given, str) or len(given) != 2 * width:
        return None
    try:
        found = bytes.fromhex(given)
    except ValueError:
        return None
    return found if len(found) == width and any(found) else None
