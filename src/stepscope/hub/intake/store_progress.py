"""How far the store has stored what the intake journaled, with futures for positions."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

Mark = tuple[int, int]
"""A position in the hub's journal: the segment, and the offset in it."""


class StoreProgress:
    """Two positions in the hub's journal: how far it is written, and how far it is stored. Safe from any thread."""

    def __init__(
        self, written: Mark = (0, 0), stored: Mark = (0, 0), on_wait: Callable[[], object] = lambda: None
    ) -> None:
        self._lock = threading.Lock()
        self._written = max(written, stored)
        self._stored = stored
        self._waiting: list[tuple[Mark, Future[None]]] = []
        self._on_wait = on_wait
        """Called when someone begins to wait for a position."""

    @property
    def written(self) -> Mark:
        """How far the journal is written; everything acknowledged so far is before it."""
        return self._written

    def is_stored(self, mark: Mark) -> bool:
        """Return whether everything before a position is stored."""
        return self._stored >= mark

    def wrote(self, mark: Mark) -> None:
        """Set how far the intake has written."""
        self._written = mark

    def store(self, mark: Mark) -> None:
        """Set how far the store is; completes the futures of earlier positions."""
        with self._lock:
            self._stored = max(mark, self._stored)
            done = [future for wanted, future in self._waiting if wanted <= self._stored]
            self._waiting = [each for each in self._waiting if each[0] > self._stored]
        for future in done:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def after(self, mark: Mark) -> "Future[None]":
        """Return a future that completes when everything before a position is stored."""
        future: Future[None] = Future()
        with self._lock:
            if self._stored < mark:
                self._waiting.append((mark, future))
            else:
                future.set_result(None)
        if not future.done():
            self._on_wait()
        return future
