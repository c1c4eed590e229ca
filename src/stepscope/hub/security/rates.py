"""How often one token may knock: a bucket of requests that fills at a steady rate."""

import math
import time
from collections.abc import Callable

_BURST_SECONDS = 2.0
_SHORTEST, _LONGEST = 0.001, 3600.0
"""Bounds of what a client is told to wait, in seconds: it must neither spin nor be lost for good."""


class Rates:
    """The buckets of all tokens. Not thread-safe: the event loop asks."""

    def __init__(self, default: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, token: str, rate: float | None = None) -> float:
        """Take one request; 0 when it may pass, else the seconds until the next may.

        None means the default. A rate that is not above 0 lets nothing pass, and its clients knock once an hour.
        """
        rate = self._default if rate is None else rate
        if not rate > 0:
            return _LONGEST
        if rate == math.inf:
            return 0.0
        now = self._clock()
        most = max(rate * _BURST_SECONDS, 1.0)
        left, before = self._buckets.get(token, (most, now))
        left = min(left + (now - before) * rate, most)
        if left < 1.0:
            self._buckets[token] = (left, now)
            return min(max((1.0 - left) / rate, _SHORTEST), _LONGEST)
        self._buckets[token] = (left - 1.0, now)
        return 0.0
