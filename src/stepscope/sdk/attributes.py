"""Attributes of records: copied when given, secrets masked, sizes bounded."""

from collections.abc import Mapping
from typing import Any

from stepscope.model.redaction import MASK, is_secret

LONGEST = 64 * 1024
"""Characters of one text; a longer one is cut and says so."""
MOST = 256
"""Attributes of one record."""
DEPTH = 8
MOST_HARMLESS = 10_000
_harmless: set[str] = set()
"""Keys known to name no secret."""
_SIMPLE = frozenset((str, int, float, bool))
_FLAT = (str, int, float, bool, type(None), bytes)


def clean(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy attributes so that nothing outside can change them and no secret is in them."""
    if not attrs:
        return {}
    return _mapping(attrs, DEPTH)


def clean_own(attrs: dict[str, Any]) -> dict[str, Any]:
    """The same for a dict nobody else holds: it is copied only when something in it must change.

    Texts that are too long and integers beyond 64 bits are left to whoever packs it.
    """
    if _harmless.issuperset(attrs):
        return attrs if _SIMPLE.issuperset(map(type, attrs.values())) else _mapping(attrs, DEPTH)
    return _vetted(attrs)


def _vetted(attrs: dict[str, Any]) -> dict[str, Any]:
    if len(_harmless) < MOST_HARMLESS:
        _harmless.update(key for key in attrs if not is_secret(key))
    return _mapping(attrs, DEPTH)


def clean_value(key: str, value: Any) -> Any:
    """Copy one attribute's value."""
    return MASK if is_secret(key) else _value(value, DEPTH)


def _mapping(attrs: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    copied: dict[str, Any] = {}
    for key, value in attrs.items():
        if len(copied) >= MOST:
            copied["stepscope.cut"] = len(attrs) - MOST
            break
        name = key if type(key) is str else str(key)
        copied[name] = MASK if is_secret(name) else _value(value, depth)
    return copied


def _value(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}… ({len(value)} characters)"
    if kind is int:
        return value if -(2**63) <= value < 2**64 else str(value)
    if kind in _FLAT:
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return _mapping(value, depth - 1)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_value(inner, depth - 1) for inner in list(value)[:MOST]]
    return _foreign(value)


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
    try:
        return str(value)[:LONGEST]
    except Exception:
        return f"<{type(value).__name__}>"
