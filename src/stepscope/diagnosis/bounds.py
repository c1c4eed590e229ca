"""Bounds on what the diagnosis keeps: ever new names neither fill the memory nor hide the usual ones."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def drop_rarest(entries: dict[K, V], most: int, uses: Callable[[V], float]) -> list[K]:
    """Drop the less used half when there are more entries than `most`, the oldest first; return the dropped keys."""
    if len(entries) <= most:
        return []
    rarest = sorted(entries, key=lambda key: uses(entries[key]))[: len(entries) - most // 2]
    for key in rarest:
        del entries[key]
    return rarest
