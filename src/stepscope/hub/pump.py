"""Moves batches from journals into the store, twice a second or as fast as it must."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from stepscope.hub import quarantine
from stepscope.hub.backlog import Item
from stepscope.hub.tallies import Tallies
from stepscope.journal.cursors import Cursors
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch

GROUP_RECORDS = 50_000
PACE_SECONDS = 0.5
SAVE_SECONDS = 2.0
MOST_TRIES = 5
_RATE_SECONDS = 30.0
_LONGEST_WAIT = 30.0

Outcome = Retry | Reject | None


class Stumble(Retry):
    """The store raised something else than a refusal."""


class Sink(Protocol):
    """Where batches go: the store."""

    def write_many(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        """Store batches; None or Reject for one means it is safe."""


class Source(Protocol):
    """Where batches come from."""

    def read(self) -> list[Item]:
        """Return some batches; none when there is nothing more now."""

    def settle(self) -> bool:
        """Take note that all that was read is stored; tell whether that is news."""


class Pump:
    """One thread between sources and store; it survives every refusal, and the journals hold the rest."""

    def __init__(
        self,
        sink: Sink,
        sources: Sequence[Source],
        cursors: Cursors,
        tallies: Tallies,
        aside: Path,
        *,
        idle: Callable[[], float] = lambda: PACE_SECONDS,
    ) -> None:
        self._sink, self._sources, self._cursors, self._tallies = sink, sources, cursors, tallies
        self._quarantine = aside
        self._idle = idle
        self.listeners: list[Callable[[Sequence[Item]], None]] = []
        """Called on the pump's thread with what was just stored; they must be quick."""
        self.trouble = ""
        """Why the store takes nothing just now; empty when it does."""
        self._items: list[Item] = []
        """Read and not yet stored."""
        self._wake = threading.Event()
        self._stopping = False
        self._deadline = 0.0
        self._unsaved = False
        self._saved_at = self._inserted_at = 0.0
        self._caught_up_at = time.monotonic()
        self._rates: deque[tuple[float, int]] = deque(maxlen=10_000)
        self._thread = threading.Thread(target=self._loop, name="stepscope-pump", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to move."""
        self._wake.set()

    def stop(self, seconds: float = 10.0) -> None:
        """Move what is there, for so long at most, save the cursors and end."""
        self._deadline = time.monotonic() + seconds
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds + 5.0)

    def seconds_behind(self) -> float:
        """Tell how long it has been since everything that was read was stored."""
        return max(time.monotonic() - self._caught_up_at - 2 * PACE_SECONDS, 0.0)

    def rate(self) -> float:
        """Records stored per second, over the last half minute."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(count for moment, count in list(self._rates) if moment >= since) / _RATE_SECONDS

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.wait(min(self._idle(), PACE_SECONDS))
            self._wake.clear()
            self._pace()
            self._guarded()
        while time.monotonic() < self._deadline and self._guarded():
            pass
        self._save(force=True)

    def _pace(self) -> None:
        """Leave time between two inserts, for each makes a part of the store that must be merged."""
        rest = self._inserted_at + PACE_SECONDS - time.monotonic()
        while rest > 0 and not self._stopping:
            self._wake.wait(rest)
            rest = self._inserted_at + PACE_SECONDS - time.monotonic()
            if rest > 0 and not self._stopping:
                self._wake.clear()

    def _guarded(self) -> bool:
        """Do one round; whatever goes wrong outside the store is shown and tried again."""
        try:
            return self._round()
        except Exception as error:
            self.trouble = f"the pump stumbled: {error!r}"
            self._tallies.add("retried", "pump", reason=type(error).__name__)
            self._inserted_at = time.monotonic()
            return False

    def _round(self) -> bool:
        """Move one group, or several while there is more than one holds; tell whether anything moved."""
        moved, more = False, True
        while more:
            more = self._gather()
            if self._items:
                self._inserted_at = time.monotonic()
                if not self._deliver(self._items):
                    return moved
                self._items = []
                moved = True
            self._settle()
            if self._stopping:
                break
        if not more:
            self._caught_up_at = time.monotonic()
        return moved

    def _gather(self) -> bool:
        """Read from the sources in turn until a group is full; tell whether there may be more.

        What was read stays in `_items` until it is stored, whatever goes wrong: nothing else remembers it.
        """
        lively = list(self._sources)
        count = sum(len(item.batch.records) for item in self._items)
        while lively:
            for source in list(lively):
                if count >= GROUP_RECORDS:
                    return True
                found = source.read()
                self._items += found
                count += sum(len(item.batch.records) for item in found)
                if not found:
                    lively.remove(source)
        return False

    def _deliver(self, items: list[Item]) -> bool:
        """Offer batches until each is safe, refused for ever or set aside; False when it is time to stop."""
        wait, tries = 1.0, 0
        while items:
            outcomes = self._offer(items)
            tries += 1
            pairs = list(zip(items, outcomes, strict=True))
            self._tell([item for item, outcome in pairs if not isinstance(outcome, Retry)])
            items = [item for item, outcome in pairs if not self._is_done(item, outcome, tries)]
            if not items:
                break
            self._tallies.add("retried", "store", len(items), "store")
            after = max(outcome.after or wait for outcome in outcomes if isinstance(outcome, Retry))
            if not self._patiently(min(after, _LONGEST_WAIT)):
                return False
            wait = min(wait * 2, _LONGEST_WAIT)
        self.trouble = ""
        return True

    def _offer(self, items: Sequence[Item]) -> Sequence[Outcome]:
        try:
            return self._sink.write_many([item.batch for item in items])
        except Exception as error:
            if len(items) == 1:
                return [Stumble(f"the store stumbled: {error!r}")]
            return [outcome for item in items for outcome in self._offer([item])]

    def _is_done(self, item: Item, outcome: Outcome, tries: int) -> bool:
        """Count what became of a batch; one on which the store stumbles again and again is set aside."""
        count = len(item.batch.records)
        if isinstance(outcome, Retry):
            self.trouble = str(outcome)
            aside = isinstance(outcome, Stumble) and tries >= MOST_TRIES
            if not aside or not quarantine.set_aside(self._quarantine, item.batch):
                return False
            self._tallies.add("dropped", item.receiver, count, "quarantined")
            return True
        rejected = len(outcome.where) if outcome is not None else 0
        self._tallies.add("stored", item.receiver, count - rejected)
        if outcome is not None:
            self._tallies.add("rejected", item.receiver, rejected, str(outcome)[:100])
        self._rates.append((time.monotonic(), count - rejected))
        return True

    def _patiently(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            if self._stopping and now >= self._deadline - seconds:
                return False
            self._wake.wait(min(until - now, 0.2))
            self._wake.clear()
        return True

    def _tell(self, items: Sequence[Item]) -> None:
        for listener in self.listeners if items else ():
            try:
                listener(items)
            except Exception as error:
                self._tallies.add("dropped", "listener", len(items), type(error).__name__)

    def _settle(self) -> None:
        for source in self._sources:
            self._unsaved |= source.settle()
        self._save()

    def _save(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._unsaved and (force or now - self._saved_at >= SAVE_SECONDS):
            try:
                self._cursors.save()
            except OSError as error:
                self.trouble = f"the hub cannot save how far it has read: {error}"
                return
            self._saved_at, self._unsaved = now, False
