"""A source cut into small pieces, for a thread of the trainer that must not hold up its loop."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stepscope.model.ports import Batch
from stepscope.pump import Source
from stepscope.wire import frames

PIECE_BYTES = 1024
"""Bytes of packed records in one piece: reading and encoding them takes a fraction of a millisecond."""


class Slices:
    """Hands the batches of a source on piece by piece, records unpacked; the source must leave them packed.

    Python gives another thread its turn after 5 ms at work, or at once when the work stops to wait: so each piece is
    small, and there is a stop before each. A sink that tells batches by their numbers gets them whole. What was read
    counts as delivered when the last piece is.
    """

    def __init__(
        self,
        source: Source,
        is_divisible: Callable[[], bool],
        piece_bytes: int = PIECE_BYTES,
        stop: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source, self._is_divisible, self._piece_bytes, self._stop = source, is_divisible, piece_bytes, stop
        self._rest: deque[Batch] = deque()
        self._under_way: Batch | None = None
        """The piece that was handed on last, until it is delivered."""
        self.unreadable = 0
        """Records that could not be unpacked."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next piece; nothing when the source has no more."""
        if not self._rest:
            whole = not self._is_divisible()
            for batch in self._source.read(limit):
                self._stop(0.0)
                self._rest.extend([batch] if whole else self._cut(batch))
        self._stop(0.0)
        self._under_way = self._rest.popleft() if self._rest else None
        return [self._unpacked(self._under_way)] if self._under_way is not None else []

    def settle(self) -> None:
        """Take note of a delivered piece; the source is told when all pieces are."""
        self._under_way = None
        if not self._rest:
            self._source.settle()

    def rewind(self) -> None:
        """Take back the piece that was not delivered; it comes again, and those before it do not."""
        if self._under_way is not None:
            self._rest.appendleft(self._under_way)
            self._under_way = None

    def _cut(self, batch: Batch) -> list[Batch]:
        pieces: list[Batch] = []
        room = 0
        packed: list[Any] = batch.records
        for record in packed:
            size = len(memoryview(record))
            if size > room:
                pieces.append(batch._replace(records=[]))
                room = self._piece_bytes
            pieces[-1].records.append(record)
            room -= size
        return pieces or [batch]

    def _unpacked(self, batch: Batch) -> Batch:
        records = []
        packed: list[Any] = batch.records
        for raw in packed:
            try:
                records.append(frames.unpack_record(raw))
            except ValueError:
                self.unreadable += 1
        return batch._replace(records=records)
