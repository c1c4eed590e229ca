"""What became of records: counters by outcome, kind and reason, and the status that `flush` and `finish` return."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from stepscope.model.formatting import amount
from stepscope.model.records import KINDS

MAX_NOTICES = 1000
MAX_REJECTED_KEYS = 1000
MAX_SHOWN_KEYS = 5


class Outcomes:
    """Counters of one process. `written + dropped` records and `rejected` values account for all that was offered.

    What is dropped for the reasons `disk` and `removed` was written before, and is counted as both.
    Nothing here waits for a lock but `snapshot`: any call may come from a signal handler that interrupted another.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset, with a new lock (after a fork the old one may be held forever)."""
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._pending: deque[tuple[str, int]] = deque()
        self._warned: dict[tuple[str, str], object] = {}
        self._notices: deque[str] = deque()
        self._rejected: dict[str, str] = {}

    def add(self, outcome: str, kind: str, reason: str | None = None, count: int = 1) -> None:
        """Count one outcome, such as `rejected`, `value`, `string`."""
        name = f"{outcome}/{kind}" if reason is None else f"{outcome}/{kind}/{reason}"
        self._pending.append((name, count))
        if self._lock.acquire(blocking=False):
            self._count_and_release()

    def _count_and_release(self) -> None:
        try:
            while self._pending:
                name, count = self._pending.popleft()
                self._counts[name] += count
        finally:
            self._lock.release()

    def reject(self, key: str, reason: str, count: int = 1) -> None:
        """Count values that cannot be recorded, and warn once for their key."""
        self.add("rejected", "value", reason, count)
        if len(self._rejected) < MAX_REJECTED_KEYS:
            self._rejected.setdefault(key, reason)
        self.notice("rejected", key, f"{key!r} was rejected ({reason}) and counted; training continues")

    def rejected_keys(self) -> dict[str, str]:
        """Return the keys and arguments of which something was rejected, with the first reason; the first thousand."""
        return dict(self._rejected)

    def reject_arguments(self, call: str, names: Iterable[str]) -> None:
        """Count unknown arguments of a call, and warn once for each."""
        for name in names:
            self.reject(f"{call}({name}=...)", "unknown argument")

    def notice(self, topic: str, about: str, text: str) -> None:
        """Keep a warning for the flusher to print, once per topic and subject; never prints here."""
        mine = object()
        if len(self._warned) < MAX_NOTICES and self._warned.setdefault((topic, about), mine) is mine:
            self._notices.append(text)

    def notice_text(self, text: str) -> None:
        """Keep a warning, once per text."""
        self.notice("notice", text, text)

    def rearm(self, topic: str, about: str) -> None:
        """Allow a notice again, once its cause is fixed."""
        self._warned.pop((topic, about), None)

    def take_notices(self) -> list[str]:
        """Return the warnings not printed yet."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def dropped(self) -> int:
        """Count the records that were dropped, for whatever reason."""
        parts = [(name.split("/"), count) for name, count in self.snapshot().items()]
        return sum(count for (outcome, kind, *_), count in parts if outcome == "dropped" and kind in KINDS)

    def snapshot(self) -> dict[str, int]:
        """Copy the counters."""
        self._lock.acquire()
        self._count_and_release()
        return dict(self._counts)


@dataclass(frozen=True, slots=True, repr=False)
class DeliveryStatus:
    """What became of the records of this process; true when all that the call waits for is done."""

    done: bool
    """That all is in the journal; for `finish(wait=...)`, that every remote sink has it too."""
    undelivered: int | None = 0
    """Bytes of this process's journal that the sink furthest behind does not have yet; None when that is unknown:
    no time was left, or the disk cannot be read."""
    rejected: int | None = 0
    """Records of this process that sinks have refused so far; None when that is unknown."""
    quarantined: int | None = 0
    """How many of these are in quarantine, from where `stepscope quarantine retry` offers them again."""
    recorded: bool = True
    """Whether everything is in the journal, but for what was dropped."""
    dropped: int = 0
    """Records of this process that were dropped: memory or disk was full, the journal removed, or the run had ended."""

    rejected_keys: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The keys and arguments of this process of which a value could not be recorded, each with the reason."""

    @property
    def delivered(self) -> bool | None:
        """Whether every remote sink has accepted everything; None when that is unknown."""
        if self.undelivered or self.rejected or not self.recorded:
            return False
        return None if self.undelivered is None or self.rejected is None else True

    def __bool__(self) -> bool:
        return self.done

    def __repr__(self) -> str:
        names = ("done", "recorded", "delivered", "undelivered", "rejected", "quarantined", "dropped", "rejected_keys")
        return f"DeliveryStatus({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    def __str__(self) -> str:
        """Describe the status in a sentence."""
        parts = ["recorded" if self.recorded else "not everything is recorded yet"]
        if self.dropped:
            parts.append(f"DROPPED: {amount(self.dropped, 'record')}")
        if self.rejected_keys:
            shown = [f"{key!r} ({reason})" for key, reason in islice(self.rejected_keys.items(), MAX_SHOWN_KEYS)]
            more = len(self.rejected_keys) - len(shown)
            parts.append(f"REJECTED values of {', '.join(shown)}{f' and {more} more' if more else ''}")
        if self.undelivered:
            parts.append(f"NOT DELIVERED: {amount(self.undelivered, 'byte')} in the journal, waiting for a sink")
        if self.rejected:
            parts.append(f"REJECTED by a sink: {amount(self.rejected, 'record')}, {self.quarantined:,} in quarantine")
        if self.delivered is None:
            parts.append("it is unknown whether it is delivered")
        return "; ".join(parts if len(parts) > 1 or not self.recorded else [*parts, "nothing is undelivered"])


NOTHING_LEFT = DeliveryStatus(True)
"""The status where nothing is recorded."""


class Delivery:
    """What the sinks of a process lack and refused: as the part that ships says, by functions that replace these."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.request: Callable[[], None] = lambda: None
        """Notes in the home which sinks the run is to be delivered to; called by the flusher before the first record of
        a segment is written, so that no record is safe without it. Must not raise."""
        self.undelivered: Callable[[], int | None] = lambda: 0
        """Returns the bytes of this process's journal that the slowest remote sink lacks; reads the disk."""
        self.on_undelivered: Callable[[int | None], None] = lambda left: None
        """Called at the end of the run with what `undelivered` returned, unless that is 0; must not raise."""
        self.refusals: Callable[[], tuple[int, int] | None] = lambda: (0, 0)
        """Returns how many records of this process sinks rejected, and how many are in quarantine; None if unknown."""

    def status(self, recorded: bool, until: float | None = None, *, look: bool = True) -> DeliveryStatus:
        """Return what became of the records; with `until`, wait for remote sinks, which then have to have all of it."""
        left = self.undelivered() if look else None
        while until is not None and left != 0 and time.monotonic() < until:
            time.sleep(0.05)
            left = self.undelivered()
        rejected, quarantined = self.refusals() or (None, None)
        done = recorded and (until is None or (left == 0 and not rejected))
        dropped, keys = self._outcomes.dropped(), self._outcomes.rejected_keys()
        return DeliveryStatus(done, left, rejected, quarantined, recorded, dropped, keys)
