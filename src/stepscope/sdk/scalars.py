"""The plain numbers everything ends as, and the refusal of what is none."""

from typing import Any

Number = int | float


class Refused(Exception):
    """A value that is no number; the text is the reason it is counted under."""


def plain(item: Any) -> Number:
    """Check what a library's `item()` gave."""
    if type(item) is float or type(item) is int:
        return item
    if type(item) is bool:
        return int(item)
    if isinstance(item, (str, bytes, complex)) or item is None or not hasattr(item, "__float__"):
        raise Refused(f"type {type(item).__name__}")
    return float(item)
