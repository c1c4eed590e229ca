"""The tables of one shard on its own servers, so that they work while other shards are away."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.cluster.pool import Pool
from stepscope.hub.store.cluster.session import NETWORK_ERROR, Session
from stepscope.hub.store.columns import Answer, Block
from stepscope.hub.store.engine import EngineError, Tables

UNFINISHED = 341
SETTLE_SECONDS = 10.0
MUTATION_SECONDS = 20.0
"""How long rows that are being deleted are waited for. The server may delete them later; the caller tries again."""
_LONGEST_PAUSE = 0.5
_PAUSE_SECONDS = 2.0
"""A shard of which no server answers is not asked again for so long, so that nothing else waits for it."""
_SILENT_SECONDS = 15.0
"""The same for a replica beside the one in use; meanwhile that one is believed when it says that it is current."""


class ShardTables:
    """The rows of one shard, read and written on one replica until that fails.

    Another replica is used only when it has caught up, so that what was written is read. `find` opens a pool of
    connections to the servers of the shard; None when the store's address names none, and `whole` is asked instead.
    """

    def __init__(
        self,
        find: Callable[[], Pool | None],
        whole: Tables,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._find, self._whole = find, whole
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._host: tuple[str, int] | None = None
        """The replica that had everything when it was first used."""
        self._silent: dict[tuple[str, int], float] = {}
        """Until when replicas that did not answer are not asked beside the one in use."""
        self._until = float("-inf")
        self._why = ""

    def execute(self, sql: str) -> None:
        """Run a statement; mutations are waited for, on this replica, for `MUTATION_SECONDS`."""
        with self._lend() as session:
            table = dialect.mutated(sql)
            if session is None:
                self._whole.execute(sql)
            elif table:
                mutate(session.query, lambda: session.execute(sql, brief=True), table, self._sleep)
            else:
                session.execute(sql, brief=True)

    def query(self, sql: str) -> Answer:
        """Return the columns of a SELECT."""
        with self._lend() as session:
            return self._whole.query(sql) if session is None else session.query(sql)

    def query_all(self, sql: str) -> list[Answer]:
        """Return the answers of all replicas that answer: what one of them took is in one of them."""
        found = [self.query(sql)]
        pool = self._opened()
        if pool is None:
            return found
        for host in pool.hosts:
            if host == self._host or self._clock() < self._silent.get(host, float("-inf")):
                continue
            try:
                with closing(pool.connect(only=host)) as session:
                    found.append(session.query(sql))
            except EngineError:
                self._silent[host] = self._clock() + _SILENT_SECONDS
        return found

    def insert(self, table: str, block: Block) -> None:
        """Add rows as one block."""
        with self._lend() as session:
            self._whole.insert(table, block) if session is None else session.insert(table, block)

    def settle(self, tables: Sequence[str]) -> None:
        """Wait until this replica has all that ZooKeeper knows of."""
        with self._lend() as session:
            if session is None:
                self._whole.settle(tables)
            else:
                catch_up(session.query, tables, self._sleep)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def _lend(self) -> Iterator[Session | None]:
        """Lend a connection to a replica; one that fails, or cannot take rows, is tried last from then on."""
        pool = self._opened()
        if pool is None:
            yield None
            return
        host = None
        try:
            with pool.lend() as session:
                host = session.host
                if host != self._host:
                    catch_up(session.query, session.query(dialect.replicated_tables())["table"], self._sleep)
                    self._host = host
                yield session
        except EngineError as error:
            if host is None:
                self._rest(str(error))
            elif error.passing:
                pool.avoid(host)
                self._host = None
            raise

    def _opened(self) -> Pool | None:
        with self._lock:
            if self._clock() < self._until:
                raise EngineError(self._why, NETWORK_ERROR)
            if self._pool is None:
                try:
                    self._pool = self._find()
                except EngineError as error:
                    self._until, self._why = self._clock() + _PAUSE_SECONDS, str(error)
                    raise
            return self._pool

    def _rest(self, why: str) -> None:
        """Ask no server for a while, and look for all of them again then."""
        self.close()
        self._until, self._why = self._clock() + _PAUSE_SECONDS, why


def catch_up(query: Callable[[str], Answer], tables: Sequence[str], sleep: Callable[[float], None]) -> None:
    """Wait until the replicas that a query reads have all rows of some tables, as far as they know.

    They are asked twice: while an entry moves from the log to the queue of a replica, neither of them shows it.
    """
    wait_until_none(
        lambda: (
            query(dialect.replicas_behind(tables)).one("behind") or query(dialect.replicas_behind(tables)).one("behind")
        ),
        lambda left: f"{left} replicated tables have not caught up, or cannot write: is a server or ZooKeeper away?",
        SETTLE_SECONDS,
        sleep,
    )


def mutate(
    query: Callable[[str], Answer],
    change: Callable[[], None],
    table: str,
    sleep: Callable[[float], None],
    seconds: float = MUTATION_SECONDS,
) -> None:
    """Change rows of a replicated table and wait until it is done here; EngineError, which passes, if it takes long.

    Repeated after that, it waits for the change under way. One that has not been done for a minute is asked for anew:
    without ZooKeeper a server may lose it, or leave it undone.
    """

    def finish(ready: Callable[[Answer], bool]) -> None:
        wait_until_none(
            lambda: int(not ready(query(dialect.mutations(table)))),
            lambda left: f"the rows of {table} are still being deleted",
            seconds,
            sleep,
        )

    finish(lambda found: not found.one("recent"))
    before = query(dialect.mutations(table)).one("newest")
    change()
    # A replica lists a change some time after it took it.
    finish(lambda found: found.one("newest") != before and not found.one("left"))


def wait_until_none(
    count: Callable[[], int], why: Callable[[int], str], seconds: float, sleep: Callable[[float], None]
) -> None:
    """Wait until a count is 0; EngineError, which passes, if that takes too long."""
    pause, deadline = 0.01, time.monotonic() + seconds
    while left := count():
        if time.monotonic() > deadline:
            raise EngineError(why(left), UNFINISHED)
        sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
