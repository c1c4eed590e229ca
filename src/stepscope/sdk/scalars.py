"""The plain numbers everything ends as, and the refusal of what is none."""

import operator
from typing import Any

Number = int | float


class Refused(Exception):
    """A value that is no number; the text is the reason it is counted under."""


def step_number(step: Any) -> int:
    """The step as an integer of 64 bits, whoever made it; Refused when it is none."""
    try:
        number = operator.index(step)
    except Exception:  # TypeError, or whatever a foreign object raises when it is asked
        raise Refused(f"step is a {type(step).__name__}, not an integer") from None
    if not -(2**63) <= number < 2**63:
        raise Refused("step is beyond 64 bits")
    return number


def plain(item: Any) -> Number:
    """Check what a library's `item()` gave."""
    if type(item) is float or type(item) is int:
        return item
    if type(item) is bool:
        return int(item)
    if isinstance(item, (str, bytes, complex)) or item is None or not hasattr(item, "__float__"):
        raise Refused(f"type {type(item).__name__}")
    return float(item)
