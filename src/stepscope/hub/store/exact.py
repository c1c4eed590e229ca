"""Integers beyond 2**53, stored as the nearest double and the difference from it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepscope.hub.store.columns import Floats

LIMIT = 2.0**53
"""Doubles below this hold every integer."""
_INT64 = 2**63

Remainders = npt.NDArray[np.int16]


def remainders(given: Sequence[int | float], stored: Floats) -> Remainders | None:
    """The differences of the doubles from the given 64-bit integers; None when all are exact."""
    found: Remainders | None = None
    for at in np.flatnonzero(np.abs(stored) >= LIMIT).tolist():
        value = given[at]
        if isinstance(value, int) and -_INT64 <= value < _INT64 and (rest := value - int(stored[at])):
            if found is None:
                found = np.zeros(len(stored), np.int16)
            found[at] = rest
    return found


def is_large(*values: float) -> bool:
    """Return whether a difference may belong to one of these numbers."""
    return any(LIMIT <= abs(value) <= _INT64 for value in values)


def exact_number(value: float, rest: int = 0) -> int | float:
    """Return the given number: an exact integer where doubles are not exact."""
    return int(value) + rest if is_large(value) else value


def patch(shown: list[object], values: Floats, rest: npt.NDArray[np.int64]) -> None:
    """Replace doubles by the exact integers they stand for."""
    for at in np.flatnonzero((np.abs(values) >= LIMIT) & (np.abs(values) <= _INT64)).tolist():
        shown[at] = exact_number(float(values[at]), int(rest[at]))
