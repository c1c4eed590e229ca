"""Deletes what incomplete commits left in the tables of a shard, and numbers commits so that no other is touched."""

from collections.abc import Callable, Iterable, Sequence

from stepscope.hub.store import literal, schema
from stepscope.hub.store.cluster.shards import Shard
from stepscope.hub.store.columns import numbers
from stepscope.hub.store.engine import Engine, EngineError, Tables
from stepscope.hub.store.schema import FACTS, FOLD
from stepscope.hub.store.write.ledger import Ledger

UNFINISHED = 341
_CHUNK = 5000
_MOST_ABORTED = 200
"""So many aborted commits are looked for, the newest ones."""
_TABLE = "(shard UInt32, commit UInt32, time Int64) ENGINE = MergeTree ORDER BY (shard, commit)"

_EXISTS = "SELECT count() AS found FROM system.tables WHERE database = currentDatabase() AND name = 'aborted'"

_AS_TOTALS = """SELECT series, attempt, toUInt64(1) AS points,
    toUInt8(isNaN(value) + 2 * (isInfinite(value) AND value > 0) + 4 * (isInfinite(value) AND value < 0)) AS flags,
    step AS first_step, step AS last_step, time AS first_time, time AS last_time,
    if(isFinite(value), value, 1 / 0) AS low, if(isFinite(value), value, -1 / 0) AS high,
    value AS last, step AS at_step, time AS at_time
    FROM metrics"""


class Recovery:
    """Deletes the rows of incomplete commits of a shard.

    A store that one process has to itself deletes whatever is newer than the ledger. On a shared store an insert may
    arrive late, from a hub that lost its lease or over a connection that hung. The number of the commit that may be
    under way is therefore written down as aborted and never used again: rows and ledger entries with it do not count,
    whenever they arrive, and the rows of other commits cannot be deleted by mistake.
    """

    def __init__(self, engine: Tables, ledger: Ledger, shard: Shard, *, shared: bool) -> None:
        self._engine, self._ledger, self._shard, self._shared = engine, ledger, shard, shared
        self._begun: int | None = None
        """The epoch in which a recovery noted its aborted commit and could not delete the rows yet."""

    def recover(self, clock: Callable[[], int], guard: Callable[[], None], epoch: int = 0) -> int:
        """Delete the rows of incomplete commits and return the last number that is in use.

        Repeated after a failure, it goes on; no commit may have been tried meanwhile in the same epoch.
        """
        self._engine.settle(("ledger", *FACTS, "requests", *(("aborted",) if self._shared else ())))
        if not self._shared:
            last = self._ledger.last_commit()
            self._delete(f"commit > {last}", guard, ("requests",))
            return last
        self._engine.drop_unregistered()  # before the ledger is read: an entry that one replica has is not written
        if self._begun != epoch:
            self._abort(clock, guard)
            self._begun = epoch
        self._delete_aborted(guard)
        self._begun = None
        return self._ledger.aborted[0]

    def _abort(self, clock: Callable[[], int], guard: Callable[[], None]) -> None:
        """Note the number of the commit that may be under way."""
        last, aborted = self._ledger.last_commit(), self._aborted()
        last = max([last, *aborted]) + 1
        guard()
        self._engine.insert(
            "aborted",
            {
                "shard": numbers("UInt32", [self._shard.index]),
                "commit": numbers("UInt32", [last]),
                "time": numbers("Int64", [clock()]),
            },
        )
        self._ledger.aborted = [last, *aborted]

    def sweep(self, guard: Callable[[], None]) -> None:
        """Delete what arrived late of aborted commits."""
        if self._ledger.aborted:
            self._engine.drop_unregistered()
            self._delete_aborted(guard)

    def _delete_aborted(self, guard: Callable[[], None]) -> None:
        self._delete(f"commit IN {literal.integers(self._ledger.aborted)}", guard, ("ledger",))

    def _aborted(self) -> list[int]:
        found = self._engine.query_all(
            f"""SELECT commit FROM aborted WHERE shard = {self._shard.index}
            GROUP BY commit ORDER BY commit DESC LIMIT {_MOST_ABORTED}"""
        )
        return sorted({commit for answer in found for commit in answer["commit"]}, reverse=True)[:_MOST_ABORTED]

    def _delete(self, which: str, guard: Callable[[], None], also: Sequence[str] = ()) -> None:
        """Delete the rows of some commits.

        Totals first: their series are found by the rows of points, which are therefore deleted last.
        """
        late = f"{which} AND {self._shard.condition('metrics')}"
        touched = self._engine.query(f"SELECT DISTINCT series FROM metrics WHERE {late}")["series"]
        rebuild_totals(self._engine, touched, f"NOT ({which})", guard)
        for table in (*also, *FACTS):
            late = f"{which} AND {self._shard.condition(table)}"
            if self._count(table, late):
                guard()
                self._engine.execute(f"ALTER TABLE {table} DELETE WHERE {late}")
                if left := self._count(table, late):
                    raise EngineError(f"{left} rows of {table} could not be rolled back", UNFINISHED)

    def _count(self, table: str, condition: str) -> int:
        return int(self._engine.query(f"SELECT count() AS found FROM {table} WHERE {condition}").one("found"))


def prepare(engine: Engine) -> None:
    """Create the table of aborted commits if it is missing."""
    schema.create(engine, "aborted", _TABLE)


def forget_aborted(engine: Engine) -> None:
    """Let every commit number be used again, in a store that is about to get the commits of another one."""
    if engine.query(_EXISTS).one("found"):
        engine.execute("ALTER TABLE aborted DELETE WHERE commit >= 0")


def rebuild_totals(
    engine: Tables, series: Sequence[int], condition: str = "1", guard: Callable[[], None] = lambda: None
) -> None:
    """Compute the totals of these series again from the points that meet a condition."""
    for chunk in _chunks(series, _CHUNK):
        among = f"series IN {literal.integers(chunk)}"
        guard()
        engine.execute(f"ALTER TABLE totals DELETE WHERE {among}")
        points = f"{_AS_TOTALS} WHERE {among} AND {condition}"
        engine.execute(f"INSERT INTO totals SELECT series, attempt, {FOLD} FROM ({points}) GROUP BY series, attempt")


def _chunks(values: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (values[at : at + size] for at in range(0, len(values), size))
