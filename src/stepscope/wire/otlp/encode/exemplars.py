"""The exemplars of a point to protobuf, from the attribute that carries them."""

from struct import Struct
from typing import Any

from stepscope.model.records import Attrs
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.fields import MASK, delimited
from stepscope.wire.otlp.names import ATTR_EXEMPLARS

_ATTRS = Pairs(b"\x3a")
_FIXED = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack


def write_exemplars(tag: bytes, attrs: Attrs) -> bytes:
    """Write the exemplars among a point's attributes; what does not look like one is left out."""
    exemplars = attrs.get(ATTR_EXEMPLARS)
    if type(exemplars) is not list:
        return b""
    return b"".join([delimited(tag, _exemplar(exemplar)) for exemplar in exemplars if type(exemplar) is dict])


def _exemplar(exemplar: dict[str, Any]) -> bytes:
    value, time, attrs = exemplar.get("value"), exemplar.get("time"), exemplar.get("attrs")
    out = b""
    if type(time) is int:
        out += _FIXED(b"\x11", time & MASK)
    if type(value) is float:
        out += _DOUBLE(b"\x19", value)
    elif type(value) is int:
        out += _FIXED(b"\x31", value & MASK)
    for tag, field in ((b"\x22", "span_id"), (b"\x2a", "trace_id")):
        if data := _from_hex(exemplar.get(field)):
            out += delimited(tag, data)
    return out + (_ATTRS.write(attrs) if type(attrs) is dict else b"")


def _from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        return b""
