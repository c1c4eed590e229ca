"""Our statements as a cluster runs them: replicated tables on every shard, and Distributed tables of the same names."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from stepscope.hub.store.schema import BY_SERIES

_CREATE = re.compile(
    r"CREATE TABLE IF NOT EXISTS (?P<name>\w+) (?P<columns>\(.*\))\s+ENGINE = (?P<engine>\w+)(?:\((?P<args>\w+)\))?"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_VIEW = re.compile(
    r"CREATE MATERIALIZED VIEW IF NOT EXISTS (?P<name>\w+) TO (?P<to>\w+) AS\s(?P<select>.*)\sFROM (?P<of>\w+)"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_CHANGE = re.compile(r"(?P<verb>ALTER|OPTIMIZE) TABLE (?P<name>\w+) (?P<rest>.*)", re.DOTALL)
_OF_NO_RUN = ("versions", "members", "migrations", "documents")
_OF_A_SHARD = ("leases", "aborted")
_SYSTEM = re.compile(r"\bsystem\.(parts|mutations|replicas)\b")


@dataclass(frozen=True, slots=True)
class ClusterSql:
    """Translates what this package says to one server; anything else is left as it is.

    Every table is sharded by the number of the run, so that the rows of a run are on one shard; what belongs to no run
    is on the first.
    """

    cluster: str
    database: str

    @property
    def shard(self) -> str:
        """The database of the tables that hold the rows of a shard."""
        return f"{self.database}_shard"

    def databases(self) -> list[str]:
        """The statements that make the databases."""
        names = (self.database, self.shard)
        return [f"CREATE DATABASE IF NOT EXISTS {name} ON CLUSTER {self.cluster}" for name in names]

    @property
    def servers(self) -> str:
        """A Distributed table over what every server knows of the cluster.

        The function `cluster` takes the columns from the first shard, and fails when that one is unavailable.
        """
        return f"{self.database}.cluster_servers"

    def make_servers(self) -> str:
        """The statement that makes it."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.servers} ON CLUSTER {self.cluster} "
            f"(cluster String, shard_num UInt32, is_local UInt8) ENGINE = Distributed({self.cluster}, system, clusters)"
        )

    def statements(self, sql: str) -> list[str]:
        """The statements that take the place of one, in order."""
        forms: list[tuple[re.Pattern[str], Callable[[re.Match[str]], list[str]]]] = [
            (_CREATE, self._create),
            (_VIEW, self._view),
            (_CHANGE, self._change),
        ]
        for form, make in forms:
            if found := form.fullmatch(sql):
                return make(found)
        return [sql]

    def made_by(self, sql: str) -> tuple[str, str] | None:
        """The database and the table that a statement makes last; None when it makes none."""
        if found := _CREATE.fullmatch(sql):
            return self.database, found["name"]
        found = _VIEW.fullmatch(sql)
        return (self.shard, found["name"]) if found else None

    def query(self, sql: str) -> str:
        """A SELECT: what is asked of the server's own tables is asked of one replica of every shard."""
        if not _SYSTEM.search(sql):
            return sql
        found = _SYSTEM.sub(rf"cluster('{self.cluster}', system, \1)", sql)
        return found.replace("currentDatabase()", f"'{self.shard}'")

    def _create(self, found: re.Match[str]) -> list[str]:
        name, columns, engine, args, rest = found.group("name", "columns", "engine", "args", "rest")
        if engine != "Null":
            given = f", {args}" if args else ""
            engine = f"Replicated{engine}('/clickhouse/tables/{{shard}}/{self.shard}/{name}', '{{replica}}'{given})"
        place = f"{self.shard}.{name}"
        made = f"CREATE TABLE IF NOT EXISTS {place} ON CLUSTER {self.cluster} {columns} ENGINE = {engine}{rest}"
        return [made, self._distributed(name)]

    def _distributed(self, name: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.database}.{name} ON CLUSTER {self.cluster} AS {self.shard}.{name} "
            f"ENGINE = Distributed({self.cluster}, {self.shard}, {name}, {_sharding(name)})"
        )

    def _view(self, found: re.Match[str]) -> list[str]:
        name, to, select, of, rest = found.group("name", "to", "select", "of", "rest")
        return [
            f"CREATE MATERIALIZED VIEW IF NOT EXISTS {self.shard}.{name} ON CLUSTER {self.cluster} "
            f"TO {self.shard}.{to} AS {select} FROM {self.shard}.{of}{rest}"
        ]

    def _change(self, found: re.Match[str]) -> list[str]:
        verb, name, rest = found.group("verb", "name", "rest")
        made = [f"{verb} TABLE {self.shard}.{name} ON CLUSTER {self.cluster} {rest}"]
        if rest.startswith("ADD COLUMN"):  # a Distributed table holds no rows, and takes the columns of the others
            made += [f"DROP TABLE IF EXISTS {self.database}.{name} ON CLUSTER {self.cluster}", self._distributed(name)]
        return made


def _sharding(table: str) -> str:
    """The number of the run in a row, or of a shard; 0 where a row belongs to neither."""
    if table in _OF_NO_RUN:
        return "0"
    if table in _OF_A_SHARD:
        return "shard"
    return "bitShiftRight(series, 32)" if table in (*BY_SERIES, "totals_in") else "run"
