"""Group commit for callers with one batch each: those who wait at the same time share a commit."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepscope.hub.store.write.commit import Outcome
from stepscope.model.ports import Batch

PACE_SECONDS = 0.5
"""Commits begin at least this far apart, so that parts stay few."""


@dataclass(slots=True)
class _Waiting:
    batch: Batch
    outcome: Outcome = None
    error: BaseException | None = None
    done: bool = False


class Joint:
    """A `Write` for many threads. The first to find nobody committing takes everything that waits."""

    def __init__(
        self,
        write_many: Callable[[Sequence[Batch]], Sequence[Outcome]],
        *,
        pace: float = PACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write_many = write_many
        self._pace = pace
        self._clock = clock
        self._turn = threading.Condition()
        self._queue: list[_Waiting] = []
        self._busy = False
        self._next = 0.0

    def __call__(self, batch: Batch) -> None:
        """Return when the batch is safe; raises its Retry or Reject."""
        mine = _Waiting(batch)
        with self._turn:
            self._queue.append(mine)
            while not mine.done and not self._may_lead():
                self._turn.wait(self._delay())
            taken: list[_Waiting] = []
            if not mine.done:
                taken, self._queue = self._queue, []
                self._busy = True
                self._next = self._clock() + self._pace
        if taken:
            self._lead(taken)
        if mine.error is not None:
            raise mine.error
        if mine.outcome is not None:
            raise mine.outcome

    def _may_lead(self) -> bool:
        return not self._busy and self._clock() >= self._next

    def _delay(self) -> float | None:
        return None if self._busy else max(self._next - self._clock(), 0.001)

    def _lead(self, taken: Sequence[_Waiting]) -> None:
        try:
            outcomes = self._write_many([waiting.batch for waiting in taken])
            for waiting, outcome in zip(taken, outcomes, strict=True):
                waiting.outcome = outcome
        except BaseException as error:
            for waiting in taken:
                waiting.error = error
        with self._turn:
            for waiting in taken:
                waiting.done = True
            self._busy = False
            self._turn.notify_all()
