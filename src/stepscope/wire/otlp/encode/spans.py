"""Spans to protobuf."""

from struct import Struct

from stepscope.model.records import Link, Span, SpanEvent
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.fields import MASK, delimited, name, text, varint

_TIMES = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_ATTRS, _EVENT_ATTRS, _LINK_ATTRS = Pairs(b"\x4a"), Pairs(b"\x1a"), Pairs(b"\x22")
_ASIDE = (names.ATTR_TRACE_STATE,)


def write_span(span: Span, duration: int) -> bytes:
    """Write a span that has ended."""
    attrs = span.attrs
    parts = [
        b"\x0a\x10%b\x12\x08%b" % (span.trace_id, span.span_id),
        delimited(b"\x22", span.parent_id) if span.parent_id else b"",
        name(b"\x2a", span.name),
        b"\x30%b" % varint(span.span_kind & MASK) if span.span_kind else b"",
        _TIMES(b"\x39", span.time & MASK, b"\x41", span.time + duration & MASK),
        _ATTRS.write_step(span.step, span.axis),
        _ATTRS.write(attrs, _ASIDE),
    ]
    if type(state := attrs.get(names.ATTR_TRACE_STATE)) is str:
        parts.append(text(b"\x1a", state))
    if span.events:
        parts += [delimited(b"\x5a", _event(event)) for event in span.events]
    if span.links:
        parts += [delimited(b"\x6a", _link(link)) for link in span.links]
    if span.status or span.message:
        parts.append(delimited(b"\x7a", text(b"\x12", span.message) + b"\x18" + varint(span.status & MASK)))
    return b"".join(parts)


def _event(event: SpanEvent) -> bytes:
    attrs = _EVENT_ATTRS.write(event.attrs)
    return _TIME(b"\x09", event.time & MASK) + text(b"\x12", event.name) + attrs


def _link(link: Link) -> bytes:
    return delimited(b"\x0a", link.trace_id) + delimited(b"\x12", link.span_id) + _LINK_ATTRS.write(link.attrs)
