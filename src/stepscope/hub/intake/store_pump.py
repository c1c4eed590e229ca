"""Moves batches from the journals into the store on one thread, in about two commits a second while anyone reads."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.pacing import LOOK_SECONDS
from stepscope.hub.intake.sources import GroupReader, ReceivedBatch, measured
from stepscope.hub.store.engine import Damaged, EngineError
from stepscope.hub.threads import Topic
from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch, Sink
from stepscope.pump import Progress, Pump

GROUP_BYTES = 256 * 1024 * 1024
"""More than a full group of records has, which is limited by their number."""
PACE_SECONDS = 0.5
WATCHED_PACE_SECONDS = 1.5
"""The same while nobody reads where users have alert rules, which see each record within about 2 s."""
QUIET_SECONDS = 15.0
"""Time after the last request at which nobody counts as reading; the page asks more often."""
GIVE_UP_SECONDS = 2.0
"""At shutdown, a store whose next retry is this far away is not waited for: the journals keep the rest."""
_RATE_SECONDS = 30.0
_STORED = {"written": "stored"}
"""In the hub, written means acknowledged."""


class Readers:
    """The requests that read, in progress and recent. Safe from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_progress = 0
        self._last = float("-inf")
        self._subscriber: Callable[[], object] = lambda: None

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function at each request; it must be quick."""
        self._subscriber = subscriber

    def note(self) -> None:
        """Note a request that reads."""
        self._last = self._clock()
        self._subscriber()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Note a request for as long as it takes: a live stream may take hours."""
        with self._lock:
            self._in_progress += 1
        self.note()
        try:
            yield
        finally:
            with self._lock:
                self._in_progress -= 1
            self._last = self._clock()

    def any(self) -> bool:
        """Return whether anyone reads, or did until recently."""
        return self._in_progress > 0 or self._clock() - self._last < QUIET_SECONDS


class StorePump:
    """Drives one pump from the journals into the store; it survives every error, and the journals keep the rest."""

    def __init__(
        self,
        sink: Sink,
        groups: GroupReader,
        quarantine: Quarantine,
        counters: Counters,
        *,
        idle: Callable[[], float] = lambda: PACE_SECONDS,
        pace: float = PACE_SECONDS,
        quiet_pace: Callable[[], float] = lambda: PACE_SECONDS,
        is_due: Callable[[], bool] = lambda: False,
        readers: Readers | None = None,
        passed_on: Callable[[Batch], str] | None = None,
        on_safe: Callable[[Sequence[ReceivedBatch]], object] | None = None,
        stored: Topic[Sequence[ReceivedBatch]] | None = None,
        wake: threading.Event | None = None,
    ) -> None:
        self._groups, self._counters = groups, counters
        self._passed_on = passed_on
        """What became of a batch that is safe and not stored here: `forwarded`, `deferred`, `retried`; else empty.
        None where every batch is stored here."""
        self._committed = True
        self._pump = Pump(sink, groups, quarantine, group_bytes=GROUP_BYTES, on_outcome=self._on_outcome)
        self._idle = idle
        self.pace = pace
        """Seconds between two commits."""
        self._quiet_pace = quiet_pace
        """The same while nobody reads..."""
        self._quiet_seconds = PACE_SECONDS
        self._is_due = is_due
        """... unless there is a reason to store at once."""
        self._readers = readers or Readers()
        self._read = threading.Event()
        self._readers.subscribe(self._read.set)
        self.stored = stored or Topic()
        """What was just stored, announced on the pump's thread."""
        self._on_safe = on_safe
        """Called there with what was stored, forwarded or deferred, before the journal counts as stored."""
        self._wake, self._halt = wake or threading.Event(), threading.Event()
        """The first is set when there is something to store."""
        self._unsaved = ""
        self._deadline = 0.0
        self._began = float("-inf")
        self._caught_up_at = time.monotonic()
        self._complete = threading.Condition()
        self._complete_until = float("-inf")
        """What was written before this time is stored."""
        self._has_caught_up = False
        self._rates: deque[tuple[float, int]] = deque()
        """How many records were stored when, lately."""
        self._thread = threading.Thread(target=self._loop, name="stepscope-pump", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Store what is there within the time limit, save the cursors and stop."""
        self._deadline = time.monotonic() + seconds
        self._halt.set()
        self._read.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds + 5.0)

    @property
    def problem(self) -> str:
        """Why the store accepts nothing just now; empty when it does."""
        return self._unsaved or self._pump.problem

    def is_busy(self) -> bool:
        """Return whether more was waiting than one group holds."""
        return self._groups.full

    def is_reading(self) -> bool:
        """Return whether journals are still being read: since the start, or because more was waiting."""
        return not self._has_caught_up or self.is_busy()

    def seconds_behind(self) -> float:
        """Seconds since everything that was read was stored."""
        return max(time.monotonic() - self._caught_up_at - self._quiet_seconds - PACE_SECONDS, 0.0)

    def catch_up(self, seconds: float) -> bool:
        """Wait until what is written now is stored, for so long at most; return whether it is."""
        now = time.monotonic()
        if not self._thread.is_alive():
            return False
        self._wake.set()
        with self._complete:
            return self._complete.wait_for(lambda: self._complete_until >= now or self._halt.is_set(), seconds)

    def rate(self) -> float:
        """Records stored per second, over the last half minute."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(count for moment, count in list(self._rates) if moment >= since) / _RATE_SECONDS

    def _loop(self) -> None:
        while not self._halt.is_set():
            progress = self._step()
            if not (progress.moved and self._groups.full and not progress.wait):
                self._rest(progress.wait)
        self._pump.wake()
        while (left := self._deadline - time.monotonic()) > 0:
            progress = self._step()
            gives_up = self._pump.problem and progress.wait >= GIVE_UP_SECONDS
            if gives_up or progress.wait >= left or (self._pump.at_end and not progress.moved):
                break
            time.sleep(progress.wait)
        self._end()

    def _step(self) -> Progress:
        began = time.monotonic()
        progress = self._pump.step()
        if progress.moved and self._committed:
            self._began = began
        if not self._groups.full and not self._pump.problem:
            self._caught_up_at = time.monotonic()
            self._has_caught_up = True
            with self._complete:
                self._complete_until = began
                self._complete.notify_all()
        return progress

    def _rest(self, seconds: float) -> None:
        """Wait this long, keep a distance between commits, because each makes parts to merge; then wait for records."""
        self._halt.wait(max(seconds, self._began + self.pace - time.monotonic()))
        self._read.clear()
        while not self._readers.any() and not self._halt.is_set():
            self._quiet_seconds = self._quiet_pace()
            left = self._began + self._quiet_seconds - time.monotonic()
            if left <= 0 or self._read.wait(min(left, LOOK_SECONDS)) or self._is_due():
                break
        self._wake.wait(min(self._idle(), self.pace if self._readers.any() else LOOK_SECONDS))
        self._wake.clear()

    def _end(self) -> None:
        self._pump.close()
        try:
            self._groups.save()
        except (OSError, Retry) as error:
            self._unsaved = f"the hub cannot save how far it has read: {error}"

    def _on_outcome(self, outcome: str, batches: Sequence[Batch], reason: str) -> None:
        if outcome == "retried":
            self._counters.add("retried", "store", len(batches), "store")
            return
        items = [ReceivedBatch(self._groups.receiver(batch), batch) for batch in batches]
        if outcome == "written":
            if self._on_safe is not None:
                self._on_safe(items)
            if self._passed_on is not None:
                items = self._stored_here(items, self._passed_on, reason)
            self._committed = bool(items)
            if items:  # before they are counted: whoever sees the count may ask whether they are diagnosed
                self.stored.announce(measured(items), lambda error: self._count_failed(items, error))
        stored = self._count(_STORED.get(outcome, outcome), items, reason)
        if outcome == "written":
            now = time.monotonic()
            self._rates.append((now, stored))
            while self._rates[0][0] < now - _RATE_SECONDS:
                self._rates.popleft()

    def _stored_here(
        self, items: list[ReceivedBatch], passed_on: Callable[[Batch], str], reason: str
    ) -> list[ReceivedBatch]:
        """Count the batches that were passed on, and return the others."""
        elsewhere: dict[str, list[ReceivedBatch]] = {}
        for item in items:
            elsewhere.setdefault(passed_on(item.batch), []).append(item)
        here = elsewhere.pop("", [])
        for how, passed in elsewhere.items():
            self._count(how, passed, reason)
        return here

    def _count(self, outcome: str, items: Sequence[ReceivedBatch], reason: str) -> int:
        counts: dict[str, int] = {}
        for item in items:
            counts[item.receiver] = counts.get(item.receiver, 0) + len(item.batch.records)
        for receiver, count in counts.items():
            self._counters.add(outcome, receiver, count, reason[:100])
        return sum(counts.values())

    def _count_failed(self, items: Sequence[ReceivedBatch], error: Exception) -> None:
        self._counters.add("dropped", "listener", len(items), type(error).__name__)


SINK = "store"
"""Names its cursors and its quarantine."""
MAX_TRIES = 5
"""How often a group is retried on a failing engine before one of its batches is blamed."""
MAX_BLAMED = 8
"""How many batches are blamed in a row; beyond that it is the engine, and everything waits."""

Outcome = Retry | Reject | None


class BatchStore(Protocol):
    """The store, as a destination of batches."""

    def write_many(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        """Store batches; None or Reject for one means it is safe."""


class StoreSink:
    """A sink for a store that is opened and closed elsewhere."""

    divisible = False
    timeout = 600.0

    def __init__(self, store: BatchStore, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._check = check
        """Raises Retry when the folder of the store is gone."""
        self._tries = self._blamed = 0
        self._refused: dict[tuple[str, str, int], Reject] = {}
        """Rejections of batches in a group that was not completely stored yet; the store reports them once."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Store batches in one commit; those stored before are skipped."""
        self._check()
        try:
            outcomes = self._store.write_many(batches)
        except Damaged as error:
            raise Retry(str(error), after=60.0) from error  # no batch is to blame, and none will be taken soon
        except EngineError as error:
            self._tries += 1
            if self._tries < MAX_TRIES or self._blamed >= MAX_BLAMED:
                raise Retry(f"the store is failing: {error}") from error
            self._blamed += len(batches) == 1
            raise
        where, reasons = self._refusals(batches, outcomes)
        waiting = [outcome for outcome in outcomes if isinstance(outcome, Retry)]
        if waiting:
            raise max(waiting, key=lambda each: each.after or 0.0)
        self._tries = self._blamed = 0
        for batch in batches if self._refused else ():
            self._refused.pop(batch.key, None)
        if where:
            raise Reject("; ".join(sorted(reasons)[:3]), where)
        return {}

    def _refusals(self, batches: Sequence[Batch], outcomes: Sequence[Outcome]) -> tuple[list[int], set[str]]:
        """The indices of all rejected records, and the reasons."""
        where: list[int] = []
        start = 0
        reasons = set()
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, Reject):
                self._refused[batch.key] = outcome
            refused = self._refused.get(batch.key) if self._refused else None
            if refused is not None:
                where += [start + index for index in refused.where]
                reasons.add(str(refused))
            start += len(batch.records)
        return where, reasons

    def close(self) -> None:
        """Leave the store open."""
