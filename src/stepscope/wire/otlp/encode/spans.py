"""Spans to protobuf."""

from struct import Struct

from stepscope.model.records import Attrs, Link, Span, SpanEvent
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.fields import MASK, delimited, name, text, varint

_TIMES = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_UINT32 = 2**32 - 1
_ATTRS, _EVENT_ATTRS, _LINK_ATTRS = Pairs(b"\x4a"), Pairs(b"\x1a"), Pairs(b"\x22")
_FLAGS = Struct("<I").pack
_DROPPED = ((names.ATTR_DROPPED, b"\x50"), (names.ATTR_DROPPED_EVENTS, b"\x60"), (names.ATTR_DROPPED_LINKS, b"\x70"))
_ASIDE = frozenset((names.ATTR_TRACE_STATE, *(name for name, _ in _DROPPED)))
_EVENT_ASIDE = frozenset((names.ATTR_DROPPED,))
_LINK_ASIDE = frozenset((names.ATTR_TRACE_STATE, names.ATTR_DROPPED, names.ATTR_FLAGS))


def write_span(span: Span, duration: int, attrs: Attrs) -> bytes:
    """Write a span that has ended, with those of its attributes that are its own and not its scope's."""
    plain = attrs is span.attrs or _ASIDE.isdisjoint(attrs)
    parts = [
        b"\x0a\x10%b\x12\x08%b" % (span.trace_id, span.span_id),
        delimited(b"\x22", span.parent_id) if span.parent_id else b"",
        name(b"\x2a", span.name),
        b"\x30%b" % varint(span.span_kind & MASK) if span.span_kind else b"",
        _TIMES(b"\x39", span.time & MASK, b"\x41", span.time + duration & MASK),
        _ATTRS.write_step(span.step, span.axis),
        _ATTRS.write(attrs if plain else {key: value for key, value in attrs.items() if key not in _ASIDE}),
    ]
    if not plain:
        parts += [_state(attrs), *(_count(tag, attrs.get(name)) for name, tag in _DROPPED)]
    if span.events:
        parts += [delimited(b"\x5a", _event(event)) for event in span.events]
    if span.links:
        parts += [delimited(b"\x6a", _link(link)) for link in span.links]
    if span.status or span.message:
        parts.append(delimited(b"\x7a", text(b"\x12", span.message) + b"\x18" + varint(span.status & MASK)))
    if span.flags:
        parts.append(b"\x85\x01" + _FLAGS(span.flags & _UINT32))
    return b"".join(parts)


def _event(event: SpanEvent) -> bytes:
    attrs = _EVENT_ATTRS.write(event.attrs, _EVENT_ASIDE)
    dropped = _count(b"\x20", event.attrs.get(names.ATTR_DROPPED))
    return _TIME(b"\x09", event.time & MASK) + text(b"\x12", event.name) + attrs + dropped


def _link(link: Link) -> bytes:
    attrs = link.attrs
    written = delimited(b"\x0a", link.trace_id) + delimited(b"\x12", link.span_id)
    written += _LINK_ATTRS.write(attrs, _LINK_ASIDE)
    if _LINK_ASIDE.isdisjoint(attrs):
        return written
    written += _state(attrs) + _count(b"\x28", attrs.get(names.ATTR_DROPPED))
    flags = attrs.get(names.ATTR_FLAGS)
    return written + b"\x35" + _FLAGS(flags & _UINT32) if type(flags) is int else written


def _state(attrs: Attrs) -> bytes:
    state = attrs.get(names.ATTR_TRACE_STATE)
    return text(b"\x1a", state) if type(state) is str else b""


def _count(tag: bytes, value: object) -> bytes:
    return tag + varint(value & _UINT32) if type(value) is int else b""
