"""Deletes what incomplete commits left in the tables of a shard, and numbers commits so that no other is touched."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stepscope.hub.store import literal, schema
from stepscope.hub.store.columns import numbers, texts
from stepscope.hub.store.engine import Engine, EngineError, Tables
from stepscope.hub.store.schema import FACTS, FOLD
from stepscope.hub.store.write.ledger import Ledger, Shard

if TYPE_CHECKING:  # a store in a folder has no leases
    from stepscope.hub.store.cluster.lease import Lease

UNFINISHED = 341
_CHUNK = 5000
_MAX_ABORTED = 200
"""So many aborted commits are looked for, the newest ones."""
_ADDED = {"epoch": "UInt32 DEFAULT 0", "hub": "String DEFAULT ''"}
"""Columns that a store of an older version gets: who aborted a commit, and in which epoch."""
_TABLE = (
    f"(shard UInt32, commit UInt32, time Int64, {', '.join(f'{name} {type}' for name, type in _ADDED.items())}) "
    "ENGINE = MergeTree ORDER BY (shard, commit){settings}"
)

_EXISTS = "SELECT count() AS found FROM system.tables WHERE database = currentDatabase() AND name = 'aborted'"

_AS_TOTALS = """SELECT series, attempt, toUInt64(1) AS points,
    toUInt8(isNaN(value) + 2 * (isInfinite(value) AND value > 0) + 4 * (isInfinite(value) AND value < 0)) AS flags,
    step AS first_step, step AS last_step, time AS first_time, time AS last_time,
    if(isFinite(value), value, 1 / 0) AS low, if(isFinite(value), value, -1 / 0) AS high,
    value AS last, step AS at_step, time AS at_time
    FROM metrics"""


class Abort(NamedTuple):
    """The number of a commit that a hub aborted, and the epoch in which it did."""

    epoch: int
    commit: int


def aborts_that_count(noted: Iterable[Abort]) -> list[int]:
    """The aborted commits, the newest first, without those that a later epoch gave to commits of its own."""
    counting: set[int] = set()
    begun = end = None
    for each in sorted(noted, reverse=True):  # the latest epoch first
        if each.epoch != begun:
            begun, end = each.epoch, min(counting, default=None)
        if end is None or each.commit <= end:
            counting.add(each.commit)
    return sorted(counting, reverse=True)


class Recovery:
    """Deletes the rows of incomplete commits of a shard.

    A store that one process has to itself deletes whatever is newer than the ledger. On a shared store an insert may
    arrive late, from a hub that lost its lease or over a connection that hung. The number of the commit that may be
    under way is therefore written down as aborted and never used again: rows and ledger entries with it do not count,
    whenever they arrive, and the rows of other commits cannot be deleted by mistake.

    The invariant is that **no commit that was acknowledged is ever aborted**:

    - A number is aborted, and numbers after it are used, only if the lease is confirmed after all that it follows from
      was read. A hub that takes the shard later has then read at least as much, and begins above that number.
    - Every epoch begins with an aborted commit, and all commits of the epoch are above it. A commit above it that an
      earlier epoch aborted belongs to the later one: such an abort came late and does not count. It is looked for
      before anything is deleted, what it names stays, and `ignored` has it for health.
    """

    def __init__(self, engine: Tables, ledger: Ledger, shard: Shard, lease: "Lease | None") -> None:
        self._engine, self._ledger, self._shard, self._lease = engine, ledger, shard, lease
        self._begun: int | None = None
        """The epoch in which a recovery noted its aborted commit and could not delete the rows yet."""
        self.ignored: Sequence[int] = ()
        """Commits that a hub aborted after it had lost the shard."""

    def recover(self, clock: Callable[[], int], confirm: Callable[[], None], epoch: int = 0) -> int:
        """Delete the rows of incomplete commits and return the last number that is in use.

        `confirm` raises unless this hub still has the shard, in that epoch. Repeated after a failure, it goes on; no
        commit may have been tried meanwhile in the same epoch.
        """
        self._engine.settle(("ledger", *FACTS, "requests", *(("aborted",) if self._lease is not None else ())))
        if self._lease is None:
            last = self._ledger.last_commit()
            self._delete(f"commit > {last}", confirm, ("requests",))
            return last
        self._engine.drop_unregistered()  # before the ledger is read: an entry that one replica has is not written
        if self._begun != epoch:
            self._abort(clock, confirm, self._lease.hub, epoch)
            self._begun = epoch
        self._delete_aborted(confirm)
        self._begun = None
        return self._ledger.aborted[0]

    def _abort(self, clock: Callable[[], int], confirm: Callable[[], None], hub: str, epoch: int) -> None:
        """Note the number of the commit that may be under way."""
        last, noted = self._ledger.last_commit(), self._noted()
        if any(each.epoch > epoch for each in noted):
            raise EngineError(f"another hub has recovered shard {self._shard.index + 1} in a later epoch", UNFINISHED)
        last = max([last, *(each.commit for each in noted)]) + 1
        confirm()
        self._engine.insert(
            "aborted",
            {
                "shard": numbers("UInt32", [self._shard.index]),
                "commit": numbers("UInt32", [last]),
                "time": numbers("Int64", [clock()]),
                "epoch": numbers("UInt32", [epoch]),
                "hub": texts([hub]),
            },
        )
        confirm()
        counting = aborts_that_count(noted)
        self._ledger.leave_out([last, *counting])
        self.ignored = sorted({each.commit for each in noted} - set(counting))

    def sweep(self, confirm: Callable[[], None]) -> None:
        """Delete what arrived late of aborted commits."""
        if self._ledger.aborted:
            self._engine.drop_unregistered()
            self._delete_aborted(confirm)

    def _delete_aborted(self, confirm: Callable[[], None]) -> None:
        self._delete(f"commit IN {literal.integers(self._ledger.aborted)}", confirm, ("ledger",))

    def _noted(self) -> set[Abort]:
        """The newest commits that were aborted, as all replicas that answer know them."""
        found = self._engine.query_all(
            f"""SELECT DISTINCT epoch, commit FROM aborted WHERE shard = {self._shard.index}
            ORDER BY commit DESC LIMIT {_MAX_ABORTED}"""
        )
        return {Abort(*row) for answer in found for row in answer.rows("epoch", "commit")}

    def _delete(self, which: str, confirm: Callable[[], None], also: Sequence[str] = ()) -> None:
        """Delete the rows of some commits.

        Totals first: their series are found by the rows of points, which are therefore deleted last.
        """
        late = f"{which} AND {self._shard.condition('metrics')}"
        touched = self._engine.query(f"SELECT DISTINCT series FROM metrics WHERE {late}")["series"]
        rebuild_totals(self._engine, touched, f"NOT ({which})", confirm)
        for table in (*also, *FACTS):
            late = f"{which} AND {self._shard.condition(table)}"
            if self._count(table, late):
                confirm()
                self._engine.execute(f"ALTER TABLE {table} DELETE WHERE {late}")
                if left := self._count(table, late):
                    raise EngineError(f"{left} rows of {table} could not be rolled back", UNFINISHED)

    def _count(self, table: str, condition: str) -> int:
        return int(self._engine.query(f"SELECT count() AS found FROM {table} WHERE {condition}").one("found"))


def prepare(engine: Engine) -> None:
    """Create the table of aborted commits if it is missing."""
    schema.create(engine, "aborted", _TABLE)
    schema.add_columns({"aborted": _ADDED}, engine)


def forget_aborted(engine: Engine) -> None:
    """Let every commit number be used again, in a store that is about to get the commits of another one."""
    if engine.query(_EXISTS).one("found"):
        engine.execute("ALTER TABLE aborted DELETE WHERE commit >= 0")


def rebuild_totals(
    engine: Tables, series: Sequence[int], condition: str = "1", confirm: Callable[[], None] = lambda: None
) -> None:
    """Compute the totals of these series again from the points that meet a condition."""
    for start in range(0, len(series), _CHUNK):
        among = f"series IN {literal.integers(series[start : start + _CHUNK])}"
        confirm()
        engine.execute(f"ALTER TABLE totals DELETE WHERE {among}")
        confirm()
        points = f"{_AS_TOTALS} WHERE {among} AND {condition}"
        engine.execute(f"INSERT INTO totals SELECT series, attempt, {FOLD} FROM ({points}) GROUP BY series, attempt")
