"""The memory between the training loop and the flusher: a list of packed records with a byte quota."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from stepscope.journal import quota
from stepscope.model.records import KINDS
from stepscope.sdk.outcomes import Outcomes

FIRST_LOOK = 256
"""How many records may gather before their bytes are counted for the first time."""
LOOK = 1024
"""How many may gather between two looks while there is room."""
CHUNK = 2048
"""So many are thinned at a time."""
PART_BYTES = 256 * 1024
"""The flusher reads no more of them at a time, so that it soon gives way to the loop."""
OVERHEAD = 56
"""Bytes of memory that a record takes beside its own: the object around it, and its place in the list."""
MOST_WAIT_SECONDS = 0.05
"""The longest a call waits for others to make room, and only when it would otherwise outrun them."""
MOST_RECORDS = 8192
MOST_BYTES = 8 * 1024 * 1024
"""A batch the flusher takes at once is no larger, unless one record alone is."""


def weight(records: Sequence[bytes]) -> int:
    """The bytes of memory that records take."""
    return sum(map(len, records)) + OVERHEAD * len(records)


class Recorder:
    """Takes packed records from any thread; `append` is a list's own append, so taking one costs nothing more.

    A caller appends, then calls `crowded` when `len(buffer) >= limit`; that counts the bytes of what is new. When the
    quota is full the flusher thins the older half with `relieve`, off the loop. Only where it cannot keep up, as on a
    disk that hangs, and a quarter more has gathered, does a caller drop every second record itself, without looking
    into them. What goes is counted.
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
        self._version = 0
        """Changes when records leave the list other than at its end."""

    @property
    def is_full(self) -> bool:
        """Whether more waits than the quota allows."""
        return self._size > self.quota

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
        if self._size > self.quota + self.quota // 4:
            start, older = self._oldest(self._size)
            self._replace(start, older, *quota.thin(older, hard=True))
        average = max(self._size // max(self._seen, 1), 1)
        room = (self.quota - self._size) // (2 * average)
        self._step = max(1, min(FIRST_LOOK, self.quota // 16 // average), min(LOOK, room))
        self.limit = len(self.buffer) + self._step

    def _measure(self) -> None:
        count = len(self.buffer)
        if self._seen > count:
            self._size = self._seen = 0
        self._size += weight(self.buffer[self._seen : count])
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

    def relieve(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Thin what waits until it fits the quota; for the flusher's thread, for it takes long."""
        while self._relieve_once():
            pause(0)

    def _relieve_once(self) -> bool:
        """Thin a small part of the older half; False when there is no need to."""
        with self._lock:
            if self._busy:  # this very thread is at it, and was interrupted
                return False
            self._measure()
            if not self.is_full:
                return False
            start, older = self._oldest(PART_BYTES)
            version = self._version
        kept, dropped = quota.thin(older, self._turns)  # not under the lock: callers go on
        if len(kept) == len(older):
            kept, dropped = quota.thin(older, hard=True)
        with self._lock:
            if version == self._version and not self._busy:
                self._replace(start, older, kept, dropped)
        return True

    def _oldest(self, most_bytes: int) -> tuple[int, list[bytes]]:
        """Where thinning goes on, and the next records there; at the end of the older half it begins again.

        Where nothing was won in the whole of it, all events and alerts, the newer half is next.
        """
        first = self._in_flight
        end = len(self.buffer) if self._barren >= self._half() else first + self._half()
        start = self._next if first <= self._next <= end - CHUNK // 4 else first
        older = self.buffer[start : min(end, start + CHUNK)]
        while len(older) > 1 and weight(older) > most_bytes:
            del older[len(older) // 2 :]
        return start, older

    def _half(self) -> int:
        """How many records the older half of those that may go has."""
        return max((len(self.buffer) - self._in_flight) // 2, 1)

    def _replace(self, start: int, older: list[bytes], kept: list[bytes], dropped: "Counter[str]") -> None:
        """Put what was kept in the place of what was looked at; count the rest."""
        size = weight(older)
        half = self._half()
        if size - weight(kept) < size // 16:
            self._barren += len(older)
            # Events and alerts alone fill the quota: it holds even against them.
            if self._barren >= len(self.buffer) - self._in_flight:
                kept, dropped = [], Counter(KINDS[quota.kind_of(packed)] for packed in older)
        else:
            self._barren = 0 if start < self._in_flight + half else half
        self.buffer[start : start + len(older)] = kept
        self._version += 1
        self._size -= size - weight(kept)
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
            while sum(map(len, batch)) > MOST_BYTES and len(batch) > 1:
                del batch[len(batch) // 2 :]
            self._in_flight, self._in_flight_size = len(batch), weight(batch)
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
                self._version += 1
                self.limit = len(self.buffer) + self._step
            self._in_flight = 0
            self._busy = False
