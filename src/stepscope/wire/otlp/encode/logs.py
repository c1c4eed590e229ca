"""Logs, events and alerts to protobuf, all of them log records there."""

from struct import Struct
from typing import Any

from stepscope.model.names import severity_word
from stepscope.model.records import Alert, Attrs, Event, Log
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs, write_value
from stepscope.wire.otlp.fields import MASK, delimited, name, varint

_TIMES = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_UINT32 = 2**32 - 1
_ATTRS = Pairs(b"\x32")
_FLAGS = Struct("<cI").pack
_ASIDE = frozenset((names.ATTR_SEVERITY_TEXT, names.ATTR_DROPPED))


def write_log(record: Log | Event | Alert, attrs: Attrs) -> bytes:
    """Write a log record with those of its attributes that are its own and not its scope's.

    An event has a name, and an alert is the event `alert.firing`.
    """
    word = attrs.get(names.ATTR_SEVERITY_TEXT)
    if type(word) is not str:
        word = severity_word(record.severity) if record.severity else ""
    parts = [
        _times(record),
        b"\x10%b" % varint(record.severity) if record.severity > 0 else b"",
        name(b"\x1a", word),
        _ATTRS.write(attrs, _ASIDE),
        _ATTRS.write_step(record.step, record.axis),
        delimited(b"\x4a", record.trace_id) if record.trace_id else b"",
        delimited(b"\x52", record.span_id) if record.span_id else b"",
    ]
    if type(dropped := attrs.get(names.ATTR_DROPPED)) is int:
        parts.append(b"\x38" + varint(dropped & _UINT32))
    if record.flags:
        parts.append(_FLAGS(b"\x45", record.flags & _UINT32))
    body: Any = None
    if isinstance(record, Alert):
        body = record.message or None
        parts += [
            name(b"\x62", names.EVENT_ALERT),
            _ATTRS.write({names.ATTR_ALERT: record.name}),
        ]
    else:
        body = record.body
        if isinstance(record, Event):
            parts.append(name(b"\x62", record.name))
    if body is not None:
        parts.append(delimited(b"\x2a", write_value(body)))
    return b"".join(parts)


def _times(record: Log | Event | Alert) -> bytes:
    """Write the time and when it was observed; where only the latter was given, the former stays unset."""
    time = record.time & MASK
    if record.observed == record.time:
        return _TIME(b"\x59", time)
    return _TIMES(b"\x09", time, b"\x59", record.observed & MASK or time)
