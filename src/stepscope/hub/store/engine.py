"""The interface to a database: run a statement, query and insert columns, say what of a cluster answers or is away."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from stepscope.hub.store.columns import Answer, Block
from stepscope.model.errors import StepscopeError

_PASSING = frozenset((159, 202, 209, 210, 225, 241, 242, 243, 252, 279, 285, 319, 341, 369, 394, 439, 999))
"""ClickHouse's codes for: too slow, too busy, no memory, read-only, no space, too many parts, unfinished; servers or
ZooKeeper that do not answer, replicas that are behind, and an insert whose outcome is unknown."""
AWAY = frozenset((209, 210, 279))
"""ClickHouse's codes for a server that does not answer another one."""
BEHIND = 369
"""ClickHouse's code for a shard of which each replica takes itself to be behind."""
CANCELLED = 394
_OF_THE_STATEMENT = frozenset((159, 241, CANCELLED))
"""Those of a statement that takes too long or too much memory, or was cancelled."""
_FULL = frozenset((243,))
_STARVED = frozenset((173, 241))
_DAMAGED = frozenset((40, 226, 228, 246, 261, 271, 432))
"""ClickHouse's codes for: a checksum that does not match, files of a part that are missing or of another size, data
that is corrupted, too large, cannot be unpacked or names no codec."""
_CUT = frozenset((32, 33, 107))
"""The same codes while a part is unpacked; elsewhere they mean truncated user input or another file."""
_UNPACKED = "reading or decompressing"
_NO_SPACE = ("No space left", "errno: 28", "Disk quota exceeded", "errno: 122")
_FORBIDDEN = ("Permission denied", "errno: 13", "Read-only file system", "errno: 30", "Operation not permitted")
_BLOCK_BYTES = 256 * 1024
_OCTETS = re.compile(r"(?:(?:Array|Nullable|LowCardinality)\()*FixedString\(\d+\)+")
"""Types of ids, and of lists of them."""
Head = Sequence[tuple[str, str]]
"""The names and types of columns."""


class EngineError(StepscopeError):
    """The database rejected a statement; `code` is ClickHouse's, 0 when it gave none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.cause = message
        """The message of the database."""

    @property
    def full(self) -> bool:
        """Whether the disk is full."""
        return self.code in _FULL or any(words in self.cause for words in _NO_SPACE)

    @property
    def starved(self) -> bool:
        """Whether there was too little memory."""
        return self.code in _STARVED

    @property
    def forbidden(self) -> bool:
        """Whether file permissions forbid it."""
        return any(words in self.cause for words in _FORBIDDEN)

    @property
    def passing(self) -> bool:
        """Whether the same statement may succeed later."""
        return self.code in _PASSING or self.full

    @property
    def unavailable(self) -> bool:
        """Whether the same statement may succeed later because the database failed, not the statement."""
        return self.passing and self.code not in _OF_THE_STATEMENT


class Damaged(EngineError):
    """The data to read is damaged on disk, so a retry fails too."""

    def __init__(self, cause: str, code: int = 0) -> None:
        super().__init__(
            "a part of the store is damaged and what it holds cannot be read: stop the hub and run "
            "`stepscope store check`, which says which part it is and what to do",
            code,
        )
        self.cause = cause


def refusal(message: str, code: int = 0) -> EngineError:
    """Convert an error of the database to the matching exception."""
    damaged = code in _DAMAGED or (code in _CUT and _UNPACKED in message)
    return Damaged(message, code) if damaged else EngineError(message, code)


@dataclass(slots=True)
class RowStream:
    """The result of a user-supplied query, read in blocks of rows, with printable values of any type."""

    names: list[str]
    types: list[str]
    """ClickHouse's type names of the columns."""
    blocks: Iterator[list[list[Any]]]
    """At most `Limits.rows` rows in all; EngineError when the query exceeds another limit."""
    more: bool = False
    """Whether there were more rows; known when `blocks` has ended."""


GUARDS: Mapping[str, int | str] = {
    "timeout_overflow_mode": "throw",
    "max_block_size": 2048,
    "max_ast_depth": 200,
    "max_ast_elements": 5000,
    "max_subquery_depth": 20,
    "max_columns_to_read": 500,
    "max_bytes_before_external_group_by": 0,
    "max_bytes_before_external_sort": 0,
}
"""Settings of user-supplied queries on every engine: exceeding one is an error, before the result is built."""
TABLE_SETTINGS: Mapping[str, int] = {
    "fsync_after_insert": 1,
    "fsync_part_directory": 1,
    "min_rows_to_fsync_after_merge": 1,
    "old_parts_lifetime": 60,
    "concurrent_part_removal_threshold": 1_000_000,
}
"""Settings of every table with rows. By the first four they survive a power failure, too: inserted and merged data is
on disk before what it replaces is removed.

Without the last, a hundred merged parts are removed by 128 threads, which the engine keeps for ever, each with up to
some megabytes. The embedded engine has no other way to limit them: its size of that pool has no effect.
"""


def listed(settings: Mapping[str, int]) -> str:
    """Write settings as statements have them."""
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a user-supplied query; the engine itself enforces rows, seconds and memory."""

    rows: int = 10_000
    seconds: float = 10.0
    memory: int = 256 * 1024 * 1024
    """Bytes in the engine, the rows that wait to be read included."""
    row: int = 8 * 1024 * 1024
    """Bytes of one row of the answer as JSON."""
    row_values: int = 500_000
    """Values in one row, those inside lists and maps included."""


class Stop:
    """Cancels a query from another thread. `set` may be called before the query begins or after it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Callable[[], object]] = []
        self.wanted = False

    def set(self) -> None:
        """Cancel the query, and every later one that gets this."""
        with self._lock:
            self.wanted = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    @contextmanager
    def calls(self, call: Callable[[], object]) -> Iterator[None]:
        """While this is open, `set` calls `call`; EngineError when it was set before."""
        with self._lock:
            if self.wanted:
                raise EngineError("the query was cancelled", CANCELLED)
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock:
                if call in self._calls:
                    self._calls.remove(call)


class MissingShards:
    """The shards that the answers of one request lack; their numbers begin with 1. Safe from several threads."""

    def __init__(self) -> None:
        self._numbers: frozenset[int] = frozenset()
        self.shards = 0
        """How many shards there are; 0 while none is missing."""

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def numbers(self) -> list[int]:
        """The missing ones, in order."""
        return sorted(self._numbers)

    def add(self, numbers: Iterable[int], shards: int) -> None:
        """Note that some of all shards are missing."""
        self._numbers, self.shards = self._numbers.union(numbers), shards

    def __str__(self) -> str:
        named = ", ".join(map(str, self.numbers))
        return f"shard{'s' if len(self._numbers) > 1 else ''} {named} of {self.shards}"


_allowed: ContextVar[MissingShards | None] = ContextVar("stepscope_missing_shards", default=None)


@contextmanager
def partial_answers(found: MissingShards | None = None) -> Iterator[MissingShards]:
    """Allow answers that lack shards, inside this context, and collect which."""
    found = MissingShards() if found is None else found
    token = _allowed.set(found)
    try:
        yield found
    finally:
        _allowed.reset(token)


def missing_allowed() -> MissingShards | None:
    """Where to note the shards that an answer lacks; None where every answer must be complete or an error."""
    return _allowed.get()


class ClusterState(Struct, frozen=True):
    """The state of a cluster as one hub sees it."""

    shards: int
    missing_shards: tuple[int, ...] = ()
    """Shards of which no replica answers; their numbers begin with 1."""
    servers: int = 0
    """The servers of the store's address."""
    servers_down: tuple[str, ...] = ()
    zookeeper: bool = True
    """Whether ZooKeeper, or Keeper, answers the servers."""

    @property
    def problem(self) -> str:
        """What does not work, and what follows from it; empty when all works."""
        if self.missing_shards:
            named = ", ".join(map(str, self.missing_shards))
            return (
                f"shard {named} of {self.shards} does not answer: its runs are missing from answers, which say so, "
                "and new records of them wait in the journals"
            )
        if not self.zookeeper:
            return "ZooKeeper does not answer the servers: nothing is stored until it is back, reads go on"
        if self.servers_down:
            return f"{len(self.servers_down)} of {self.servers} servers do not answer: {', '.join(self.servers_down)}"
        return ""


class Tables(Protocol):
    """Tables of a database with ClickHouse's SQL. Safe to use from several threads at once."""

    def execute(self, sql: str) -> None:
        """Run a statement and wait until its effect is complete, mutations included."""

    def query(self, sql: str) -> Answer:
        """Run a SELECT and return its columns."""

    def query_all(self, sql: str) -> list[Answer]:
        """Run a SELECT on every replica that answers: a row that one of them took is in one of the answers."""

    def insert(self, table: str, block: Block) -> None:
        """Insert rows. On return they survive the death of this process; after an error some may be stored."""

    def settle(self, tables: Sequence[str]) -> None:
        """Wait until every row that a replica took can be read here; EngineError, which passes, if that takes long."""

    def drop_unregistered(self) -> None:
        """Drop the rows that one replica alone has, after an insert that failed, of every replica that answers."""


class Engine(Tables, Protocol):
    """A whole database, with all of its shards."""

    version: str
    modern: bool
    """Whether codecs, skip indexes and table settings newer than ClickHouse 18.16 can be used."""

    shards: int
    """How many servers share the rows; those of a run are on one: its number modulo this."""

    def shard(self, index: int) -> Tables:
        """The tables with the rows of one shard, which work while others are down; all tables where there is one."""

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Run several SELECTs, concurrently where the engine can, and return their columns."""

    def ask(self, sql: str, limits: Limits, stop: Stop | None = None) -> AbstractContextManager[RowStream]:
        """Run a user-supplied SELECT in a session that cannot write; leaving the context ends the query."""

    def tree(self, sql: str) -> str | None:
        """Return how this engine parses a statement, without running it; None when it cannot."""

    def check(self, table: str) -> list[str]:
        """Describe the damage in a table."""

    def cluster_state(self) -> ClusterState | None:
        """What of a cluster answers; None when the store is not on one. May take seconds."""

    def note_commit(self, shard: int, commit: int) -> None:
        """Note that a commit to a shard is complete, so that an answer that lacks it is recognised."""

    def close(self) -> None:
        """Close the engine."""


def row_stream(head: Head, rows: Iterable[tuple[list[Any], int]], most: int) -> RowStream:
    """Make the answer of rows, each with its size in bytes, which are read as they are wanted; `most` of them."""

    def blocks() -> Iterator[list[list[Any]]]:
        block: list[list[Any]] = []
        size = count = 0
        for row, bytes in rows:
            if count == most:
                stream.more = True
                break
            block.append(row)
            size, count = size + bytes, count + 1
            if size >= _BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    stream = RowStream([name for name, _ in head], [type for _, type in head], blocks())
    return stream


def holds_octets(type: str) -> bool:
    """Return whether a column holds ids, which are shown in hexadecimal."""
    return _OCTETS.fullmatch(type) is not None


def too_long(most: int) -> EngineError:
    """The refusal of a row with more bytes."""
    return EngineError(f"a row of the answer is larger than {most >> 20} MiB")
