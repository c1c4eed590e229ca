"""Attributes and other values to protobuf."""

from collections.abc import Collection
from struct import Struct
from typing import Any

from stepscope.model.names import ATTR_STEP
from stepscope.model.records import Attrs
from stepscope.wire.otlp.fields import MASK, delimited, varint
from stepscope.wire.otlp.names import ATTR_STEP_NAME

_DOUBLE = Struct("<cd").pack
_INT64 = 2**63
_SHORT = 64
_MOST = 4096


class Pairs:
    """Writes key-values under one tag, and remembers the bytes that repeat from record to record."""

    __slots__ = ("_heads", "_tag", "_texts")

    def __init__(self, tag: bytes) -> None:
        self._tag = tag
        self._heads: dict[tuple[str, int], bytes] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def write(self, attrs: Attrs, without: Collection[str] = ()) -> bytes:
        """Write attributes, each as one field."""
        if without and not attrs.keys().isdisjoint(without):
            attrs = {key: value for key, value in attrs.items() if key not in without}
        heads, texts, parts = self._heads, self._texts, []
        for key, value in attrs.items():
            if type(value) is str:
                parts.append(texts.get((key, value)) or self._text(key, value))
                continue
            written = _DOUBLE(b"\x21", value) if type(value) is float else write_value(value)
            size = len(written)
            parts.append(heads.get((key, size)) or self._head(key, size))
            parts.append(written)
        return b"".join(parts)

    def write_step(self, step: int | None, axis: str | None) -> bytes:
        """Write the step as `train.step`, with the name of its axis beside it when it has one."""
        if step is None:
            return b""
        written = write_value(step)
        size = len(written)
        plain = (self._heads.get((ATTR_STEP, size)) or self._head(ATTR_STEP, size)) + written
        return plain if axis is None else plain + self.write({ATTR_STEP_NAME: axis})

    def _head(self, key: str, size: int) -> bytes:
        """Write all of a key-value but the value, whose size is known."""
        named = delimited(b"\x0a", str(key).encode("utf-8", "replace")) + b"\x12" + varint(size)
        head = self._tag + varint(len(named) + size) + named
        if len(self._heads) >= _MOST:
            self._heads.clear()
        if len(key) <= _SHORT:
            self._heads[key, size] = head
        return head

    def _text(self, key: str, value: str) -> bytes:
        written = write_value(value)
        pair = self._head(key, len(written)) + written
        if len(self._texts) >= _MOST:
            self._texts.clear()
        if len(key) <= _SHORT and len(value) <= _SHORT:
            self._texts[key, value] = pair
        return pair


_INNER = Pairs(b"\x0a")


def write_value(value: Any) -> bytes:
    """Write an AnyValue; None is the empty one, and what OTLP has no kind for becomes text."""
    kind = type(value)
    if kind is int and -_INT64 <= value < _INT64:
        return b"\x18" + varint(value & MASK)
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if kind is float:
        return _DOUBLE(b"\x21", value)
    if value is None:
        return b""
    if kind is bytes:
        return delimited(b"\x3a", value)
    if isinstance(value, dict):
        return delimited(b"\x32", _INNER.write({str(key): inner for key, inner in value.items()}))
    if isinstance(value, (list, tuple)):
        return delimited(b"\x2a", b"".join([delimited(b"\x0a", write_value(inner)) for inner in value]))
    return delimited(b"\x0a", str(value).encode("utf-8", "replace"))
