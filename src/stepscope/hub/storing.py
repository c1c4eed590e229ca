"""The store as a sink: one commit for each group, told by number, so stored once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from stepscope.hub.store.engine import Damaged, EngineError
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch

SINK = "store"
"""Names its cursors and its quarantine."""
MOST_TRIES = 5
"""So often a group is offered to an engine in trouble before one of its batches is blamed."""
MOST_BLAMED = 8
"""So many batches are blamed in a row; then it is the engine, and everything waits."""

Outcome = Retry | Reject | None


class Keeps(Protocol):
    """What keeps batches: the store."""

    def write_many(self, batches: Sequence[Batch]) -> Sequence[Outcome]:
        """Store batches; None or Reject for one means it is safe."""


class StoreSink:
    """Offers groups to a store that somebody else opened and will close."""

    divisible = False
    timeout = 600.0

    def __init__(self, store: Keeps, check: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._check = check
        """Raises Retry when the folder of the store is not there any more."""
        self._tries = self._blamed = 0
        self._refused: dict[tuple[str, str, int], Reject] = {}
        """Refusals of batches that a group holds which was not taken whole yet; the store names them once."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Store batches in one commit; what was stored before is passed over."""
        self._check()
        try:
            outcomes = self._store.write_many(batches)
        except Damaged as error:
            raise Retry(str(error), after=60.0) from error  # no batch is to blame, and none will be taken soon
        except EngineError as error:
            self._tries += 1
            if self._tries < MOST_TRIES or self._blamed >= MOST_BLAMED:
                raise Retry(f"the store is in trouble: {error}") from error
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
        """The indices of all refused records, and why they were."""
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
