"""Records and findings that were stored and wait to be evaluated."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.intake.sources import ReceivedBatch
from stepscope.model.ports import Batch

MAX_WAITING = 400_000
"""The most queued records; more are skipped and counted, so that the store never waits."""


class WaitingRecords:
    """A bounded queue; adding never blocks. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Batch | Changed] = deque()
        self._records = 0
        self.passed_over = 0
        """Records that are not evaluated because too many waited."""

    def add(self, items: Sequence[ReceivedBatch]) -> None:
        """Add records that were just stored."""
        with self._lock:
            for item in items:
                count = len(item.batch.records)
                if self._records + count > MAX_WAITING:
                    self.passed_over += count
                    continue
                self._records += count
                self._queue.append(item.batch)

    def add_findings(self, changed: Iterable[Changed]) -> None:
        """Add findings that were just stored."""
        with self._lock:
            self._queue.extend(changed)

    def take(self) -> deque[Batch | Changed]:
        """Take everything."""
        with self._lock:
            found, self._queue, self._records = self._queue, deque(), 0
            return found
