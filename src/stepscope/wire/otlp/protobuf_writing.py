"""Protobuf's wire format by hand: enough to write OTLP requests and to read a server's small replies."""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct, error

from stepscope.wire import protobuf_fields

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
