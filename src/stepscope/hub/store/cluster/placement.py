"""Which shard of a cluster a run is on."""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.schema import COPIED_TABLE, ShardUnavailable
from stepscope.model.errors import Retry

_MAX_KNOWN = 100_000
_KNOWN_SECONDS = 60.0
"""How long the shard of a run is remembered: one that was deleted may get another."""


class Placement:
    """Finds the shard of runs: that of the number of a run that is stored, else a hash of its id.

    A new run gets a number on the shard of its hash, so all hubs find the same one. Runs that were copied from another
    store keep their numbers. Safe from several threads.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._known: dict[str, int] = {}
        self._until = 0.0

    def find(self, runs: Iterable[str]) -> dict[str, int | ShardUnavailable]:
        """The shards of runs, by their ids; ShardUnavailable for a run that may be on one that does not answer.

        Retry when none answers.
        """
        count = self._engine.shards
        wanted = set(runs)
        if count == 1:
            return dict.fromkeys(wanted, 0)
        known = self._known
        if self._clock() > self._until or len(known) > _MAX_KNOWN:
            known, self._until = {}, self._clock() + _KNOWN_SECONDS
        found: dict[str, int | ShardUnavailable] = {}
        if missing := [run for run in wanted if run not in known]:
            found = self._look_up(missing)
            known = known | {run: place for run, place in found.items() if isinstance(place, int)}
        self._known = known
        return {run: known[run] if run in known else found[run] for run in wanted}

    def _look_up(self, runs: Sequence[str]) -> dict[str, int | ShardUnavailable]:
        sql = f"SELECT id, max(run) AS number FROM runs WHERE id IN {literal.texts(runs)} GROUP BY id"
        count = self._engine.shards
        try:
            stored = dict(self._engine.query(sql).rows("id", "number"))
            return {run: stored.get(run, run_hash(run)) % count for run in runs}
        except EngineError:
            stored, away, copied = self._ask_each(sql)

        def place(run: str) -> int | ShardUnavailable:
            usual = run_hash(run) % count
            if run in stored:
                return int(stored[run]) % count
            if usual not in away and not copied:
                return usual
            missing = usual if usual in away else min(away)
            return ShardUnavailable(
                f"shard {missing + 1} does not say whether it has the run {run}: {away[missing]}", missing
            )

        return {run: place(run) if away else stored.get(run, run_hash(run)) % count for run in runs}

    def _ask_each(self, sql: str) -> tuple[dict[str, int], dict[int, EngineError], bool]:
        """The runs of the shards that answer, the errors of the others, and whether the store is a copy of another."""
        stored: dict[str, int] = {}
        away: dict[int, EngineError] = {}
        copied = False
        for index in range(self._engine.shards):
            tables = self._engine.shard(index)
            try:
                stored.update(tables.query(sql).rows("id", "number"))
                copied = copied or bool(tables.query(COPIED_TABLE).one("held"))
            except EngineError as error:
                away[index] = error
        if len(away) == self._engine.shards:
            raise Retry(f"the shards of runs cannot be looked up: {away[0]}", after=2.0)
        return stored, away, copied


def run_hash(run: str) -> int:
    """A number that every hub computes from the id of a run."""
    digest = hashlib.md5(run.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")
