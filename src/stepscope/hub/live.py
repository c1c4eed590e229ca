"""Live updates: what was just stored, a short history of it, and a bounded queue for each subscription."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.limits import MEGA
from stepscope.hub.threads import Topic
from stepscope.model.errors import StepscopeError
from stepscope.model.ports import Batch

MAX_RECORDS, MAX_BYTES = 20_000, 32 * MEGA
"""The most records queued for one subscription, and kept for clients that reconnect; and the memory that they take."""
KEPT_SECONDS = 600.0
"""Nothing is kept once there was no subscription for so long."""
MAX_SUBSCRIPTIONS, MAX_OF_ONE = 200, 50
"""The most subscriptions, in all and of one client."""


@dataclass(frozen=True, slots=True)
class LiveTopics:
    """What one hub announces of the records that it stores."""

    stored: Topic[Sequence[ReceivedBatch]] = field(default_factory=Topic)
    """Batches that were just stored."""
    found: Topic[Sequence[Changed]] = field(default_factory=Topic)
    """Runs whose findings were just stored."""
    missed: Topic[int] = field(default_factory=Topic)
    """How many stored records could not be passed on."""


class TooMany(StepscopeError):
    """There are too many subscriptions."""


class Moment(NamedTuple):
    """Batches that were stored together, numbered."""

    number: int
    items: tuple[ReceivedBatch, ...]
    findings: tuple[Changed, ...] = ()
    """Runs whose findings changed."""

    @property
    def batches(self) -> list[Batch]:
        """The batches themselves."""
        return [item.batch for item in self.items]

    @property
    def records(self) -> int:
        """How many records it holds; a list of findings counts as one."""
        return sum(len(item.batch.records) for item in self.items) + len(self.findings)

    @property
    def bytes(self) -> int:
        """About how much memory its records take."""
        return sum(item.bytes for item in self.items)


@dataclass(slots=True, eq=False)
class Subscription:
    """A subscription to one run, or to all. `wake` is called from the pump's thread when there are updates."""

    run: str | None
    project: str | None
    wake: Callable[[], None]
    client: str = ""
    """The client: a token, or an address."""
    number: int = 0
    """The last update it was offered."""
    waiting: deque[Moment] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0
    """The memory of these records."""
    missed: int = 0
    """Records that it was not sent; from then on it gets no more."""
    reason: str = "this client is too slow"

    def concerns(self, run: str, project: str) -> bool:
        """Return whether a run is subscribed to and visible."""
        return self.run in (None, run) and self.project in (None, project)


class Live:
    """Distributes what was stored, here or by other hubs on the same store; all methods are thread-safe."""

    def __init__(
        self,
        *,
        most_records: int = MAX_RECORDS,
        most_bytes: int = MAX_BYTES,
        most_subscriptions: int = MAX_SUBSCRIPTIONS,
        most_of_one: int = MAX_OF_ONE,
        topics: Sequence[LiveTopics] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._most_records, self._most_subscriptions, self._most_of_one = most_records, most_subscriptions, most_of_one
        self._most_bytes, self._clock = most_bytes, clock
        self._subscriptions: list[Subscription] = []
        self._kept_until = float("-inf")
        """When the memory is of no use any more, unless there is a subscription."""
        self._memory: deque[Moment] = deque()
        self._remembered = self._remembered_bytes = 0
        self._number = 0
        self._life = secrets.token_hex(4)
        self.closed = False
        for each in topics:
            each.stored.subscribe(self.take)
            each.found.subscribe(self.take_findings)
            each.missed.subscribe(self.miss)

    def take(self, items: Sequence[ReceivedBatch]) -> None:
        """Queue what was just stored for the subscriptions that match."""
        self._publish(tuple(items), ())

    def take_findings(self, changed: Sequence[Changed]) -> None:
        """Queue findings that were just stored for the subscriptions that match."""
        self._publish((), tuple(changed))

    def miss(self, count: int) -> None:
        """Notify every subscription that records of some runs were stored and not passed on: it must reload."""
        with self._lock:
            self._forget()
            for subscription in self._subscriptions:
                subscription.missed += count
                subscription.reason = "another hub stored records and could not send them here"
                subscription.wake()

    def _publish(self, items: tuple[ReceivedBatch, ...], findings: tuple[Changed, ...]) -> None:
        with self._lock:
            self._number += 1
            moment = Moment(self._number, items, findings)
            self._remember(moment)
            for subscription in self._subscriptions:
                self._offer(subscription, moment)

    def _remember(self, moment: Moment) -> None:
        if not self._subscriptions and self._clock() > self._kept_until:
            self._forget()
            return
        self._memory.append(moment)
        self._remembered += moment.records
        self._remembered_bytes += moment.bytes
        while self._remembered > self._most_records or self._remembered_bytes > self._most_bytes:
            oldest = self._memory.popleft()
            self._remembered -= oldest.records
            self._remembered_bytes -= oldest.bytes

    def _forget(self) -> None:
        self._memory.clear()
        self._remembered = self._remembered_bytes = 0

    def _offer(self, subscription: Subscription, moment: Moment) -> None:
        subscription.number = moment.number
        items = tuple(
            item for item in moment.items if subscription.concerns(item.batch.writer.run, item.batch.writer.project)
        )
        findings = tuple(each for each in moment.findings if subscription.concerns(each.run, each.project))
        if not items and not findings:
            return
        mine = Moment(moment.number, items, findings)
        subscription.records += mine.records
        subscription.bytes += mine.bytes
        too_many = subscription.records > self._most_records or subscription.bytes > self._most_bytes
        if subscription.missed or too_many:
            subscription.missed += subscription.records
            subscription.records = subscription.bytes = 0
            subscription.waiting.clear()
        else:
            subscription.waiting.append(mine)
        subscription.wake()

    def subscribe(
        self,
        wake: Callable[[], None],
        *,
        run: str | None = None,
        project: str | None = None,
        cursor: str | None = None,
        client: str = "",
    ) -> tuple[Subscription, bool]:
        """Subscribe, from a cursor on if given; the flag is true when updates since it are no longer kept."""
        with self._lock:
            if len(self._subscriptions) >= self._most_subscriptions or self.closed:
                raise TooMany(f"{len(self._subscriptions)} subscriptions are open already")
            mine = sum(subscription.client == client for subscription in self._subscriptions)
            if client and mine >= self._most_of_one:
                raise TooMany(f"{mine} streams of this client are open already")
            subscription = Subscription(run, project, wake, client)
            since = self._number if cursor is None else self._since(cursor)
            for moment in self._memory:
                if since is not None and moment.number > since:
                    self._offer(subscription, moment)
            subscription.number = self._number
            self._subscriptions.append(subscription)
            return subscription, since is None

    def _since(self, cursor: str) -> int | None:
        """The number of a cursor; None when updates after it are no longer complete."""
        life, _, number = cursor.partition("-")
        if life != self._life or not number.isascii() or not number.isdecimal():
            return None
        since = int(number[:20])
        oldest = self._memory[0].number if self._memory else self._number + 1
        return since if oldest - 1 <= since <= self._number else None

    def drain(self, subscription: Subscription) -> tuple[list[Moment], int, str]:
        """Return the queued updates of a subscription, how many records it missed, and the next cursor."""
        with self._lock:
            moments = list(subscription.waiting)
            subscription.waiting.clear()
            subscription.records = subscription.bytes = 0
            return moments, subscription.missed, self.cursor(subscription.number)

    def cursor(self, number: int) -> str:
        """The cursor of an update, with which a client can resume."""
        return f"{self._life}-{number}"

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                self._kept_until = self._clock() + KEPT_SECONDS

    def close(self) -> None:
        """Close all subscriptions."""
        with self._lock:
            self.closed = True
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.wake()
