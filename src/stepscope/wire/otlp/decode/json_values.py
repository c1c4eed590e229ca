"""The values of OTLP's JSON, read one by one; what is malformed raises one of `MALFORMED`."""

import base64
from collections.abc import Callable, Iterator
from typing import Any

from stepscope.model.records import Attrs
from stepscope.wire.otlp.decode.raw import MOST_PAIRS, NO_ID, Item
from stepscope.wire.otlp.refusals import Rejections

MALFORMED = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
"""What reading a value of the wrong shape raises."""

DEPTH = 32
"""Attributes nested deeper are malformed; protobuf's own limit is about 48."""

_INT64 = 2**63
_BASE64 = str.maketrans("-_", "+/")


def as_int(value: Any) -> int:
    """Read a 64-bit integer, signed or not: a number, or a string as the specification asks."""
    if type(value) is str:
        value = int(value)
    elif type(value) is float:
        if not value.is_integer():
            raise ValueError("not a whole number")
        value = int(value)
    elif value is None:
        return 0
    elif type(value) is not int:
        raise TypeError("not a number")
    if not -_INT64 <= value < 2 * _INT64:
        raise ValueError("beyond 64 bits")
    return int(value)


def as_count(value: Any) -> int:
    """Read an unsigned 64-bit integer."""
    number = as_int(value)
    if number < 0:
        raise ValueError("a count is negative")
    return number


def as_flags(value: Any) -> int:
    """Read an unsigned 32-bit integer."""
    number = as_int(value)
    if not 0 <= number < 2**32:
        raise ValueError("flags beyond 32 bits")
    return number


def as_float(value: Any) -> float:
    """Read a double: a number, or a string, which is how NaN and the infinities come."""
    if type(value) in (int, float, str):
        return float(value)
    raise TypeError("not a number")


def as_float_or_none(value: Any) -> float | None:
    """Read a double that may be unset."""
    return None if value is None else as_float(value)


def as_text(value: Any) -> str:
    """Read a string that may be unset."""
    if value is None:
        return ""
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def as_id(value: Any) -> bytes:
    """Read an id: hex in either case, empty when it is unset, `NO_ID` when it is anything else."""
    try:
        return bytes.fromhex(value) if value else b""
    except MALFORMED:
        return NO_ID


def as_list(value: Any) -> list[Any]:
    """Read a repeated field that may be unset."""
    if value is None:
        return []
    if type(value) is not list:
        raise TypeError("not an array")
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Read a message that may be unset."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise TypeError("not an object")
    return value


def read_each(nodes: Any, read: Callable[[Any], Item], refused: Rejections, name: str = "") -> Iterator[Item]:
    """Read the elements of an array as they are asked for; one that is malformed is refused alone."""
    return _read_each(as_list(nodes), read, refused, name)


def _read_each(nodes: list[Any], read: Callable[[Any], Item], refused: Rejections, name: str) -> Iterator[Item]:
    for node in nodes:
        try:
            item = read(node)
        except MALFORMED as error:
            refused.add("it is malformed", f"{name} {error}".strip())
            continue
        yield item


def attributes(pairs: Any, depth: int = DEPTH) -> Attrs:
    """Read key-values; one without a key is left out, one without a value is None."""
    attrs: Attrs = {}
    for pair in as_list(pairs)[:MOST_PAIRS]:
        if key := as_text(pair.get("key")):
            value = pair.get("value")
            text = value.get("stringValue") if value else None
            attrs[key] = text if type(text) is str else any_value(value, depth)
    return attrs


def any_value(node: Any, depth: int = DEPTH) -> Any:
    """Read an AnyValue of any kind; None when nothing known is set."""
    for kind, value in as_object(node).items():
        if value is None:
            continue
        if kind == "stringValue":
            return as_text(value)
        if kind == "intValue":
            return as_int64(value)
        if kind == "doubleValue":
            return as_float(value)
        if kind == "boolValue":
            return _as_bool(value)
        if kind == "bytesValue":
            return _as_bytes(value)
        if kind in ("arrayValue", "kvlistValue"):
            # A bare array in place of {"values": [...]} is wrong, but in OpenTelemetry's own examples.
            values = value if type(value) is list else as_object(value).get("values")
            return _nested(kind, values, depth - 1)
    return None


def _nested(kind: str, values: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("attributes nested too deep")
    if kind == "kvlistValue":
        return attributes(values, depth)
    return [any_value(inner, depth) for inner in as_list(values)]


def as_int64(value: Any) -> int:
    """Read a signed 64-bit integer."""
    number = as_int(value)
    if number >= _INT64:
        raise ValueError("beyond 64 bits")
    return number


def _as_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("not a bool")
    return value


def _as_bytes(value: Any) -> bytes:
    text = as_text(value).translate(_BASE64).rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
