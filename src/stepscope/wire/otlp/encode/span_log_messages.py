"""Spans, logs, events and alerts as OTLP messages."""

from struct import Struct
from typing import Any

from stepscope.model import otel_names
from stepscope.model.names import severity_word
from stepscope.model.records import Alert, Attrs, Event, Link, Log, Span, SpanEvent
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.encode.scope_messages import Pairs, write_value
from stepscope.wire.otlp.protobuf_writing import MASK, delimited, name, text, varint

_TIMES = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_UINT32 = 2**32 - 1
_ATTRS, _EVENT_ATTRS, _LINK_ATTRS = Pairs(b"\x4a"), Pairs(b"\x1a"), Pairs(b"\x22")
_FLAGS = Struct("<I").pack
_DROPPED = (
    (otel_names.ATTR_DROPPED, b"\x50"),
    (otel_names.ATTR_DROPPED_EVENTS, b"\x60"),
    (otel_names.ATTR_DROPPED_LINKS, b"\x70"),
)
_ASIDE = frozenset((otel_names.ATTR_TRACE_STATE, *(name for name, _ in _DROPPED)))
_EVENT_ASIDE = frozenset((otel_names.ATTR_DROPPED,))
_LINK_ASIDE = frozenset((otel_names.ATTR_TRACE_STATE, otel_names.ATTR_DROPPED, otel_names.ATTR_FLAGS))


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
    dropped = _count(b"\x20", event.attrs.get(otel_names.ATTR_DROPPED))
    return _TIME(b"\x09", event.time & MASK) + text(b"\x12", event.name) + attrs + dropped


def _link(link: Link) -> bytes:
    attrs = link.attrs
    written = delimited(b"\x0a", link.trace_id) + delimited(b"\x12", link.span_id)
    written += _LINK_ATTRS.write(attrs, _LINK_ASIDE)
    if _LINK_ASIDE.isdisjoint(attrs):
        return written
    written += _state(attrs) + _count(b"\x28", attrs.get(otel_names.ATTR_DROPPED))
    flags = attrs.get(otel_names.ATTR_FLAGS)
    return written + b"\x35" + _FLAGS(flags & _UINT32) if type(flags) is int else written


def _state(attrs: Attrs) -> bytes:
    state = attrs.get(otel_names.ATTR_TRACE_STATE)
    return text(b"\x1a", state) if type(state) is str else b""


def _count(tag: bytes, value: object) -> bytes:
    return tag + varint(value & _UINT32) if type(value) is int else b""


_LOG_TIMES = Struct("<cQcQ").pack
_LOG_TIME = Struct("<cQ").pack
_LOG_UINT32 = 2**32 - 1
_LOG_ATTRS = Pairs(b"\x32")
_LOG_FLAGS = Struct("<cI").pack
_LOG_ASIDE = frozenset((otel_names.ATTR_SEVERITY_TEXT, otel_names.ATTR_DROPPED))


def write_log(record: Log | Event | Alert, attrs: Attrs) -> bytes:
    """Write a log record with those of its attributes that are its own and not its scope's.

    An event has a name, and an alert is the event `alert.firing`.
    """
    word = attrs.get(otel_names.ATTR_SEVERITY_TEXT)
    if type(word) is not str:
        word = severity_word(record.severity) if record.severity else ""
    parts = [
        _times(record),
        b"\x10%b" % varint(record.severity) if record.severity > 0 else b"",
        name(b"\x1a", word),
        _LOG_ATTRS.write(attrs, _LOG_ASIDE),
        _LOG_ATTRS.write_step(record.step, record.axis),
        delimited(b"\x4a", record.trace_id) if record.trace_id else b"",
        delimited(b"\x52", record.span_id) if record.span_id else b"",
    ]
    if type(dropped := attrs.get(otel_names.ATTR_DROPPED)) is int:
        parts.append(b"\x38" + varint(dropped & _LOG_UINT32))
    if record.flags:
        parts.append(_LOG_FLAGS(b"\x45", record.flags & _LOG_UINT32))
    body: Any = None
    if isinstance(record, Alert):
        body = record.message or None
        parts += [
            name(b"\x62", otlp_names.EVENT_ALERT),
            _LOG_ATTRS.write({otlp_names.ATTR_ALERT: record.name}),
        ]
    else:
        body = record.body
        if isinstance(record, Event):
            parts.append(name(b"\x62", record.name))
    if body is not None:
        parts.append(delimited(b"\x2a", write_value(body)))
    return b"".join(parts)


def _times(record: Log | Event | Alert) -> bytes:
    """Write the time and the observed time; where only the latter was given, the former stays unset."""
    time = record.time & MASK
    if record.observed == record.time:
        return _LOG_TIME(b"\x59", time)
    return _LOG_TIMES(b"\x09", time, b"\x59", record.observed & MASK or time)
