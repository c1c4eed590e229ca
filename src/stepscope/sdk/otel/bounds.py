"""Bucket bounds of histograms: those advised, else such as fit the unit."""

import math
from collections.abc import Sequence
from itertools import pairwise

ANY = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0, 10000.0)
"""OpenTelemetry's own, for a unit that tells nothing."""

_SECONDS = (
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
)  # fmt: skip
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9, "min": 1 / 60, "h": 1 / 3600}
_BYTES = tuple(4.0**power for power in range(3, 21))
"""From 64 bytes to 1 TiB."""
_PER_BYTE = {
    "By": 1.0, "bytes": 1.0, "KiBy": 2.0**10, "MiBy": 2.0**20, "GiBy": 2.0**30, "kBy": 1e3, "MBy": 1e6, "GBy": 1e9,
}  # fmt: skip
_COUNTS = tuple(4.0**power for power in range(14))
"""From 1 to 67 million, as the conventions for generative AI ask for tokens."""
_COUNTED = frozenset({"token", "sample", "example", "element", "row", "item", "parameter"})
_RATIOS = (
    0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0, 1.5, 2.0, 5.0, 10.0,
)  # fmt: skip
_RATES = tuple(float(digit * 10**power) for power in range(8) for digit in (1, 2.5, 5))
"""From 1 to 50 million per second."""


def bounds_for(unit: str, advised: Sequence[float] | None = None) -> tuple[float, ...]:
    """Choose the bounds: the advice when it makes sense, else by the unit in UCUM or in plain words."""
    if advised is not None and is_ordered(advised):
        return tuple(float(bound) for bound in advised)
    if unit in _PER_SECOND:
        return tuple(bound * _PER_SECOND[unit] for bound in _SECONDS)
    if unit in _PER_BYTE:
        return tuple(bound / _PER_BYTE[unit] for bound in _BYTES)
    thing, slash, per = unit.partition("/")
    if slash and per in ("s", "sec", "second"):
        return _BYTES if thing in ("By", "bytes") else _RATES
    if unit in ("1", "%"):
        return _RATIOS if unit == "1" else tuple(bound * 100 for bound in _RATIOS)
    return _COUNTS if thing.strip("{}").rstrip("s") in _COUNTED else ANY


def is_ordered(bounds: Sequence[float]) -> bool:
    """Tell whether bounds are finite numbers in rising order."""
    try:
        return all(map(math.isfinite, bounds)) and all(low < high for low, high in pairwise(bounds))
    except (TypeError, ValueError, OverflowError):
        return False
