"""The memory between the training loop and the flusher: a list of packed records with a byte quota."""

import threading
from collections import Counter
from collections.abc import Callable

from stepscope.journal import quota
from stepscope.model.records import KINDS
from stepscope.sdk.outcomes import Outcomes

FIRST_LOOK = 256
"""How many records may gather before their bytes are counted for the first time."""
LOOK = 1024
"""How many may gather between two looks while there is room."""
CHUNK = 2048
"""So many are thinned at a time, so that no call takes long."""
MOST_WAIT_SECONDS = 0.05
"""The longest a call waits for others to make room, and only when it would otherwise outrun them."""
MOST_RECORDS = 8192
MOST_BYTES = 8 * 1024 * 1024
"""A batch the flusher takes at once is no larger, unless one record alone is."""


class Recorder:
    """Takes packed records from any thread; `append` is a list's own append, so taking one costs nothing more.

    A caller appends, then calls `crowded` when `len(buffer) >= limit`; that counts the bytes of what is new, and when
    the quota is full thins a part of the older half. What goes is counted.
    """

    def __init__(self, memory_quota: int, outcomes: Outcomes, wake: Callable[[], None]) -> None:
        self.buffer: list[bytes] = []
        self.append = self.buffer.append
        self.quota = memory_quota
        self.outcomes = outcomes
        self.closed = False
        self.wake = wake
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's records; the parent writes them."""
        self._lock = threading.RLock()
        self._busy = False
        """Whether the lock is held in earnest; its holder may be interrupted by a signal handler that logs."""
        self._late = 0
        self._in_flight = self._in_flight_size = 0
        self.buffer.clear()
        self._forget()

    def _forget(self) -> None:
        self.limit = 0
        self._step = FIRST_LOOK
        self._size = self._seen = 0
        """The bytes of the first so many records."""
        self._next = self._barren = 0
        """Where thinning goes on, and how many records it has been through since it last won something."""
        self._turns: quota.Turns = {}

    @property
    def presses(self) -> bool:
        """Whether so much waits that the flusher should not wait for its next round."""
        return len(self.buffer) >= MOST_RECORDS or self._size > self.quota // 2

    def close(self) -> None:
        """Take nothing more: from now on records are dropped and counted."""
        self.closed = True
        self.crowded()

    @property
    def late(self) -> bool:
        """Whether records came after the end."""
        return self._late > 0

    def put(self, packed: bytes) -> None:
        """Take a record."""
        self.append(packed)
        if len(self.buffer) >= self.limit:
            self.crowded()

    def crowded(self) -> None:
        """See that a flusher runs and that the quota holds; renews the limit."""
        if not self.closed:
            self.wake()
        # Waiting is the exception, and short. When somebody else is at it the limit stays, and the next record asks.
        outran = len(self.buffer) > self.limit + 4 * self._step
        if not self._lock.acquire(blocking=outran, timeout=MOST_WAIT_SECONDS if outran else -1):
            return
        if self._busy:  # this very thread is at it, and was interrupted
            self._lock.release()
            return
        self._busy = True
        try:
            self._drop_late() if self.closed else self._renew_limit()
        except Exception as error:
            self.limit = len(self.buffer) + FIRST_LOOK
            self.outcomes.add("failed", "recorder", type(error).__name__)
        finally:
            self._busy = False
            self._lock.release()
        if self.closed:
            self.wake()  # there is something to say

    def _renew_limit(self) -> None:
        self._measure()
        if self._size > self.quota:
            self._thin()
        average = max(self._size // max(self._seen, 1), 1)
        room = (self.quota - self._size) // (2 * average)
        self._step = max(1, min(FIRST_LOOK, self.quota // 16 // average), min(LOOK, room))
        self.limit = len(self.buffer) + self._step

    def _measure(self) -> None:
        count = len(self.buffer)
        if self._seen > count:
            self._size = self._seen = 0
        self._size += sum(map(len, self.buffer[self._seen : count]))
        self._seen = count

    def _drop_late(self) -> None:
        late = self.buffer[:]
        del self.buffer[: len(late)]
        self._forget()
        self._late += len(late)
        if late and not threading.current_thread().daemon:  # those may run until the process ends
            self.outcomes.notice(
                "recorder",
                "late",
                "a record came after the end of its run and is dropped, as are all that follow; "
                "call finish() last, or init() for a new run",
            )
        for packed in late:
            self.outcomes.add("dropped", KINDS[quota.kind_of(packed)], "finished")

    def _thin(self) -> None:
        """Thin the next part of the older half of what waits; at its end, begin again with the oldest."""
        first = self._in_flight
        half = first + max((len(self.buffer) - first) // 2, 1)
        start = self._next if first <= self._next <= half - CHUNK // 4 else first
        older = self.buffer[start : min(half, start + CHUNK)]
        kept, dropped = quota.thin(older, self._turns)
        if len(kept) == len(older):
            kept, dropped = quota.thin(older, hard=True)
        size = sum(map(len, older))
        if size - sum(map(len, kept)) < size // 16:
            self._barren += len(older)
            if self._barren >= half - first:  # events and alerts alone fill the quota: it holds even against them
                kept, dropped = [], Counter(KINDS[quota.kind_of(packed)] for packed in older)
        else:
            self._barren = 0
        self.buffer[start : start + len(older)] = kept
        self._size -= size - sum(map(len, kept))
        self._seen -= len(older) - len(kept)
        self._next = start + len(kept)
        for kind, count in dropped.items():
            self.outcomes.add("dropped", kind, "memory", count)

    def take(self) -> list[bytes]:
        """Show the oldest records to the flusher; they stay until `taken` says they are safe."""
        with self._lock:
            self._busy = True
            self._measure()
            batch = self.buffer[: min(self._seen, MOST_RECORDS)]
            while (size := sum(map(len, batch))) > MOST_BYTES and len(batch) > 1:
                del batch[len(batch) // 2 :]
            self._in_flight, self._in_flight_size = len(batch), size
            self._busy = False
            return batch

    def taken(self, safe: bool) -> None:
        """Let go of the records shown last, or keep them for the next try."""
        with self._lock:
            self._busy = True
            if safe:
                self._size -= self._in_flight_size
                self._seen -= self._in_flight
                self._next = max(self._next - self._in_flight, 0)
                del self.buffer[: self._in_flight]
                self.limit = len(self.buffer) + self._step
            self._in_flight = 0
            self._busy = False
