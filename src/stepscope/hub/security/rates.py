"""How often one token may knock: a bucket of requests that fills at a steady rate."""

import time
from collections.abc import Callable

_BURST_SECONDS = 2.0


class Rates:
    """The buckets of all tokens. Not thread-safe: the event loop asks."""

    def __init__(self, default: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, token: str, rate: float | None = None) -> float:
        """Take one request; 0 when it may pass, else the seconds until the next may."""
        rate = rate or self._default
        now = self._clock()
        most = max(rate * _BURST_SECONDS, 1.0)
        left, before = self._buckets.get(token, (most, now))
        left = min(left + (now - before) * rate, most)
        if left < 1.0:
            self._buckets[token] = (left, now)
            return (1.0 - left) / rate
        self._buckets[token] = (left - 1.0, now)
        return 0.0
