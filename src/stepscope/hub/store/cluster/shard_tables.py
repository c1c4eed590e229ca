"""The tables of one shard on its own servers, so that they work while other shards are unavailable."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from stepscope.hub.store import literal
from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.cluster.pool import Pool
from stepscope.hub.store.cluster.session import NETWORK_ERROR, Session
from stepscope.hub.store.cluster.waiting import UNFINISHED, catch_up, mutate
from stepscope.hub.store.columns import Answer, Block
from stepscope.hub.store.engine import EngineError, Tables

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

    def has_servers(self) -> bool:
        """Return whether the store's address names a server of this shard; EngineError when that cannot be known."""
        return self._opened() is not None

    def execute(self, sql: str) -> None:
        """Run a statement; mutations are waited for, on this replica, for `MUTATION_SECONDS`."""
        with self._session() as session:
            table = dialect.mutated(sql)
            if session is None:
                self._whole.execute(sql)
            elif table:
                mutate(session.query, lambda: session.execute(sql, brief=True), table, self._sleep)
            else:
                session.execute(sql, brief=True)

    def query(self, sql: str) -> Answer:
        """Return the columns of a SELECT."""
        with self._session() as session:
            return self._whole.query(sql) if session is None else session.query(sql)

    def query_all(self, sql: str) -> list[Answer]:
        """Return the answers of all replicas that answer: what one of them took is in one of them."""
        found = [self.query(sql)]
        self._with_others(lambda session: found.append(session.query(sql)))
        return found

    def drop_unregistered(self) -> None:
        """Drop rows that one replica alone has, of all replicas that answer, that in use first."""
        with self._session() as session:
            if session is not None:
                drop_unregistered(session, self._sleep)
        self._with_others(lambda session: drop_unregistered(session, self._sleep))

    def _with_others(self, act: Callable[[Session], None]) -> None:
        """Do something on each replica beside the one in use; those that fail are left alone for a while."""
        pool = self._opened()
        for host in pool.hosts if pool is not None else ():
            if pool is None or host == self._host or self._clock() < self._silent.get(host, float("-inf")):
                continue
            try:
                with closing(pool.connect(only=host)) as session:
                    act(session)
            except EngineError:
                self._silent[host] = self._clock() + _SILENT_SECONDS

    def insert(self, table: str, block: Block) -> None:
        """Add rows as one block."""
        with self._session() as session:
            self._whole.insert(table, block) if session is None else session.insert(table, block)

    def settle(self, tables: Sequence[str]) -> None:
        """Wait until this replica has all that ZooKeeper knows of."""
        with self._session() as session:
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
    def _session(self) -> Iterator[Session | None]:
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


_PATHS = "SELECT table, replica_path FROM system.replicas WHERE database = currentDatabase()"


def drop_unregistered(session: Session, sleep: Callable[[float], None] = time.sleep) -> None:
    """Load the tables of a replica again that hold such parts; their rows are gone then. Others are left alone."""
    paths: dict[str, str] = dict(session.query(_PATHS).rows("table", "replica_path"))
    if not paths:
        return
    found = _unregistered(session, paths)
    # A part that was added while they were compared is registered by now.
    tables = sorted({table for table, _ in found & _unregistered(session, paths)} if found else ())
    for table in tables:
        try:
            session.execute(f"SYSTEM RESTART REPLICA {table}", brief=True)
        except EngineError as error:
            raise EngineError(f"rows of {table} that no other replica knows of stay: {error}", UNFINISHED) from error
    if tables:
        catch_up(session.query, tables, sleep)


def _unregistered(session: Session, paths: Mapping[str, str]) -> set[tuple[str, str]]:
    """The tables and the names of such parts."""
    found = session.query(" UNION ALL ".join(_QUESTION.format(*_names(each)) for each in paths.items()))
    return set(found.rows("table", "name"))


_QUESTION = """SELECT table, name FROM system.parts WHERE database = currentDatabase() AND table = {0} AND active
    AND name NOT IN (SELECT name FROM system.zookeeper WHERE path = {1})"""


def _names(path: tuple[str, str]) -> tuple[str, str]:
    table, replica = path
    return literal.text(table), literal.text(f"{replica}/parts")
