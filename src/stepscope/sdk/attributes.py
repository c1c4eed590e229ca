"""Attributes of records: copied when given, secrets masked, sizes bounded."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from stepscope.model.redaction import MASK, is_secret
from stepscope.sdk.context import text_of

LONGEST = 64 * 1024
"""Characters of one text; a longer one is cut and says so."""
MOST = 256
"""Attributes of one record, and entries of one list or dict in it."""
DEPTH = 8
MOST_VALUES = 10_000
"""Values of one record, over all lists and dicts in it; one that holds itself would have no end."""
MOST_HARMLESS = 10_000
CUT = "…"
"""Stands for what is too deep or too much."""
_harmless: set[str] = set()
"""Keys known to name no secret."""
_SIMPLE = frozenset((str, int, float, bool))
_FLAT = (str, int, float, bool, type(None), bytes)


def clean(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy attributes so that nothing outside can change them and no secret is in them."""
    if not attrs:
        return {}
    return _Copy().mapping(attrs, DEPTH)


def clean_own(attrs: dict[str, Any]) -> dict[str, Any]:
    """The same for a dict nobody else holds: it is copied only when something in it must change.

    Texts that are too long and integers beyond 64 bits are left to whoever packs it.
    """
    if _harmless.issuperset(attrs):
        return attrs if _SIMPLE.issuperset(map(type, attrs.values())) else clean(attrs)
    return _vetted(attrs)


def _vetted(attrs: dict[str, Any]) -> dict[str, Any]:
    if len(_harmless) < MOST_HARMLESS:
        _harmless.update(key for key in attrs if not is_secret(key))
    return clean(attrs)


def clean_value(key: str, value: Any) -> Any:
    """Copy one attribute's value."""
    return MASK if is_secret(key) else _Copy().value(value, DEPTH)


class _Copy:
    """Copies one record's attributes."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def mapping(self, attrs: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in attrs.items():
            if len(copied) >= MOST:
                copied["stepscope.cut"] = len(attrs) - MOST
                break
            name = key if type(key) is str else text_of(key)
            copied[name] = MASK if is_secret(name) else self.value(value, depth)
        return copied

    def value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return value if len(value) <= LONGEST else f"{value[:LONGEST]}… ({len(value)} characters)"
        if kind is int:
            return value if -(2**63) <= value < 2**64 else str(value)
        if kind in _FLAT:
            return value
        self._left -= 1
        if depth == 0 or self._left < 0:
            return CUT
        if isinstance(value, Mapping):
            return self.mapping(value, depth - 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(inner, depth - 1) for inner in list(value)[:MOST]]
        inside = _inside(value)
        return _foreign(value) if inside is None else self.value(inside, depth - 1)


def _inside(value: Any) -> Any:
    """What an object of settings or of numpy holds, in Python's own types; None for any other."""
    argparse = sys.modules.get("argparse")
    if argparse is not None and isinstance(value, argparse.Namespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: getattr(value, entry.name, None) for entry in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        found = value.item()
        return str(found) if isinstance(found, numpy.generic) else found  # a longdouble is its own item
    if numpy is not None and isinstance(value, numpy.ndarray) and value.size <= MOST:
        return value.tolist()
    return None


def _foreign(value: Any) -> Any:
    """The text of an object, never of a device tensor: that would wait for the device."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "device") and hasattr(value, "shape"):
        return f"<{type(value).__name__} {tuple(value.shape)} on {value.device}>"
    return text_of(value)[:LONGEST]
