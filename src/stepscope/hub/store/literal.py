"""Values as SQL literals."""

from collections.abc import Iterable

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\0": "\\0", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def text(value: str) -> str:
    """Quote a string."""
    return "'" + value.encode("utf-8", "replace").decode().translate(_ESCAPES) + "'"


def octets(value: bytes) -> str:
    """Write an id of raw bytes."""
    return f"unhex('{value.hex()}')"


def fixed(value: bytes) -> str:
    """Write an id of raw bytes as a FixedString, as wide as it is."""
    return f"toFixedString({octets(value)}, {len(value)})"


def texts(values: Iterable[str]) -> str:
    """Write strings for an IN."""
    return "(" + ", ".join(text(value) for value in values) + ")"


def integers(values: Iterable[int]) -> str:
    """Write integers for an IN."""
    return "(" + ", ".join(str(int(value)) for value in values) + ")"
