"""The memory between the training loop and the flusher: a list of packed records with a byte quota."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from stepscope.journal import quota
from stepscope.model.records import KINDS
from stepscope.sdk.core import RecorderState
from stepscope.sdk.masking import MASKED_LATER
from stepscope.sdk.outcomes import Outcomes

FIRST_LOOK = 256
"""Records that may accumulate before their bytes are counted for the first time."""
LOOK = 1024
"""Records that may accumulate between two checks while there is room."""
CHUNK = 2048
"""Records that are thinned at a time."""
PARTS = 64
"""Parts that are thinned before what is left is written, in a round of the flusher."""
PART_BYTES = 256 * 1024
"""Bytes of records the flusher reads at a time, so that it releases the GIL soon."""
OVERHEAD = 56
"""Bytes of memory a record takes beyond its own: the bytes object and the slot in the list."""
MAX_WAIT_SECONDS = 0.05
"""The longest a call waits for the flusher to make room, when it records faster than that can thin."""
MAX_RECORDS = 8192
MAX_BYTES = 8 * 1024 * 1024
"""Size limit of a batch; a single larger record is a batch by itself."""
MAX_UNMASKED_BYTES = 64 * 1024
"""Bytes of a batch that are still to be masked; a larger batch would be written too late."""


def weight(records: Sequence[bytes]) -> int:
    """Return the bytes of memory that records take."""
    return sum(map(len, records)) + OVERHEAD * len(records)


def _masked_together(batch: list[bytes]) -> int:
    """Return how many of the first records may be masked in one batch; at least one."""
    if MASKED_LATER.isdisjoint(map(type, batch)):
        return len(batch)
    size = 0
    for at, packed in enumerate(batch):
        if type(packed) in MASKED_LATER:
            size += len(packed)
            if size > MAX_UNMASKED_BYTES and at:
                return at
    return len(batch)


class Recorder(RecorderState):
    """Takes packed records from any thread; `append` is the append method of a list and costs no more.

    A caller appends, then calls `enforce_quota` when `len(buffer) >= limit`, which counts the bytes of the new records.
    When the quota is full, the flusher thins the older half with `thin`, outside the training loop. Only if it cannot
    keep up, as on a disk that hangs, and another quarter has accumulated, does a caller drop every second record
    itself, without inspecting them. All drops are counted.
    """

    def __init__(self, memory_quota: int, outcomes: Outcomes, wake: Callable[[], None]) -> None:
        self.buffer = []
        self.append = self.buffer.append
        self.quota = memory_quota
        self.outcomes = outcomes
        self.closed = False
        self.wake = wake
        self.after_fork()

    def after_fork(self) -> None:
        """Discard the parent's records, which the parent writes."""
        self._lock = threading.RLock()
        self._busy = False
        """Whether a thread is working under the lock; a signal handler that logs may interrupt that same thread."""
        self._late = 0
        self._in_flight = self._in_flight_size = 0
        self.buffer.clear()
        self._forget()

    def _forget(self) -> None:
        self.limit = 0
        self._step = FIRST_LOOK
        self._size = self._seen = 0
        """The bytes of the first `_seen` records."""
        self._next = self._unthinned = 0
        """Where thinning continues, and how many records it has passed since it last dropped one."""
        self._turns: quota.Turns = {}
        self._version = 0
        """Incremented when records are removed anywhere but at the end of the list."""

    @property
    def is_full(self) -> bool:
        """Whether the buffer exceeds the quota."""
        return self._size > self.quota

    @property
    def is_filling_up(self) -> bool:
        """Whether the buffer is so full that the flusher should start its next round at once."""
        return len(self.buffer) >= MAX_RECORDS or self._size > self.quota // 2

    def close(self) -> None:
        """Accept nothing more: further records are dropped and counted."""
        self.closed = True
        self.enforce_quota()

    @property
    def late(self) -> bool:
        """Whether records arrived after `close`."""
        return self._late > 0

    def put(self, packed: bytes) -> None:
        """Add a record."""
        self.append(packed)
        if len(self.buffer) >= self.limit:
            self.enforce_quota()

    def enforce_quota(self) -> None:
        """Start the flusher if needed, enforce the quota, and set the next limit."""
        if not self.closed:
            self.wake()
        # Waiting is rare and short. If another thread is here, the limit stays and the next record tries again.
        outran = len(self.buffer) > self.limit + 4 * self._step
        if not self._lock.acquire(blocking=outran, timeout=MAX_WAIT_SECONDS if outran else -1):
            return
        if self._busy:  # this thread holds the lock and was interrupted by a signal handler
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
            self.wake()  # a warning is pending

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
        if late and not threading.current_thread().daemon:  # daemon threads may log until the process ends
            self.outcomes.notice(
                "recorder",
                "late",
                "a record came after the end of its run and was dropped, as all further ones will be; "
                "call finish() last, or init() for a new run",
            )
        for packed in late:
            self.outcomes.add("dropped", KINDS[quota.kind_of(packed)], "finished")

    def thin(self, pause: Callable[[float], None] = time.sleep, most: float = math.inf) -> None:
        """Thin the buffer until it fits the quota; runs on the flusher's thread because it takes long.

        Against threads that record faster than this thins it would take for ever: `most` is for how many parts.
        """
        parts = 0
        while parts < most and self._thin_once():
            parts += 1
            pause(0)

    def _thin_once(self) -> bool:
        """Thin a small part of the older half; return False when that is not needed."""
        with self._lock:
            if self._busy:  # this thread holds the lock and was interrupted by a signal handler
                return False
            self._measure()
            if not self.is_full:
                return False
            start, older = self._oldest(PART_BYTES)
            version = self._version
        kept, dropped = quota.thin(older, self._turns)  # outside the lock, so that callers continue
        if len(kept) == len(older):
            kept, dropped = quota.thin(older, hard=True)
        with self._lock:
            if version == self._version and not self._busy:
                self._replace(start, older, kept, dropped)
        return True

    def _oldest(self, most_bytes: int) -> tuple[int, list[bytes]]:
        """Return where thinning continues and the next records there; at the end of the older half it starts again.

        If the whole older half could not be thinned, because it is all events and alerts, the newer half is next.
        """
        first = self._in_flight
        end = len(self.buffer) if self._unthinned >= self._half() else first + self._half()
        start = self._next if first <= self._next <= end - CHUNK // 4 else first
        older = self.buffer[start : min(end, start + CHUNK)]
        while len(older) > 1 and weight(older) > most_bytes:
            del older[len(older) // 2 :]
        return start, older

    def _half(self) -> int:
        """Return how many records the older half of those that may be dropped has."""
        return max((len(self.buffer) - self._in_flight) // 2, 1)

    def _replace(self, start: int, older: list[bytes], kept: list[bytes], dropped: "Counter[str]") -> None:
        """Replace a part of the buffer by what was kept of it, and count the rest as dropped."""
        size = weight(older)
        half = self._half()
        if size - weight(kept) < size // 16:
            self._unthinned += len(older)
            # Events and alerts alone fill the quota: it holds even against them.
            if self._unthinned >= len(self.buffer) - self._in_flight:
                kept, dropped = [], Counter(KINDS[quota.kind_of(packed)] for packed in older)
        else:
            self._unthinned = 0 if start < self._in_flight + half else half
        self.buffer[start : start + len(older)] = kept
        self._version += 1
        self._size -= size - weight(kept)
        self._seen -= len(older) - len(kept)
        self._next = start + len(kept)
        for kind, count in dropped.items():
            self.outcomes.add("dropped", kind, "memory", count)

    def take(self) -> list[bytes]:
        """Return the oldest records for the flusher; they stay in the buffer until `taken` confirms the write."""
        with self._lock:
            self._busy = True
            self._measure()
            batch = self.buffer[: min(self._seen, MAX_RECORDS)]
            while sum(map(len, batch)) > MAX_BYTES and len(batch) > 1:
                del batch[len(batch) // 2 :]
            del batch[_masked_together(batch) :]
            self._in_flight, self._in_flight_size = len(batch), weight(batch)
            self._busy = False
            return batch

    def replace_taken(self, batch: list[bytes]) -> None:
        """Replace the records returned last by masked ones, so that a retry need not mask them again."""
        with self._lock:
            self._busy = True
            self.buffer[: self._in_flight] = batch
            size, count = weight(batch), len(batch)
            self._size += size - self._in_flight_size
            self._seen += count - self._in_flight
            self._next = max(self._next + count - self._in_flight, 0)
            self._in_flight, self._in_flight_size = count, size
            self._version += 1
            self._busy = False

    def taken(self, safe: bool) -> None:
        """Remove the records returned last, or keep them for the next try."""
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

    def take_last(self, room: int) -> list[bytes]:
        """Empty the buffer and return what fits in so many bytes and says most; the rest is counted as dropped."""
        with self._lock:
            left = self.buffer[:]
            del self.buffer[: len(left)]
            self._forget()
        kept, dropped = quota.last_that_fit(left, room)
        for kind, count in dropped.items():
            self.outcomes.add("dropped", kind, "full", count)
        return kept
