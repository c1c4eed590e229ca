"""The pump: delivers batches to one sink with retries, bisection and quarantine; and what a sink keeps for a retry."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from stepscope.journal.quarantine import Full, Quarantine
from stepscope.model.errors import Reject, Retry, ServerError
from stepscope.model.ports import Batch, Sink

GROUP_BYTES = 1024 * 1024
"""Bytes of journal in one group of batches."""
PROBE_BYTES = 16 * 1024
"""The same while a dead sink is probed."""
PACE_SECONDS = 0.25
"""Pause after the journals had nothing new."""
FIRST_WAIT, LONGEST_WAIT, LONGEST_AFTER = 0.5, 60.0, 3600.0
OPEN_AFTER = 5
"""Consecutive failures after which a sink counts as dead."""
MAX_REFUSALS = 8
"""Consecutive quarantined batches after which the pump stops bisecting."""
SEARCH_AFTER = OPEN_AFTER + 1
"""Consecutive server errors after which the pump bisects to find a record that causes them."""
SEARCH_DEPTH = 16
"""Consecutive server errors during bisection after which the server is considered down."""
TRIES_ALONE = 5
"""Server errors on a single record after which it is rejected, if the server accepted others of the group."""

_JOURNAL = "the journal"


class Backoff:
    """Exponential backoff with jitter, and a circuit breaker: after consecutive failures a sink is only probed."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self.failures = 0

    @property
    def is_open(self) -> bool:
        """Whether the sink counts as dead."""
        return self.failures >= OPEN_AFTER

    def fail(self, after: float | None = None) -> float:
        """Count a failure and return the seconds to wait: the sink's delay, else the backoff; 0 is not a failure."""
        if after is not None and after <= 0:
            return 0.0
        self.failures += 1
        if after is not None:
            return min(after, LONGEST_AFTER)
        longest = min(FIRST_WAIT * 2.0 ** min(self.failures - 1, 20), LONGEST_WAIT)
        return longest * (0.5 + self._chance() / 2)

    def succeed(self) -> None:
        """Reset the failures."""
        self.failures = 0


class Source(Protocol):
    """Where batches come from, such as `Following`."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next batches, at most about `limit` bytes of them."""

    def settle(self) -> None:
        """Mark everything read so far as delivered."""

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""


OnOutcome = Callable[[str, Sequence[Batch], str], None]
"""Called with the outcome, the batches and the reason. Must not raise."""


class Progress(NamedTuple):
    """The result of a step: whether anything was sent, and how long to wait before the next."""

    moved: bool
    wait: float


class Pump:
    """Delivers the batches of a source to one sink, in order. One thread calls `step`; nothing here sleeps.

    Every record is counted once as written, rejected (and quarantined) or dropped (rejected while the quarantine is
    full); `retried` counts attempts that will be repeated. Records on which the sink raises an unexpected exception are
    never dropped: they wait until the quarantine has room. After a kill at most the current group is sent again.
    `on_outcome` is called for every outcome, except rejections that name no record.
    """

    def __init__(
        self,
        sink: Sink,
        source: Source,
        quarantine: Quarantine,
        *,
        group_bytes: int = GROUP_BYTES,
        on_outcome: OnOutcome = lambda outcome, batches, reason: None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._sink, self._source, self._quarantine = sink, source, quarantine
        self._group_bytes, self._clock = group_bytes, clock
        self._on_outcome = on_outcome
        self._backoff = Backoff(chance)
        self._pieces: list[list[Batch]] = []
        """The remaining pieces of the current group."""
        self._is_full_group = True
        """Whether nothing of the current group has been settled yet."""
        self._refusals = 0
        """Quarantined batches since the sink last accepted something."""
        self._server_errors = 0
        """Consecutive server errors since the sink last accepted something."""
        self._searching = False
        """Whether the current group is bisected to find a record that makes the server fail."""
        self._accepted = 0
        """Records of the current group that the sink accepted."""
        self._suspects: dict[tuple[object, ...], tuple[int, int]] = {}
        """Records of the current group that failed alone: how often, and what was accepted before the first time."""
        self._alone = False
        """Whether the current group was a single failing record: then the next group has full size."""
        self._not_before = float("-inf")
        self._has_retry_time = False
        """Whether the sink gave a retry delay."""
        self._at_end = False
        self.counts: Counter[str] = Counter()
        """By outcome, and by `outcome/reason`."""
        self.problem = ""
        """Why the sink accepts nothing at present; empty when it does."""

    def step(self) -> Progress:
        """Send at most one piece; takes no longer than the sink's timeout. Never raises an Exception."""
        now = self._clock()
        if now < self._not_before:
            return Progress(False, self._not_before - now)
        try:
            if not self._pieces and not self._gather():
                return self._pause(PACE_SECONDS)
            wait = self._offer(self._pieces[0])
            if not self._pieces:
                self._source.settle()
        except Exception as error:  # the disk failed, not the sink
            self.problem = f"{_JOURNAL}: {error!r}"
            return self._pause(self._backoff.fail())
        return Progress(True, self._pause(wait).wait if wait else 0.0)

    @property
    def is_stuck(self) -> bool:
        """Whether the sink counts as dead."""
        return self._backoff.is_open

    @property
    def at_end(self) -> bool:
        """Whether the last look found nothing to deliver."""
        return self._at_end

    def may_accept_before(self, until: float) -> bool:
        """Whether the sink may accept more before a given time: it works, or its retry delay ends by then."""
        return not self.problem or (self._has_retry_time and self._not_before <= until)

    def wake(self) -> None:
        """Retry at the next step, regardless of the retry delay."""
        self._not_before = float("-inf")

    def close(self) -> None:
        """Close the sink; what is not delivered stays in the journal."""
        self._pieces.clear()
        self._source.rewind()
        self._sink.close()

    def _pause(self, seconds: float) -> Progress:
        self._not_before = self._clock() + seconds
        return Progress(False, seconds)

    def _gather(self) -> bool:
        most = self._group_bytes
        probing = self._backoff.is_open and not self._alone
        batches = self._source.read(min(PROBE_BYTES, most) if probing else most)
        if self.problem.startswith(_JOURNAL):
            self.problem = ""
            self._backoff.succeed()
        full = [batch for batch in batches if batch.records]
        self._at_end = not batches
        if not full:
            if batches:
                self._source.settle()
            return False
        self._pieces, self._is_full_group = [full], True
        self._accepted, self._suspects, self._searching = 0, {}, False
        return True

    def _offer(self, piece: list[Batch]) -> float:
        """Send the first piece and handle the answer; return the seconds to wait before the next."""
        try:
            refused = self._sink.write(piece)
        except ServerError as error:
            return self._fail(piece, error)
        except Retry as error:
            return self._retry(piece, error)
        except Reject as error:
            return self._reject(piece, error)
        except Exception as error:
            return self._isolate_failure(piece, error)
        self._pop()
        self._written(piece, refused)
        return 0.0

    def _pop(self, *instead: list[Batch]) -> None:
        self._pieces[:1] = instead
        self._is_full_group = False

    def _written(self, piece: Sequence[Batch], refused: Mapping[str, int]) -> None:
        for reason, number in refused.items():
            self._count("rejected", number, reason)
            with contextlib.suppress(OSError, ValueError):
                self._quarantine.note(piece[0], reason, number)
        size = _size(piece)
        self._count("written", max(size - sum(refused.values()), 0))
        self._accepted += size
        self._server_errors, self._alone = 0, False
        self._on_outcome("written", piece, "")
        self._refusals = 0
        self._backoff.succeed()
        self.problem = ""

    def _retry(self, piece: list[Batch], error: Retry) -> float:
        self._count("retried", 1, str(error))
        self._on_outcome("retried", piece, str(error))
        self.problem = str(error)
        self._has_retry_time = error.after is not None
        wait = self._backoff.fail(error.after)
        if self._backoff.is_open and self._is_full_group and self._server_errors < SEARCH_AFTER:
            self._regroup()
        return wait

    def _regroup(self) -> None:
        """Discard the current group, of which nothing is settled, to read another."""
        self._pieces.clear()
        self._source.rewind()

    def _fail(self, piece: list[Batch], error: ServerError) -> float:
        """Wait for a server that fails; if it keeps failing, find the record that makes it fail."""
        where, total = set(error.where), _size(piece)
        if len(where) < total:
            rest = _select(piece, set(range(total)) - where)
            piece = _select(piece, where)
            self._pop(piece)
            self._written(rest, error.counted)
        self._server_errors += 1
        wait = self._retry(piece, error)
        self._searching |= self._server_errors >= SEARCH_AFTER
        return self._search(piece, str(error), wait) if self._searching else wait

    def _search(self, piece: list[Batch], reason: str, wait: float) -> float:
        """Split the first piece, or suspect it when it is one record; the seconds to wait before the next.

        A record is blamed only if the server takes others: if every part fails it is the server, and all is kept.
        """
        if not self._is_single(piece):
            if self._server_errors > SEARCH_DEPTH and self._server_errors % SEARCH_DEPTH:
                self._pieces.append(self._pieces.pop(0))
                return wait
            self._pop(*_halves(piece, self._sink.divisible))
            return 0.0
        if self._is_full_group:  # nothing to compare it with: read on, other records may have arrived
            self._alone, self._server_errors = True, SEARCH_AFTER - 1
            self._regroup()
            return wait
        key = offer_key(piece)
        tries, accepted = self._suspects.get(key, (0, self._accepted))
        self._suspects[key] = tries + 1, accepted
        others = [each for each in self._pieces if offer_key(each) not in self._suspects]
        taken_since = tries > 0 and self._accepted > accepted
        if taken_since or (tries + 1 >= TRIES_ALONE and not others and len(self._suspects) <= self._accepted):
            self._set_aside(reason, hold=True)
            self.problem = ""
            return 0.0
        self._pieces.append(self._pieces.pop(0))
        return 0.0 if others and self._server_errors <= SEARCH_DEPTH else wait

    def _reject(self, piece: list[Batch], error: Reject) -> float:
        where = set(error.where)
        total = _size(piece)
        bad = _select(piece, where)
        if error.together and self._can_split(bad):
            self._pop(*_halves(bad, self._sink.divisible))
        else:
            self._pop(bad)
            self._set_aside(str(error))
        if len(where) < total:
            self._written(_select(piece, set(range(total)) - where), error.counted)
            return 0.0
        self.problem = str(error)
        # Bisection continues at once; a sink that rejects everything is backed off from.
        return 0.0 if error.together and self._pieces else self._backoff.fail()

    def _isolate_failure(self, piece: list[Batch], error: Exception) -> float:
        """Bisect to the record on which the sink raises, and quarantine it."""
        self.problem = f"the sink raised {error!r}"
        if self._can_split(piece):
            self._pop(*_halves(piece, self._sink.divisible))
            return 0.0
        self._set_aside(self.problem, hold=True)
        return self._backoff.fail()

    def _is_single(self, piece: Sequence[Batch]) -> bool:
        return len(piece) < 2 and (not self._sink.divisible or _size(piece) < 2)

    def _can_split(self, piece: Sequence[Batch]) -> bool:
        return not self._is_single(piece) and self._refusals < MAX_REFUSALS

    def _set_aside(self, reason: str, *, hold: bool = False) -> None:
        """Quarantine the first piece; if the disk fails, it is tried again later.

        If the quarantine is full it is dropped, or, with `hold`, waits for room.
        """
        self._refusals += 1
        while self._pieces[0]:
            batch = self._pieces[0][0]
            outcome, why = "rejected", reason
            try:
                self._quarantine.set_aside(batch, reason)
            except (Full, ValueError) as error:
                if hold and isinstance(error, Full):
                    raise
                outcome, why = "dropped", "quarantine full"
            self._count(outcome, len(batch.records), why)
            self._on_outcome(outcome, [batch], why)
            del self._pieces[0][0]
        self._pop()

    def _count(self, outcome: str, number: int, reason: str = "") -> None:
        if number:
            self.counts[outcome] += number
            if reason:
                self.counts[f"{outcome}/{reason[:100]}"] += number


def _size(piece: Sequence[Batch]) -> int:
    return sum(len(batch.records) for batch in piece)


def _select(piece: Sequence[Batch], where: set[int]) -> list[Batch]:
    """Return the records at some indices, in their batches."""
    found, start = [], 0
    for batch in piece:
        records = [record for index, record in enumerate(batch.records, start) if index in where]
        start += len(batch.records)
        if records:
            found.append(batch._replace(records=records))
    return found


def _halves(piece: Sequence[Batch], divisible: bool) -> tuple[list[Batch], list[Batch]]:
    if len(piece) > 1:
        middle = len(piece) // 2
        return list(piece[:middle]), list(piece[middle:])
    assert divisible, "an indivisible batch is never split"
    (batch,) = piece
    middle = len(batch.records) // 2
    return [batch.part(0, middle)], [batch.part(middle, len(batch.records))]


def offer_key(batches: Sequence[Batch]) -> tuple[object, ...]:
    """Identifies a group of batches and their lengths, to recognise a repeated offer."""
    return tuple((*batch.key, len(batch.records)) for batch in batches)


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
