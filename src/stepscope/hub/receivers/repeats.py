"""Requests that came before: a client that lost our answer sends the same bytes again, and they are stored once."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

SECONDS = 600.0
MOST = 50_000
"""So many requests are remembered, for so long: an OTLP client gives up after a minute or two."""

Answer = TypeVar("Answer")


class Repeats(Generic[Answer]):
    """What was answered to which request, in the memory of this process. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Answer]] = {}

    def find(self, key: bytes) -> Answer | None:
        """The answer to a request that came before; None when it did not, or too long ago."""
        with self._lock:
            until, answer = self._known.get(key, (0.0, None))
            return answer if until > self._clock() else None

    def keep(self, key: bytes, answer: Answer) -> None:
        """Remember an answer; the oldest go when their time is over, or when there are too many."""
        with self._lock:
            self._known.pop(key, None)
            now = self._clock()
            while self._known and (len(self._known) >= self._most or self._oldest() < now):
                self._known.pop(next(iter(self._known)))
            self._known[key] = (now + SECONDS, answer)

    def _oldest(self) -> float:
        return next(iter(self._known.values()))[0]

    def forget(self, key: bytes) -> None:
        """Take the next one for the first: it was not taken after all."""
        with self._lock:
            self._known.pop(key, None)


def digest(words: Iterable[str], data: bytes) -> bytes:
    """Tell requests apart: the bytes, and what else their meaning depends on."""
    found = hashlib.blake2b(data, digest_size=16)
    for word in words:
        found.update(b"\0" + word.encode("utf-8", "replace"))
    return found.digest()
