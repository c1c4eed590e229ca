"""Records of one kind in a commit, with where they came from, and the columns that say so."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from stepscope.hub.store.columns import Block, Numbers, constant, numbers
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.catalog import Source


class Placed(Protocol):
    """A record that may have a step."""

    @property
    def step(self) -> int | None:
        """The step."""


R = TypeVar("R", bound=Placed)


class Rows(Generic[R]):
    """Records in the order they came, and how many in a row each source gave."""

    def __init__(self) -> None:
        self.records: list[R] = []
        self._sources: list[Source] = []
        self._counts: list[int] = []

    def extend(self, source: Source, records: Sequence[R]) -> None:
        """Take records of one source."""
        if records:
            self.records += records
            self._sources.append(source)
            self._counts.append(len(records))

    def by_source(self, type: str, of: Callable[[Source], int]) -> Numbers:
        """Make a column that is the same for all records of a source."""
        return Numbers(type, numbers(type, [of(source) for source in self._sources]).data.repeat(self._counts))

    def place(self, commit: int) -> Block:
        """Make the columns run, step, rank, attempt and commit; OverflowError for a step that does not fit."""
        steps = [NO_STEP if record.step is None else record.step for record in self.records]
        column = numbers("Int64", steps)
        if steps and np.min(column.data) < NO_STEP:
            raise OverflowError("a step is out of range")
        return {
            "run": self.by_source("UInt32", lambda source: source.book.number),
            "step": column,
            "rank": self.by_source("UInt32", lambda source: source.writer.rank),
            "attempt": self.by_source("UInt16", lambda source: source.writer.attempt),
            "commit": constant("UInt32", commit, len(steps)),
        }
