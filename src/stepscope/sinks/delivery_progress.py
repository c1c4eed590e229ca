"""The delivery that a sink has under way: what is left of it after a Retry, what was refused, and how it ends."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from stepscope.model.errors import Reject, Retry, ServerError
from stepscope.model.ports import Batch, offer_key

SLOW = "slow: the time limit of one delivery is over; it continues"

Part = TypeVar("Part")


class Delivery(Generic[Part]):
    """What is still to be sent of the current batches, so that a retry sends only the rest.

    For each attempt a sink calls `begin`, fills `parts` if the batches are new, sends them and removes those that are
    settled, and calls `end`. A Retry in between leaves the rest for the next attempt. Not thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key: tuple[object, ...] | None = None
        self._deadline = float("inf")
        self.parts: list[Part] = []
        self.done: set[Hashable] = set()
        """Steps of a part that are settled, where a part takes several."""
        self._refused: Counter[str] = Counter()
        self._rejected: set[int] = set()
        self._failed: set[int] = set()
        self._together = False
        self._reasons: dict[str, None] = {}
        self._failure: Retry | None = None

    def begin(self, batches: Sequence[Batch], timeout: float = float("inf")) -> bool:
        """Start an attempt with a time limit in seconds; return whether the batches are new."""
        self._deadline = self._clock() + timeout
        key = offer_key(batches)
        if key == self._key:
            return False
        self._forget()
        self._key = key
        return True

    def time_left(self) -> float:
        """Return the remaining seconds of this attempt; raise Retry when there are none."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise Retry(SLOW, after=0.0)
        return left

    def send(self, send: Callable[[Part, float], None]) -> None:
        """Send the parts in order, each with the seconds that are left; one that is sent is never sent again."""
        while self.parts:
            send(self.parts[0], self.time_left())
            del self.parts[0]

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count rejections for which the server did not name the records."""
        if count:
            self._refused[reason] += count

    def reject(self, reason: str, where: Iterable[int], *, together: bool) -> None:
        """Mark records as rejected, individually or together."""
        self._rejected.update(where)
        self._together |= together
        self._reasons[reason] = None

    def fail(self, error: Retry, where: Iterable[int]) -> None:
        """Mark records on which the server failed; the other parts are still sent, and these are retried."""
        self._failed.update(where)
        self._failure = error

    def end(self) -> Mapping[str, int]:
        """Finish: return the counts of rejections; ServerError or Reject name the records that were not accepted."""
        refused, failure = dict(self._refused), self._failure
        rejected, together, reason = sorted(self._rejected), self._together, "; ".join(self._reasons)
        failed = sorted(self._failed | self._rejected)
        self._forget()
        if failure is not None:
            raise ServerError(str(failure), failed, failure.after, counted=refused) from failure
        if rejected:
            raise Reject(reason, rejected, together=together, counted=refused)
        return refused

    def _forget(self) -> None:
        self._key = None
        self.parts, self.done = [], set()
        self._refused, self._rejected, self._failed = Counter(), set(), set()
        self._together, self._reasons, self._failure = False, {}, None
