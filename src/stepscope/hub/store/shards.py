"""Shards of a store: which one a run is on, and the condition for the rows of one."""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.schema import BY_SERIES
from stepscope.model.errors import Retry

_MOST_KNOWN = 100_000
_KNOWN_SECONDS = 60.0
"""How long the shard of a run is remembered: one that was deleted may get another."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the shards of a store; the numbers of its runs modulo `count` are `index`."""

    index: int = 0
    count: int = 1

    def condition(self, table: str) -> str:
        """The SQL condition for the rows of this shard in a table."""
        if self.count == 1:
            return "1"
        number = "bitShiftRight(series, 32)" if table in BY_SERIES else "run"
        return f"{number} % {self.count} = {self.index}"

    def number_from(self, least: int) -> int:
        """The lowest number of a run on this shard that is not below another number."""
        return least + (self.index - least) % self.count


WHOLE = Shard()
"""The one shard of a store that is not divided."""


class Placement:
    """Finds the shard of runs: that of the number of a run that is stored, else a hash of its id.

    A new run gets a number on the shard of its hash, so all hubs find the same one. Runs that were copied from another
    store keep their numbers. Safe from several threads.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._known: dict[str, int] = {}
        self._until = 0.0

    def find(self, runs: Iterable[str]) -> dict[str, int]:
        """The shards of runs, by their ids; Retry when the store does not answer."""
        count = self._engine.shards
        wanted = set(runs)
        if count == 1:
            return dict.fromkeys(wanted, 0)
        known = self._known
        if self._clock() > self._until or len(known) > _MOST_KNOWN:
            known, self._until = {}, self._clock() + _KNOWN_SECONDS
        missing = [run for run in wanted if run not in known]
        if missing:
            asked = f"SELECT id, max(run) AS number FROM runs WHERE id IN {literal.texts(missing)} GROUP BY id"
            try:
                stored = dict(self._engine.query(asked).rows("id", "number"))
            except EngineError as error:
                raise Retry(f"the store does not say where runs are: {error}", after=2.0) from error
            known = known | {run: stored.get(run, run_hash(run)) % count for run in missing}
        self._known = known
        return {run: known[run] for run in wanted}


def run_hash(run: str) -> int:
    """A number that every hub computes from the id of a run."""
    digest = hashlib.md5(run.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")
