"""The memory between the training loop and the flusher: a list of packed records with a byte quota."""

import threading
from collections.abc import Callable

from stepscope.journal import quota
from stepscope.model.records import KINDS
from stepscope.sdk.outcomes import Outcomes

FIRST_LOOK = 256
"""How many records may gather before their bytes are counted for the first time."""
MOST_RECORDS = 8192
MOST_BYTES = 8 * 1024 * 1024
"""A batch the flusher takes at once is no larger, unless one record alone is."""


class Recorder:
    """Takes packed records from any thread; `append` is a list's own append, so taking one costs nothing more.

    A caller appends, then calls `crowded` when `len(buffer) >= limit`. The limit is a guess, renewed whenever it
    is reached, of how many records fit into the quota; what does not fit is thinned and counted.
    """

    def __init__(self, memory_quota: int, outcomes: Outcomes, wake: Callable[[], None]) -> None:
        self.buffer: list[bytes] = []
        self.append = self.buffer.append
        self.limit = 0
        self.quota = memory_quota
        self.outcomes = outcomes
        self.closed = False
        self.wake = wake
        self._lock = threading.Lock()
        self._in_flight = 0

    def after_fork(self) -> None:
        """Forget the parent's records; the parent writes them."""
        self._lock = threading.Lock()
        self._in_flight = 0
        self.buffer.clear()
        self.limit = 0
        self.closed = False

    def close(self) -> None:
        """Take nothing more: from now on records are dropped and counted."""
        self.closed = True
        self.crowded()

    def put(self, packed: bytes) -> None:
        """Take a record."""
        self.append(packed)
        if len(self.buffer) >= self.limit:
            self.crowded()

    def crowded(self) -> None:
        """See that a flusher runs and that the quota holds; renews the limit."""
        self.wake()
        with self._lock:
            if self.closed:
                self._drop_late()
                return
            waiting = self.buffer[self._in_flight :]
            size = sum(map(len, self.buffer))
            if size > self.quota:
                size -= self._thin(waiting)
            count = max(len(self.buffer), 1)
            room = int((self.quota - size) / (size / count + 1))
            self.limit = len(self.buffer) + max(FIRST_LOOK, room // 2)

    def _drop_late(self) -> None:
        late = self.buffer[:]
        del self.buffer[: len(late)]
        self.limit = 0
        for packed in late:
            self.outcomes.add("dropped", KINDS[quota.kind_of(packed)], "finished")

    def _thin(self, waiting: list[bytes]) -> int:
        """Thin the older half and return the bytes won."""
        older = waiting[: len(waiting) // 2 or 1]
        size = sum(map(len, older))
        kept, dropped = quota.thin(older)
        won = size - sum(map(len, kept))
        if won < self.quota // 16:  # events and alerts alone fill the quota: it holds even against them
            dropped.update(KINDS[quota.kind_of(packed)] for packed in kept)
            kept, won = [], size
        start = self._in_flight
        self.buffer[start : start + len(older)] = kept
        for kind, count in dropped.items():
            self.outcomes.add("dropped", kind, "memory", count)
        return won

    def take(self) -> list[bytes]:
        """Show the oldest records to the flusher; they stay until `taken` says they are safe."""
        with self._lock:
            batch = self.buffer[:MOST_RECORDS]
            while len(batch) > 1 and sum(map(len, batch)) > MOST_BYTES:
                del batch[len(batch) // 2 :]
            self._in_flight = len(batch)
            return batch

    def taken(self, safe: bool) -> None:
        """Let go of the records shown last, or keep them for the next try."""
        with self._lock:
            if safe:
                del self.buffer[: self._in_flight]
                if not self.buffer:
                    self.limit = FIRST_LOOK
            self._in_flight = 0

