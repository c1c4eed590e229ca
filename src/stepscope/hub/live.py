"""What was just stored, for those who watch: a short memory, and a bounded queue for each watcher."""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.sources import ReceivedBatch
from stepscope.model.errors import StepscopeError
from stepscope.model.ports import Batch

MOST_RECORDS = 20_000
"""So many records wait for one watcher, and so many are remembered for those who come back."""
MOST_WATCHERS, MOST_OF_ONE = 200, 50
"""So many watch at once, and so many of them are one client."""


class TooMany(StepscopeError):
    """No more can watch."""


class Moment(NamedTuple):
    """Batches that were stored together, numbered."""

    number: int
    batches: tuple[Batch, ...]
    findings: tuple[Changed, ...] = ()
    """Runs whose findings changed."""

    @property
    def records(self) -> int:
        """How many records it holds; a list of findings counts as one."""
        return sum(len(batch.records) for batch in self.batches) + len(self.findings)


@dataclass(slots=True, eq=False)
class Watcher:
    """One who watches a run, or all of them. `wake` is called from the pump's thread when there is news."""

    run: str | None
    project: str | None
    wake: Callable[[], None]
    client: str = ""
    """Who watches: a token, or an address."""
    number: int = 0
    """The last moment it has been offered."""
    waiting: deque[Moment] = field(default_factory=deque)
    records: int = 0
    missed: int = 0
    """Records it was too slow for; from then on it gets no more."""

    def concerns(self, run: str, project: str) -> bool:
        """Tell whether a run is among what it watches and may see."""
        return self.run in (None, run) and self.project in (None, project)


class Live:
    """Hands out what was stored. `take` is a listener of the pump; everything can be called from any thread."""

    def __init__(
        self,
        *,
        most_records: int = MOST_RECORDS,
        most_watchers: int = MOST_WATCHERS,
        most_of_one: int = MOST_OF_ONE,
    ) -> None:
        self._lock = threading.Lock()
        self._most_records, self._most_watchers, self._most_of_one = most_records, most_watchers, most_of_one
        self._watchers: list[Watcher] = []
        self._memory: deque[Moment] = deque()
        self._remembered = 0
        self._number = 0
        self._life = secrets.token_hex(4)
        self.closed = False

    def take(self, items: Sequence[ReceivedBatch]) -> None:
        """Offer what was just stored to everyone whom it concerns."""
        self._tell(tuple(item.batch for item in items), ())

    def take_findings(self, changed: Sequence[Changed]) -> None:
        """Offer findings that were just stored to everyone whom they concern."""
        self._tell((), tuple(changed))

    def _tell(self, batches: tuple[Batch, ...], findings: tuple[Changed, ...]) -> None:
        with self._lock:
            self._number += 1
            moment = Moment(self._number, batches, findings)
            self._remember(moment)
            for watcher in self._watchers:
                self._offer(watcher, moment)

    def _remember(self, moment: Moment) -> None:
        self._memory.append(moment)
        self._remembered += moment.records
        while self._remembered > self._most_records:
            self._remembered -= self._memory.popleft().records

    def _offer(self, watcher: Watcher, moment: Moment) -> None:
        watcher.number = moment.number
        batches = tuple(batch for batch in moment.batches if watcher.concerns(batch.writer.run, batch.writer.project))
        findings = tuple(each for each in moment.findings if watcher.concerns(each.run, each.project))
        if not batches and not findings:
            return
        mine = Moment(moment.number, batches, findings)
        watcher.records += mine.records
        if watcher.missed or watcher.records > self._most_records:
            watcher.missed += watcher.records
            watcher.records = 0
            watcher.waiting.clear()
        else:
            watcher.waiting.append(mine)
        watcher.wake()

    def watch(
        self,
        wake: Callable[[], None],
        *,
        run: str | None = None,
        project: str | None = None,
        cursor: str | None = None,
        client: str = "",
    ) -> tuple[Watcher, bool]:
        """Begin to watch, from a cursor on if one is given; the flag tells that something since it is forgotten."""
        with self._lock:
            if len(self._watchers) >= self._most_watchers or self.closed:
                raise TooMany(f"{len(self._watchers)} are watching already")
            mine = sum(watcher.client == client for watcher in self._watchers)
            if client and mine >= self._most_of_one:
                raise TooMany(f"{mine} streams of this client are open already")
            watcher = Watcher(run, project, wake, client)
            since = self._number if cursor is None else self._since(cursor)
            for moment in self._memory:
                if since is not None and moment.number > since:
                    self._offer(watcher, moment)
            watcher.number = self._number
            self._watchers.append(watcher)
            return watcher, since is None

    def _since(self, cursor: str) -> int | None:
        """The number of a cursor, None when what came after it is not all remembered."""
        life, _, number = cursor.partition("-")
        if life != self._life or not number.isascii() or not number.isdecimal():
            return None
        since = int(number[:20])
        oldest = self._memory[0].number if self._memory else self._number + 1
        return since if oldest - 1 <= since <= self._number else None

    def drain(self, watcher: Watcher) -> tuple[list[Moment], int, str]:
        """Take what waits for a watcher: moments, how many records it missed, and the cursor behind them."""
        with self._lock:
            moments = list(watcher.waiting)
            watcher.waiting.clear()
            watcher.records = 0
            return moments, watcher.missed, self.cursor(watcher.number)

    def cursor(self, number: int) -> str:
        """Name a moment so that one can come back to it."""
        return f"{self._life}-{number}"

    def leave(self, watcher: Watcher) -> None:
        """Watch no more."""
        with self._lock:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    def close(self) -> None:
        """Send everyone home."""
        with self._lock:
            self.closed = True
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.wake()
