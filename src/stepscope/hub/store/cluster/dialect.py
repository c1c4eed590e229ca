"""What old and new ClickHouse servers say differently: settings, and the waiting for mutations."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepscope.hub.store import literal
from stepscope.hub.store.engine import GUARDS, EngineError, Limits

Settings = Mapping[str, int | str]
MODERN = (21, 8)
"""The first version with codecs per column, fsync settings, `mutations_sync` and EXPLAIN AST."""
TIMEOUT = 159
_RECENT_SECONDS = 60
"""A mutation that was not done for so long may never be."""
_UNFINISHED_HOSTS = re.compile(
    r"There are (\d{1,9}) unfinished hosts \((\d{1,9}) of them are currently (?:active|executing the task)"
    r"(?:, (\d{1,9}) are inactive)?\)"
)
"""What old and new servers say of a statement for the cluster that takes too long."""
_MUTATION = re.compile(r"\s*ALTER\s+TABLE\s+(\w+)\s+(?:DELETE|UPDATE)\b", re.IGNORECASE)
_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_BEHIND = "inserts_in_queue > 0 OR (log_pointer <= log_max_index AND log_max_index > 0)"
"""A log with one entry looks like an empty one, so that the very first insert is not waited for."""
_NEVER = 1_000_000_000
"""A server that has not asked ZooKeeper since its start is behind by all seconds since 1970."""

_ALWAYS: Settings = {"insert_deduplicate": 0}
"""A commit that was taken back is written again as the same rows, which must not be taken for a repetition."""
_NEW: Settings = {"mutations_sync": 1, "alter_sync": 1, "low_cardinality_allow_in_native_format": 0}
_CLUSTER: Settings = {
    "insert_distributed_sync": 1,
    "distributed_product_mode": "local",
    "load_balancing": "in_order",
    "distributed_ddl_task_timeout": 60,
    "max_replica_delay_for_distributed_queries": 1,
    "receive_timeout": 60,
    "send_timeout": 60,
}
"""An insert is on its shards when it returns; subqueries stay on the shard of their run; what was written is read.

A replica that knows that it is behind by more than a second is not read while there is another one. A server that
hangs is left by the others after a minute.
"""
CURRENT: Settings = {"fallback_to_stale_replicas_for_distributed_queries": 0}
"""A query of a shard of which each replica is behind by more than a second is an error."""
SKIPPING: Settings = {"skip_unavailable_shards": 1}
_GUARDED: Settings = {"readonly": 1, **GUARDS}
_GUARDED_NEW: Settings = {
    "result_overflow_mode": "throw",
    "function_range_max_elements_in_block": 20_000_000,
    "allow_introspection_functions": 0,
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a server of some version understands."""

    modern: bool

    def settings(self, memory: int, threads: int, *, cluster: bool) -> Settings:
        """The settings of every statement of ours."""
        limits: Settings = {"max_threads": threads, "max_memory_usage": memory}
        return {**_ALWAYS, **limits, **(_NEW if self.modern else {}), **(_CLUSTER if cluster else {})}

    @property
    def without_waiting(self) -> Settings:
        """The settings by which a mutation returns before it is done."""
        return {"mutations_sync": 0} if self.modern else {}

    def guarded(self, limits: Limits) -> Settings:
        """The settings of a user-supplied query. An old server stops after the block with the last row wanted."""
        shared: Settings = {**_GUARDED, "max_memory_usage": limits.memory}
        if self.modern:
            return {**shared, **_GUARDED_NEW, "limit": limits.rows + 1, "max_execution_time": str(limits.seconds)}
        most: Settings = {"max_result_rows": limits.rows + 1, "result_overflow_mode": "break"}
        return {**shared, **most, "max_execution_time": math.ceil(limits.seconds)}


def of(version: tuple[int, ...]) -> Dialect:
    """The dialect of a server."""
    return Dialect(version >= MODERN)


def alters(sql: str) -> bool:
    """Return whether a statement changes a table."""
    return sql.lstrip().startswith("ALTER TABLE ")


def mutated(sql: str) -> str | None:
    """The table whose rows a statement changes in the background; None when it is another statement."""
    found = _MUTATION.match(sql)
    return found[1] if found else None


def is_queued(error: EngineError) -> bool:
    """Return whether a statement for the cluster was done by every server but those that are down, which will do it."""
    found = _UNFINISHED_HOSTS.search(error.cause) if error.code == TIMEOUT else None
    if found is None:
        return False
    unfinished, busy, inactive = (int(each) if each else None for each in found.groups())
    return busy == 0 and inactive in (None, unfinished)


def unfinished(table: str) -> str:
    """The query for how many mutations of a table are left to do."""
    return (
        "SELECT count() AS left FROM system.mutations "
        f"WHERE database = currentDatabase() AND table = {literal.text(table)} AND NOT is_done"
    )


def mutations(table: str) -> str:
    """The query for the newest mutation of a replicated table, and how many are left to do, all and recent ones.

    A server lists one mutation at least as long as another one is not done.
    """
    left = "NOT is_done"
    return (
        f"SELECT max(mutation_id) AS newest, countIf({left}) AS left, "
        f"countIf({left} AND create_time > now() - {_RECENT_SECONDS}) AS recent FROM system.mutations "
        f"WHERE database = currentDatabase() AND table = {literal.text(table)}"
    )


def replicated_tables() -> str:
    """The query for the tables of a database that have replicas."""
    return "SELECT table FROM system.replicas WHERE database = currentDatabase()"


def replicas_behind(tables: Sequence[str]) -> str:
    """The query for how many replicas of some tables miss rows that another one took, or cannot write."""
    return (
        f"SELECT countIf(is_readonly OR {_BEHIND}) AS behind "
        f"FROM system.replicas WHERE database = currentDatabase() AND table IN {literal.texts(tables)}"
    )


def misses_rows(tables: Sequence[str]) -> str:
    """The query for how many of some tables of a server, or of all, lack rows that another one took, or may.

    One that has just been started may. Without ZooKeeper a server knows only what it was about to fetch, and no server
    takes rows.
    """
    return (
        f"SELECT countIf({_BEHIND} OR absolute_delay > {_NEVER}) AS behind "
        "FROM system.replicas WHERE database = currentDatabase()"
        + (f" AND table IN {literal.texts(tables)}" if tables else "")
    )


def tables_read(sql: str) -> list[str]:
    """The names of the tables that a query of ours reads, itself or in a subquery."""
    return sorted(set(_READ.findall(sql)))


def read_only_tables() -> str:
    """The query for how many replicated tables of a server cannot be written, as without ZooKeeper."""
    return "SELECT countIf(is_readonly) AS held FROM system.replicas WHERE database = currentDatabase()"


def place_in(cluster: str) -> str:
    """The query for the shard of a server, and which of its replicas it is; their numbers begin with 1."""
    return (
        "SELECT toUInt32(shard_num) AS shard, toUInt32(replica_num) AS replica FROM system.clusters "
        f"WHERE cluster = {literal.text(cluster)} AND is_local"
    )


def living_shards(cluster: str, table: str) -> str:
    """The query for the numbers of the shards of which a replica answers: each server knows which one it is."""
    return f"SELECT DISTINCT shard_num AS shard FROM {table} WHERE cluster = {literal.text(cluster)} AND is_local"


def newest_commits(shards: int) -> str:
    """The query for the newest commit of each shard that has any: every shard numbers its own."""
    return f"SELECT run % {shards} AS shard, max(commit) AS newest FROM ledger GROUP BY shard"


def databases(names: Sequence[str]) -> str:
    """The query for how many of some databases a server has."""
    return f"SELECT count() AS found FROM system.databases WHERE name IN {literal.texts(names)}"


def tables(database: str, name: str) -> str:
    """The query for whether a server has a table."""
    return (
        "SELECT count() AS found FROM system.tables "
        f"WHERE database = {literal.text(database)} AND name = {literal.text(name)}"
    )
