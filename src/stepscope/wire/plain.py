"""Stepscope's objects as JSON: NaN and infinities as words, ids as hex, records with their kind."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.model.records import Alert, Event, Log, Metric, Span, kind, word

_SAME = frozenset((str, int, bool, type(None)))


def plain(value: Any) -> Any:
    """Turn a value into what JSON can hold, without loss where that is possible."""
    if type(value) in _SAME:
        return value
    if isinstance(value, float):
        return word(value)
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (Metric, Span, Log, Event, Alert)):
        return {"kind": kind(value), **plain(msgspec.structs.asdict(value))}
    if isinstance(value, msgspec.Struct):  # by the names that msgspec encodes
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {encoded: plain(getattr(value, name)) for encoded, name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    try:
        return [plain(inner) for inner in value]
    except TypeError:
        return str(value)


def dumps(value: Any, *, indent: int | None = 2) -> str:
    """Write a value as strictly valid JSON."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)
