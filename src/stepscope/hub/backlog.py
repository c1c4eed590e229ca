"""The hub's own journal as a source: parcels out, segments removed once their records are stored."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.hub import parcels
from stepscope.hub.tallies import Tallies
from stepscope.journal import layout
from stepscope.journal.cursors import Cursors
from stepscope.journal.read import READ_BYTES, Tail
from stepscope.model.ports import Batch

CURSOR = "intake"


class Item(NamedTuple):
    """A batch on its way into the store, and which receiver took it."""

    receiver: str
    batch: Batch


class Backlog:
    """Reads what the intake wrote. One thread reads; what was read counts as stored only after `settle`."""

    def __init__(
        self, folder: Path, cursors: Cursors, tallies: Tallies, removed: Callable[[], None] = lambda: None
    ) -> None:
        self._cursors = cursors
        self._tallies = tallies
        self._removed = removed
        self._folder = folder
        self._tail = self._tail_from_cursor()

    def _tail_from_cursor(self) -> Tail:
        return Tail(self._folder, self._cursors.get(CURSOR), parcels.unpack)

    def read(self, limit: int = READ_BYTES) -> list[Item]:
        """Return the next batches, at most about `limit` bytes of them; none at the end."""
        found: list[Any] = [parcel for batch in self._tail.read(limit) for parcel in batch.records]
        return [Item(parcel.receiver, parcel.batch()) for parcel in found]

    def rewind(self) -> None:
        """Forget what was read since the last `settle`; it is read again."""
        self._tail = self._tail_from_cursor()

    def settle(self) -> bool:
        """Move the cursor, and remove segments that hold nothing unread; tell whether the cursor moved.

        The newest segment stays: its batches' numbers are continued from.
        """
        damage = self._tail.damaged + self._tail.unreadable
        self._tallies.add("dropped", "intake", damage, "damaged in the hub's journal")
        self._tail.damaged = self._tail.unreadable = 0
        position = self._tail.position
        if position == self._cursors.get(CURSOR):
            return False
        before = self._cursors.get(CURSOR).segment
        self._cursors.set(CURSOR, position)
        if position.segment > before:
            self._remove(position.segment)
        return True

    def _remove(self, least: int) -> None:
        self._cursors.save()  # or a crash would look for what is gone
        for path in layout.list_segments(self._folder):
            if int(path.stem) < least:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._removed()

    def bytes_behind(self) -> int:
        """Count the bytes not yet stored."""
        position = self._cursors.get(CURSOR)
        behind = 0
        for path in layout.list_segments(self._folder):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                index = int(path.stem)
                behind += size if index > position.segment else 0
                behind += max(size - position.offset, 0) if index == position.segment else 0
        return behind
