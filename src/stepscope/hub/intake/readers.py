"""Whether anyone reads what the hub stores: while nobody does, it may store in larger and fewer commits."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

QUIET_SECONDS = 15.0
"""Time after the last request at which nobody counts as reading; the page asks more often."""


class Readers:
    """The requests that read, in progress and recent. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_progress = 0
        self._last = float("-inf")
        self._subscriber: Callable[[], object] = lambda: None

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function at each request; it must be quick."""
        self._subscriber = subscriber

    def note(self) -> None:
        """Note a request that reads."""
        self._last = self._clock()
        self._subscriber()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Note a request for as long as it takes: a live stream may take hours."""
        with self._lock:
            self._in_progress += 1
        self.note()
        try:
            yield
        finally:
            with self._lock:
                self._in_progress -= 1
            self._last = self._clock()

    def any(self) -> bool:
        """Return whether anyone reads, or did until recently."""
        return self._in_progress > 0 or self._clock() - self._last < QUIET_SECONDS
