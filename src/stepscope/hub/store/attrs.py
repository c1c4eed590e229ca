"""Attributes as parallel arrays: names, values as text, and one letter per value for its type."""

import base64
import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from stepscope.hub.store.columns import Block, Lists, ends_of, texts
from stepscope.model.records import Attrs

EncodedValue = tuple[str, str]
"""The letter of a type and the text of a value: s(tring) i(nt) f(loat) b(ool) n(one) x (bytes) j(son)."""

_USUAL_LETTERS = {str: "s", int: "i"}
_USUAL = frozenset(_USUAL_LETTERS)


def encode_value(value: Any) -> EncodedValue:
    """Encode a value as text; TypeError or ValueError for anything but an attribute type."""
    kind = type(value)
    if kind is str:
        return "s", value
    if kind is int:
        return "i", str(value)
    if kind is float:
        return "f", repr(value) if math.isfinite(value) else str(value)
    if kind is bool:
        return "b", "true" if value else "false"
    if value is None:
        return "n", ""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "x", base64.b64encode(value).decode()
    return "j", as_json(value)


def decode_value(letter: str, text: str) -> Any:
    """Decode a value."""
    if letter == "s":
        return text
    if letter == "i":
        return int(text)
    if letter == "f":
        return float(text)
    if letter == "b":
        return text == "true"
    if letter == "n":
        return None
    if letter == "x":
        return base64.b64decode(text)
    return _loads(text)


def as_json(value: Any) -> str:
    """Write nested values; NaN and infinities as Python does, bytes as an object with the one key `bytes`."""
    return "{}" if type(value) is dict and not value else _dumps(value)  # most links have no attributes


def from_json(text: str) -> Any:
    """Read nested values back."""
    return _loads(text)


def _loads(text: str) -> Any:
    """Parse JSON with the fast parser, or with the one that supports NaN, large integers and bytes."""
    if '"bytes"' not in text:
        try:
            return _quick(text)
        except msgspec.DecodeError:
            pass
    return json.loads(text, object_hook=_restore)


_quick = msgspec.json.Decoder().decode


def _plain_json(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"an attribute cannot be a {type(value).__name__}")


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain_json).encode


def _restore(value: dict[str, Any]) -> Any:
    if len(value) == 1 and isinstance(text := value.get("bytes"), str):
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            return value
    return value


def block(sets: Sequence[Attrs]) -> Block:
    """Make the three columns of many sets of attributes; nothing where none has any, which is the tables' default."""
    if not any(sets):  # most spans
        return {}
    names = list(chain.from_iterable(sets))
    flat = list(chain.from_iterable([attrs.values() for attrs in sets]))
    values, letters = _encode_all(flat)
    ends = ends_of(map(len, sets))
    bounds = ends.tolist()
    types = [letters[start:end] for start, end in zip([0, *bounds], bounds, strict=False)]
    return {
        "attr_names": Lists(ends, texts(names)),
        "attr_values": Lists(ends, texts(values)),
        "attr_types": texts(types),
    }


def _encode_all(flat: list[Any]) -> tuple[list[str], str]:
    """The texts and letters of many values; the same as one by one, and faster for the usual types."""
    kinds = list(map(type, flat))
    if _USUAL.issuperset(kinds):
        texts = [value if kind is str else str(value) for value, kind in zip(flat, kinds, strict=True)]
        return texts, "".join(map(_USUAL_LETTERS.__getitem__, kinds))
    encoded = [encode_value(value) for value in flat]
    return [text for _, text in encoded], "".join([letter for letter, _ in encoded])


def restore(names: Iterable[str], values: Iterable[str], types: str) -> Attrs:
    """Read a set of attributes back."""
    encoded = zip(names, types, values, strict=True)
    return {name: decode_value(letter, text) for name, letter, text in encoded}
