"""OTLP messages by hand: protobuf's wire format, attributes, resources and scopes, and a server's small replies."""

from collections.abc import Collection, Iterator
from functools import lru_cache
from struct import Struct, error
from typing import Any

from stepscope.model.names import (
    ATTR_LOCAL_RANK,
    ATTR_RANK,
    ATTR_RESOURCE_DROPPED,
    ATTR_RESOURCE_SCHEMA,
    ATTR_RUN_ID,
    ATTR_SCOPE,
    ATTR_STEP,
    ATTR_TRACE_STATE,
    ATTR_WORLD_SIZE,
)
from stepscope.model.ports import Writer
from stepscope.model.records import Attrs
from stepscope.wire import protobuf_fields
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.names import ATTR_STEP_NAME

_ONE_BYTE = tuple(bytes((n,)) for n in range(128))
_FIXED64 = Struct("<Q")
_FIXED32 = Struct("<I")
MASK = 2**64 - 1


def varint(number: int) -> bytes:
    """Write an unsigned integer; a negative one is first masked to 64 bits by the caller."""
    if number < 128:
        return _ONE_BYTE[number]
    if number < 16384:
        return (number & 127 | 128 | number >> 7 << 8).to_bytes(2, "little")
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """Write a signed 32-bit integer as sint32 does."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def delimited(tag: bytes, payload: bytes) -> bytes:
    """Write a field with its length in front."""
    return b"%b%b%b" % (tag, varint(len(payload)), payload)


def text(tag: bytes, value: str) -> bytes:
    """Write a string field; nothing when it is empty. Lone surrogates become question marks."""
    return delimited(tag, value.encode("utf-8", "replace")) if value else b""


@lru_cache(maxsize=4096)
def name(tag: bytes, value: str) -> bytes:
    """Write a string field that repeats from record to record."""
    return text(tag, value)


def scan(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message; ValueError for invalid protobuf."""
    read = protobuf_fields.varint
    position = 0
    while position < len(data):
        tag, position = read(data, position)
        wire = tag & 7
        if wire == 0:
            number, position = read(data, position)
            yield tag >> 3, number & MASK
        elif wire == 2:
            length, position = read(data, position)
            if position + length > len(data):
                raise ValueError("a field is cut off")
            yield tag >> 3, data[position : position + length]
            position += length
        elif wire in (1, 5):
            fixed = _FIXED64 if wire == 1 else _FIXED32
            try:
                yield tag >> 3, int(fixed.unpack_from(data, position)[0])
            except error:
                raise ValueError("a field is cut off") from None
            position += fixed.size
        else:
            raise ValueError(f"wire type {wire}")


_DOUBLE = Struct("<cd").pack
_INT64 = 2**63
_SHORT = 64
_MOST = 4096


class Pairs:
    """Writes key-values under one tag, and caches bytes that repeat from record to record."""

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
    """Write an AnyValue; None is the empty one, and unsupported types become text."""
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


_ATTRS = Pairs(b"\x0a")
_ASIDE = frozenset((ATTR_RESOURCE_SCHEMA, ATTR_RESOURCE_DROPPED))


def resource_of(writer: Writer) -> Attrs:
    """Describe a writer in OpenTelemetry's attributes; service and host of its own resource have precedence.

    Every process has an instance id of its own, or cumulative sums of two would interleave.
    """
    instance = f"{writer.run}-r{writer.rank}"
    if not writer.main:
        instance += f"-p{writer.pid}"
    attrs = {
        "service.name": writer.project,
        **writer.resource,
        ATTR_RUN_ID: writer.run,
        otlp_names.ATTR_PROJECT: writer.project,
        ATTR_RANK: writer.rank,
        ATTR_WORLD_SIZE: writer.world_size,
        ATTR_LOCAL_RANK: writer.local_rank,
        otlp_names.ATTR_ATTEMPT: writer.attempt,
    }
    given = attrs.get("service.instance.id")
    attrs["service.instance.id"] = given if given and writer.main else instance
    if writer.name:
        attrs[otlp_names.ATTR_RUN_NAME] = writer.name
    if writer.named_host:
        attrs["host.name"] = writer.named_host
    if writer.pid:
        attrs["process.pid"] = writer.pid
    return attrs


def write_resource(attrs: Attrs) -> bytes:
    """Write a resource with its schema URL, to be followed by its scopes."""
    inside = _ATTRS.write(attrs, _ASIDE)
    if type(dropped := attrs.get(ATTR_RESOURCE_DROPPED)) is int and dropped:
        inside += b"\x10" + varint(dropped & MASK)
    schema_url = attrs.get(ATTR_RESOURCE_SCHEMA)
    return delimited(b"\x0a", inside) + (text(b"\x1a", schema_url) if type(schema_url) is str else b"")


_SCOPE_ATTRS = Pairs(b"\x1a")
_plain: set[str] = set()
"""Cache of attribute names that are not fields, because the same ones repeat."""


def are_plain(attrs: Attrs) -> bool:
    """Return whether no attribute is a field of the record or of its scope."""
    if _plain.issuperset(attrs):
        return True
    if any(key.startswith("otel.") or key == ATTR_TRACE_STATE for key in attrs):
        return False
    if len(_plain) >= _MOST:
        _plain.clear()
    _plain.update(attrs)
    return True


def write_scope(name: str, attrs: Attrs) -> tuple[bytes, Attrs]:
    """Write the scope of a record with its schema URL, to be followed by the scope's items.

    Also return the attributes of the record that are not the scope's: the same dict where no attribute becomes a field.
    """
    if are_plain(attrs):
        return _named(name), attrs
    record_attrs = {key: value for key, value in attrs.items() if not key.startswith(ATTR_SCOPE)}
    scope_attrs = {key.removeprefix(ATTR_SCOPE): value for key, value in attrs.items() if key not in record_attrs}
    fields = {
        field: scope_attrs.pop(field)
        for field in ("name", "version", "schema_url")
        if type(scope_attrs.get(field)) is str
    }
    dropped = (
        scope_attrs.pop("dropped_attributes_count") if type(scope_attrs.get("dropped_attributes_count")) is int else 0
    )
    called, version = name or fields.get("name", ""), fields.get("version", "")
    inside = text(b"\x0a", called) + text(b"\x12", version) + _SCOPE_ATTRS.write(scope_attrs)
    if dropped:
        inside += b"\x20" + varint(dropped & MASK)
    return (delimited(b"\x0a", inside) if inside else b"") + text(b"\x1a", fields.get("schema_url", "")), record_attrs


@lru_cache(maxsize=1024)
def _named(name: str) -> bytes:
    return delimited(b"\x0a", text(b"\x0a", name)) if name else b""
