"""Protobuf messages read field by field, for formats of which a few fields are wanted."""

from collections.abc import Iterator
from typing import Any


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: integers, bytes, or 4 and 8 bytes; ValueError when it is broken."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(data, at) if kind == 2 else (-1, at)
        if size < 0 or at + size > end:
            raise ValueError("a field is cut off or of an unknown type")
        yield number, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer, and return it with the offset behind it; ValueError when it is cut off."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")


def signed(value: int) -> int:
    """Decode a varint as int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def text(data: Any) -> str:
    """Return a string field as text; invalid UTF-8 is replaced, and a missing string is empty."""
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
