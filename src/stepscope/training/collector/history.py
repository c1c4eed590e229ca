"""What a collector remembers of its metrics: the latest entries, and how many there were."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 10_000
"""Entries that are kept; older ones go."""
FAMILIES = ("training", "rl", "performance", "custom")


class History:
    """The latest entries, oldest first. Each is a dict with `timestamp`, `family`, `step` and the plain numbers.

    A number that has the name of one of these three is in the run, but not here.
    Values on a device are not among them: to keep them would keep their memory, to read them would wait.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=longest)
        self.taken = 0
        """How many entries there were since the last `clear`."""

    def add(self, family: str, step: int | None, numbers: Mapping[str, Any], now: float | None = None) -> None:
        """Remember the numbers of one call."""
        plain = {key: value for key, value in numbers.items() if isinstance(value, (int, float))}
        stamp = time.time() if now is None else now
        self._entries.append({**plain, "timestamp": stamp, "family": family, "step": step})
        self.taken += 1

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self.taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(list(self._entries))

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self._entries[at]
