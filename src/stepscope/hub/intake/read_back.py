"""Clients that read what they sent: whether all that was acknowledged to them is in the store and can be read here."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.write.ledger import Ranges, writer_key
from stepscope.model.dialects import with_part
from stepscope.model.ports import Batch, Writer

MAX_WRITERS = 2_000
"""When more writers than this wait to be looked up, the oldest are taken for stored."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_TABLES = ("runs", "writers", "series", "metrics", "totals", "lifecycle")


class ReadBack:
    """The batches that left the journal of this hub and were not yet found in the store. Safe from any thread.

    On a store that several hubs share, such a batch may still be in the journal of another hub or in that of a shard
    that was away, or be on another replica than the one that is read. A hub that has its store to itself notes none.
    """

    def __init__(self, engine: Callable[[], Engine], is_deleted: Callable[[Batch], bool]) -> None:
        self._engine, self._is_deleted = engine, is_deleted
        self._receivers = frozenset(each.name for each in with_part("receiver") if each.reads_back)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[str, Writer, Ranges]] = {}
        """The receiver, and the numbers of its batches, by writer; the oldest first."""

    def note(self, items: Iterable[ReceivedBatch]) -> None:
        """Note batches that were stored here, forwarded to another hub or deferred."""
        for receiver, batch, _ in items:
            if receiver not in self._receivers or self._is_deleted(batch):
                continue
            key = writer_key(batch.writer)
            with self._lock:
                *_, numbers = self._waiting.pop(key, (Ranges(),))
                if batch.seq not in numbers:
                    numbers.add(batch.seq)
                self._waiting[key] = receiver, batch.writer, numbers
                if len(self._waiting) > MAX_WRITERS:
                    del self._waiting[next(iter(self._waiting))]

    def is_complete(self, receiver: str, runs: Collection[str] | None = None) -> bool:
        """Return whether all that a receiver took for some runs, or for all, can be read.

        EngineError while the store does not say.
        """
        wanted = self._wanted(receiver, runs)
        if not wanted:
            return True
        stored = _stored(self._engine(), list(wanted))
        if not all(_holds(stored.get(key, Ranges()), numbers) for key, numbers in wanted.items()):
            return False
        self._engine().settle(_TABLES)
        with self._lock:
            for key, numbers in wanted.items():
                if key in self._waiting and list(self._waiting[key][2]) == list(numbers):
                    del self._waiting[key]
        return True

    def _wanted(self, receiver: str, runs: Collection[str] | None) -> dict[int, Ranges]:
        """The batches to look up; those of runs that were deleted since are not stored any more."""
        with self._lock:
            for key, (_, writer, _) in list(self._waiting.items()):
                if self._is_deleted(Batch(writer, 0, [])):
                    del self._waiting[key]
            return {
                key: numbers.copy()
                for key, (taker, writer, numbers) in self._waiting.items()
                if taker == receiver and (runs is None or writer.run in runs)
            }


def pauses() -> Iterator[float]:
    """Seconds to wait before each time that a reader asks again."""
    pause = _SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)


def _stored(engine: Engine, writers: Sequence[int]) -> dict[int, Ranges]:
    """The batches that the ledger has, by writer."""
    found = engine.query(
        "SELECT writer, groupArray(first) AS firsts, groupArray(last) AS lasts FROM ledger "
        f"WHERE writer IN {literal.integers(writers)} GROUP BY writer"
    )
    rows = found.rows("writer", "firsts", "lasts")
    return {writer: Ranges(zip(firsts, lasts, strict=True)) for writer, firsts, lasts in rows}


def _holds(stored: Ranges, wanted: Ranges) -> bool:
    return all(first in stored and stored.around(first)[1] >= last for first, last in wanted)
