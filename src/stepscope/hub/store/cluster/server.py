"""A ClickHouse server as an engine: pooled connections to one of several hosts, the next host when one fails."""

import contextvars
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial

from stepscope.hub.store import literal
from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.cluster.address import Address, of_sql_user
from stepscope.hub.store.cluster.cluster_sql import ClusterSql
from stepscope.hub.store.cluster.commit_levels import CommitLevels
from stepscope.hub.store.cluster.lease import BEATS
from stepscope.hub.store.cluster.pool import Pool
from stepscope.hub.store.cluster.readable_rows import readable_rows
from stepscope.hub.store.cluster.session import NETWORK_ERROR, Session
from stepscope.hub.store.cluster.shard_tables import ShardTables
from stepscope.hub.store.cluster.waiting import Unfinished, catch_up, wait_until_none
from stepscope.hub.store.columns import Answer, Block
from stepscope.hub.store.engine import (
    AWAY,
    BEHIND,
    CANCELLED,
    ClusterState,
    EngineError,
    Limits,
    RowStream,
    Stop,
    Tables,
    missing_allowed,
    row_stream,
)
from stepscope.hub.store.schema import PUBLIC
from stepscope.model.errors import ConfigError

_WITHOUT_SOME: dialect.Settings = {"distributed_ddl_task_timeout": 6}
"""How long a statement for the cluster waits for the servers when some are known to be unavailable.

An old server takes half of an even number and waits for ever for an odd one: to it, the driver sends it unsigned.
"""
_LEVELS_SECONDS = 0.25
"""Answers are taken to have what others had so long ago."""
_OF_RUNS = frozenset(PUBLIC)


class Server:
    """An open store on a server. The database is made when it is missing."""

    def __init__(self, address: Address, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address = address
        self._sleep = sleep
        logging.getLogger("clickhouse_driver").addHandler(logging.NullHandler())  # its errors are raised as ours
        self._pool = Pool(address)
        self._sql_pool = Pool(of_sql_user(address)) if address.sql_user else self._pool
        self._threads = ThreadPoolExecutor(address.threads, "stepscope-store")
        self._cluster = ClusterSql(address.cluster, address.database) if address.cluster else None
        with closing(self._pool.connect(database="")) as first:
            self.shards = _shards(first, address.cluster) if self._cluster else 1
            self._make_databases(first)
            self._dialect = dialect.of(first.version)
            self.version = ".".join(map(str, first.version))
        self.modern = self._dialect.modern
        settings = self._dialect.settings(address.memory, address.threads, cluster=self._cluster is not None)
        for pool in (self._pool, self._sql_pool):
            pool.use(settings)
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        """The shard and the replica that each server of the address is, beginning with 1, as far as they answered."""
        self._levels = CommitLevels()
        self._levels_checked = float("-inf")
        self._shard_tables = [self._tables_of(index) for index in range(self.shards)] if self._cluster else []
        self._check_sql_user()

    def _check_sql_user(self) -> None:
        """ConfigError when the user of user-supplied queries could write, or cannot be limited."""
        if not self._address.sql_user:
            return
        with closing(self._sql_pool.connect()) as session:
            found = session.query("SELECT value FROM system.settings WHERE name = 'readonly'")["value"]
        if found != ["2"]:
            name = self._address.sql_user
            raise ConfigError(f"the database user {name!r} must have readonly = 2 in its profile, it has {found}")

    def _make_databases(self, session: Session) -> None:
        if self._cluster is None:
            session.execute(f"CREATE DATABASE IF NOT EXISTS {self._address.database}")
            return
        cluster = self._cluster
        if session.query(dialect.databases((cluster.database, cluster.shard))).one("found") < 2:
            for sql in cluster.databases():
                session.execute(sql)
        if not session.query(dialect.tables(*cluster.servers.split("."))).one("found"):
            self._run(session, cluster.make_servers())

    def execute(self, sql: str) -> None:
        """Run a statement; mutations are waited for."""
        with self._pool.lend() as session:
            if self._cluster is None:
                self._run(session, sql)
            elif not self._is_made(session, sql):
                altered = dialect.alters(sql) and self._alter(sql)
                for each in self._cluster.statements(sql)[1 if altered else 0 :]:
                    self._run(session, each)
            table = dialect.mutated(sql)
            if table and not self.modern:
                self._wait_for(session, table)

    def _alter(self, sql: str) -> bool:
        """Change a table on one replica of each shard; false, and nothing done, while the servers of one are unknown.

        ON CLUSTER, two replicas of a shard may both take an ALTER; the one that is second to say so (18.16) then runs
        no statement of the cluster any more until it restarts.
        """
        try:
            if not all(tables.has_servers() for tables in self._shard_tables):
                return False
        except EngineError:
            return False
        deadline = time.monotonic() + self._address.timeout
        for tables in self._shard_tables:
            self._alter_shard(tables, sql, deadline)
        return True

    def _alter_shard(self, tables: ShardTables, sql: str, deadline: float) -> None:
        while True:
            try:
                return tables.execute(sql)
            except Unfinished:  # repeated, it waits for the change under way
                if time.monotonic() > deadline:
                    raise
            except EngineError as error:
                if not _was_added(sql, error):
                    raise
                return None

    def _is_made(self, session: Session, sql: str) -> bool:
        """Return whether a statement would make what is there: asking every server would need all of them to answer."""
        made = self._cluster.made_by(sql) if self._cluster else None
        return made is not None and bool(session.query(dialect.tables(*made)).one("found"))

    def _run(self, session: Session, sql: str) -> None:
        """Run a statement; servers of a cluster that are unavailable run it when they are back."""
        some_away = " ON CLUSTER " in sql and not all(map(self._answers, self._address.hosts))
        try:
            session.execute(sql, _WITHOUT_SOME if some_away else {})
        except EngineError as error:
            if not (_was_added(sql, error) or dialect.is_queued(error)):
                raise

    def _wait_for(self, session: Session, table: str) -> None:
        """Wait until the mutations of a table are done; an old server has no setting for that."""
        wait_until_none(
            lambda: session.query(self._asked(dialect.unfinished(table))).one("left"),
            lambda left: f"the rows of {table} are still being deleted",
            self._address.timeout,
            self._sleep,
        )

    def _asked(self, sql: str) -> str:
        return self._cluster.query(sql) if self._cluster else sql

    def query(self, sql: str) -> Answer:
        """Return the columns of a SELECT; one whose connection breaks is asked once more, of the next host."""
        sql = self._asked(sql)
        if self._cluster is None:
            return self._ask(sql)
        tables = dialect.tables_read(sql)
        try:
            found = self._ask(sql, dialect.CURRENT)
            skipping: dialect.Settings = {}
        except EngineError as error:
            skipping = self._without_some(error, tables)
            found = self._ask(sql, skipping)
        if skipping:
            self._note(self.shards_away())
        if _OF_RUNS.intersection(tables):
            self._check_levels()
        return found

    def _check_levels(self) -> None:
        """Note the shards of which answers lack a commit that is known to be there; EngineError where none may lack.

        A replica without ZooKeeper does not know what it lacks, so that the server itself takes it for current.
        """
        if time.monotonic() < self._levels_checked + _LEVELS_SECONDS or not self._levels.expected():
            return
        behind = self._levels.behind(self._read_levels())
        if not behind:
            self._levels_checked = time.monotonic()
        elif missing_allowed() is None:
            raise EngineError(f"the replica of shard {behind[0]} that answers lacks commits", BEHIND)
        self._note(behind)

    def _read_levels(self) -> dict[int, int]:
        """The newest commit of each shard in the answers of this moment; without the shards that do not answer."""
        found = self._ask(dialect.newest_commits(self.shards), dialect.SKIPPING)
        return dict(found.rows("shard", "newest"))

    def note_commit(self, shard: int, commit: int) -> None:
        """Note that a commit is complete: an answer that lacks it a little later comes from a replica behind."""
        self._levels.note(shard, commit)

    def _learn_levels(self) -> None:
        """Ask every replica for its newest commit: another hub may have written it."""
        replicas = Counter(shard for shard, _ in self._places.values())
        for index, tables in enumerate(self._shard_tables):
            with suppress(EngineError):
                found = tables.query_all(dialect.newest_commits(self.shards))
                newest = max((dict(each.rows("shard", "newest")).get(index, 0) for each in found), default=0)
                learn = self._levels.replace if len(found) == replicas[index + 1] else self._levels.note
                learn(index, newest)

    def _without_some(self, error: EngineError, tables: Sequence[str]) -> dialect.Settings:
        """Note what an answer from some tables will lack, and return the settings by which it is given; else raise."""
        if error.code not in AWAY and error.code != BEHIND:
            raise error
        allowed = missing_allowed() is not None
        if error.code == BEHIND:
            behind = self._shards_behind(tables)
            if behind and not allowed:
                raise error
            self._note(behind)
            return {}
        away = self.shards_away() if allowed else []
        if not allowed or len(away) == self.shards:
            raise error
        self._note([*away, *self._shards_behind(tables)])
        return dialect.SKIPPING if away else {}

    def _note(self, shards: Sequence[int]) -> None:
        if shards and (missing := missing_allowed()) is not None:
            missing.add(shards, self.shards)

    def _ask(self, sql: str, settings: dialect.Settings | None = None) -> Answer:
        try:
            with self._pool.lend() as session:
                return session.query(sql, settings)
        except EngineError as error:
            if error.code != NETWORK_ERROR:
                raise
        with self._pool.lend() as session:
            return session.query(sql, settings)

    def shards_away(self) -> list[int]:
        """The shards of which no replica answers; their numbers begin with 1."""
        if self._cluster is None:
            return []
        found = self._ask(dialect.living_shards(self._cluster.cluster, self._cluster.servers), dialect.SKIPPING)
        return [number for number in range(1, self.shards + 1) if number not in found["shard"]]

    def _shards_behind(self, tables: Sequence[str] = ()) -> list[int]:
        """The shards of which each replica that answers lacks rows of some tables, or may; their numbers begin with 1.

        All tables are asked for when none is given; each costs several requests to ZooKeeper.
        """
        database, found = f"{self._address.database}_shard", dict[int, list[bool]]()
        for host in self._address.hosts:  # one after the other: this may run on one of the threads
            shard, _ = self._places.get(host) or self._place(host) or (0, 0)
            with suppress(EngineError), closing(self._pool.connect(only=host, database=database)) as session:
                found.setdefault(shard, []).append(bool(session.query(dialect.misses_rows(tables)).one("behind")))
        return [shard for shard, replicas in sorted(found.items()) if shard and all(replicas)]

    def cluster_state(self) -> ClusterState | None:
        """Ask every server of the address whether it is there, and one of them for the shards and ZooKeeper."""
        if self._cluster is None:
            return None
        down = tuple(f"{host}:{port}" for host, port in self._address.hosts if not self._answers((host, port)))
        try:
            missing = tuple(self.shards_away())
        except EngineError:
            missing = tuple(range(1, self.shards + 1))
        self._learn_levels()
        return ClusterState(self.shards, missing, len(self._address.hosts), down, self._has_zookeeper())

    def _answers(self, host: tuple[str, int]) -> bool:
        try:
            self._pool.connect(only=host).close()
        except EngineError:
            return False
        return True

    def _has_zookeeper(self) -> bool:
        try:
            self._ask("SELECT count() AS held FROM system.zookeeper WHERE path = '/'")
        except EngineError as error:
            return error.code == NETWORK_ERROR  # the server is unavailable, and says nothing of ZooKeeper
        return True

    def query_all(self, sql: str) -> list[Answer]:
        """Return the one answer there is."""
        return [self.query(sql)]

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Answer several questions at once."""
        futures = [self._threads.submit(contextvars.copy_context().run, self.query, each) for each in questions]
        return [each.result() for each in futures]

    def insert(self, table: str, block: Block) -> None:
        """Add rows as one block."""
        with self._pool.lend() as session:
            session.insert(table, block)

    @contextmanager
    def ask(self, sql: str, limits: Limits, stop: Stop | None = None) -> Iterator[RowStream]:
        """Run a user-supplied SELECT on a connection of its own that can neither write nor change a setting."""
        stop, mark = stop or Stop(), secrets.token_hex(8)
        settings = {**self._guarded(limits), **self._skipping()}
        with closing(self._sql_pool.connect()) as session, stop.calls(lambda: self._kill(session, mark)):
            try:
                rows = session.rows(sql, settings, mark)
                head = next(rows)
                yield row_stream(head, readable_rows(head, rows, limits.row), limits.rows)
            except EngineError as error:
                raise EngineError("the query was cancelled", CANCELLED) if stop.wanted else error from None

    def _guarded(self, limits: Limits) -> dialect.Settings:
        """The settings of a user-supplied query; a user that is read-only already may not say so again."""
        settings = self._dialect.guarded(limits)
        if not self._address.sql_user:
            return settings
        return {name: value for name, value in settings.items() if name != "readonly"}

    def _skipping(self) -> dialect.Settings:
        """Note the shards that are down or behind, if an answer may lack any; the setting by which it is given then."""
        if self._cluster is None or missing_allowed() is None:
            return {}
        away = self.shards_away()
        self._note([*away, *self._shards_behind(), *self._levels.behind(self._read_levels())])
        return dialect.SKIPPING if away else {}

    def _kill(self, session: Session, mark: str) -> None:
        """End a query of a user: here at once, and on its server, which does not notice that the client is gone."""
        session.cut()
        with suppress(EngineError), closing(self._pool.connect(only=session.host)) as other:
            other.execute(f"KILL QUERY WHERE query_id = '{mark}' ASYNC")

    def tree(self, sql: str) -> str | None:
        """Show the syntax tree of a statement; None where the server has no EXPLAIN AST."""
        if not self.modern:
            return None
        with closing(self._sql_pool.connect()) as session:
            found = session.query(f"EXPLAIN AST {sql}", self._guarded(Limits()))
        return "\n".join(line for lines in found.columns.values() for line in lines)

    def check(self, table: str) -> list[str]:
        """Verify the checksums of every part of a table, where the server can."""
        if not self.modern:
            return []
        with self._pool.lend() as session:
            found = session.query(f"CHECK TABLE {table}", {"check_query_single_value_result": 0})
        return [f"{table}: part {part}: {why}" for part, good, why in found.rows() if not good]

    def settle(self, tables: Sequence[str]) -> None:
        """Wait until the replicas that are read have all that ZooKeeper knows of; one server has everything."""
        if self._cluster is not None:
            catch_up(self.query, tables, self._sleep)

    def drop_unregistered(self) -> None:
        """Do nothing: one server has no replicas, and those of a cluster are asked shard by shard."""

    def shard(self, index: int) -> Tables:
        """The tables of one shard on its own servers; one server is one shard."""
        return self._shard_tables[index] if self._shard_tables else self

    def _tables_of(self, index: int) -> ShardTables:
        return ShardTables(partial(self._pool_of_shard, index), self, sleep=self._sleep)

    def _pool_of_shard(self, index: int) -> Pool | None:
        """Connections to the servers of a shard, that which is read first; None when the address names none of them.

        EngineError, which passes, while it may name some that do not answer.
        """
        unknown = [host for host in self._address.hosts if host not in self._places]
        for host, place in zip(unknown, self._threads.map(self._place, unknown), strict=True):
            if place is not None:
                self._places[host] = place
        there = {host: replica for host, (shard, replica) in self._places.items() if shard == index + 1}
        if not there:
            if len(self._places) < len(self._address.hosts):
                raise EngineError(f"no server of shard {index + 1} answers", NETWORK_ERROR)
            return None
        reading = self._pool.first
        hosts = tuple(sorted(there, key=lambda host: (host != reading, there[host])))
        brief = max(self._address.lease / BEATS, 1.0)
        address = replace(
            self._address,
            hosts=hosts,
            database=f"{self._address.database}_shard",
            connect_timeout=min(self._address.connect_timeout, brief),
            silence=float(self._address.lease),
        )
        return Pool(address, {**self._pool.settings, **self._dialect.without_waiting})

    def _place(self, host: tuple[str, int]) -> tuple[int, int] | None:
        """The shard and the replica that a server is; None when it does not answer."""
        try:
            with closing(self._pool.connect(only=host, database="")) as session:
                found = session.query(dialect.place_in(self._address.cluster))
        except EngineError:
            return None
        return next(iter(found.rows("shard", "replica")), (0, 0))

    def close(self) -> None:
        """Wait for what is under way and close every connection."""
        self._threads.shutdown()
        self._pool.close()
        for each in self._shard_tables:
            each.close()


def _was_added(sql: str, error: EngineError) -> bool:
    """Return whether a column is there already: another hub, or an upgrade that was cut short, has added it."""
    return " ADD COLUMN " in sql and "already exists" in error.cause


def _shards(session: Session, cluster: str) -> int:
    """Count the shards of a cluster; ConfigError when the server does not know it, or weighs its shards."""
    known = session.query(
        f"""SELECT toUInt32(max(shard_num)) AS shards, max(shard_weight) AS heaviest FROM system.clusters
        WHERE cluster = {literal.text(cluster)}"""
    )
    if not known.one("shards"):
        raise ConfigError(f"the server has no cluster {cluster!r} in its configuration: see system.clusters")
    if known.one("heaviest") > 1:
        raise ConfigError(f"the shards of the cluster {cluster!r} have different weights: set all to 1")
    return int(known.one("shards"))
