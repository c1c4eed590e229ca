"""The embedded engine: chDB, the ClickHouse engine in a wheel, on one folder."""

import json
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from stepscope.hub.store import columns
from stepscope.hub.store.columns import Answer, AnswerCache, Block, rows_of
from stepscope.hub.store.engine import (
    GUARDS,
    TABLE_SETTINGS,
    EngineError,
    Head,
    Limits,
    RowStream,
    Stop,
    holds_octets,
    listed,
    refusal,
    row_stream,
    too_long,
)
from stepscope.model.errors import ConfigError

DATABASE = "stepscope"
MEGA = 1024 * 1024
NOT_ENOUGH_SPACE = 243
_CODE = re.compile(r"Code: (\d+)\. DB::(?:Exception|ErrnoException): (.*)", re.DOTALL)
_part_lines = msgspec.json.Decoder(list[Any])
_LINE_BYTES = 4096
_SERVER = {
    "background_pool_size": 2,
    "background_schedule_pool_size": 2,
    "background_common_pool_size": 2,
    "memory_worker_period_ms": 500,
    "max_thread_pool_free_size": 8,
    "max_unexpected_parts_loading_thread_pool_size": 2,
    "mark_cache_size": 32 * MEGA,
    "primary_index_cache_size": 16 * MEGA,
    "index_mark_cache_size": 4 * MEGA,
    "query_condition_cache_size": MEGA // 2,
    "compiled_expression_cache_size": 4 * MEGA,
    "parquet_metadata_cache_size": MEGA,
}
"""Small pools and caches: the hub shares its machine with a training job.

Caches keep entries of merged parts until they are full; marks of a billion points take 20 MB. An entry of the cache of
query conditions counts as 64 bytes and takes 210 to 240: in an hour of ingest it gets as many as 13,000.
"""
_PAUSES = {
    "background_processing_pool_thread_sleep_seconds_if_nothing_to_do": 5,
    "background_processing_pool_task_sleep_seconds_when_no_work_random_part": 5,
    "background_streaming_processing_pool_thread_sleep_seconds_if_nothing_to_do": 60,
    "background_streaming_processing_pool_task_sleep_seconds_when_no_work_random_part": 60,
}
"""Seconds until each table is looked at again for merges, of which an insert and the end of a merge remind anyway, and
for streaming queries, of which there are none. It would begin with every 0.1 s, for each of 20 tables.
"""
_TURNS = 8
"""Queries that run at once; others wait, and writing and user-supplied queries do not. The engine starts threads for
each query and keeps them for ever, with the memory that they had: sixty at once leave 180 threads and 280 MB.
"""
_ALLOCATOR = "dirty_decay_ms:500,lg_tcache_max:11,tcache_nslots_small_min:4,tcache_nslots_small_max:32"
"""Settings of the engine's allocator, which reads them when it is loaded.

Freed pages go back after half a second. By default they are kept for five, and a hub that is asked every few seconds
keeps what its largest question needed. A thread keeps freed memory for itself only in pieces of up to 2 KiB, not 32,
and at most 32 pieces of a size, not 200: the engine never ends a thread, and on a busy machine it comes to have two
hundred, which by default would keep 20 MB even with pieces of up to 4 KiB.
"""
_SESSION = {
    "mutations_sync": 1,
    "alter_sync": 1,
    "insert_deduplicate": 0,
    "low_cardinality_allow_in_native_format": 0,
    "output_format_json_quote_64bit_integers": 0,
    "output_format_json_quote_denormals": 1,
    "compile_expressions": 0,
    "min_count_to_compile_aggregate_expression": 50,
    "min_count_to_compile_sort_description": 50,
    "max_threads_min_free_memory_per_thread": 0,
    "log_queries": 0,
}
"""Machine code is compiled for an aggregation only once it has run 50 times, not 3.

It saves a fifth of the CPU time of a scan over millions of points, but compiling costs more than dozens of queries
over a short run.
"""

_GUARDED = {
    **GUARDS,
    "result_overflow_mode": "throw",
    "function_range_max_elements_in_block": 20_000_000,
    "allow_introspection_functions": 0,
}
"""Settings of user-supplied queries."""


class Chdb:
    """An open folder. One per process, because the engine supports one path at a time. Connections are pooled."""

    modern = True
    shards = 1

    def __init__(self, folder: Path, *, memory: int = 2048 * MEGA, threads: int | None = None) -> None:
        self._library = _library()
        threads = threads or min(os.cpu_count() or 1, 4)
        self._where = _address(folder)
        self._server = {**_SERVER, **_PAUSES, "max_server_memory_usage": memory}
        self._session = {**_SESSION, "max_threads": threads, "max_memory_usage": memory * 3 // 4}
        self._idle: list[Any] = []
        self._turns = threading.BoundedSemaphore(_TURNS)
        self._answers = AnswerCache()  # nobody else can write in the folder
        self._lock = threading.Lock()
        self._closed = False
        self._threads = ThreadPoolExecutor(threads, "stepscope-store")
        first = self._connect()
        self.version = _run(first, "SELECT version()", "TabSeparated").decode().strip()
        _run(first, f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        self._idle.append(self._enter(first))
        self._bring_settings()

    def _bring_settings(self) -> None:
        """Give tables of earlier versions the settings with which new ones are created."""
        tables = f"FROM system.tables WHERE database = '{DATABASE}' AND engine LIKE '%MergeTree'"
        for name, full in self.query(f"SELECT name, engine_full {tables}").rows("name", "engine_full"):
            lacking = {setting: value for setting, value in TABLE_SETTINGS.items() if f"{setting} = " not in full}
            if lacking:
                self.execute(f"ALTER TABLE {name} MODIFY SETTING {listed(lacking)}")

    def execute(self, sql: str) -> None:
        """Run a statement; mutations are waited for."""
        try:
            self._command(sql)
        finally:
            self._answers.clear()

    def query(self, sql: str) -> Answer:
        """Return the columns of a SELECT, which must have the same answer as long as nothing is written."""
        answer, version = self._answers.get(sql), self._answers.version
        if answer is None:
            with self._turns, self._connection() as connection:
                answer = _run(connection, sql, "Native")
            self._answers.put(sql, answer, version)
        return columns.decode(answer)

    def query_all(self, sql: str) -> list[Answer]:
        """Return the one answer there is."""
        return [self.query(sql)]

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Run several SELECTs concurrently."""
        unknown = sum(sql not in self._answers for sql in questions)
        return list((self._threads.map if unknown > 1 else map)(self.query, questions))

    def insert(self, table: str, block: Block) -> None:
        """Add rows, handed over as a file in memory.

        Not with chDB's `send_insert`: when the disk is full it reports the rows as written and drops them (26.9).
        """
        names = ", ".join(block)
        structure = ", ".join(f"{name} {columns.type_of(column)}" for name, column in block.items())
        try:
            with _memory_file(columns.encode(block)) as path, self._connection() as connection:
                source = f"file('{path}', 'Native', '{structure}')"
                insert = f"INSERT INTO {table} ({names}) SELECT {names} FROM {source} SETTINGS max_threads = 1"
                found = _answer(connection, insert)  # more threads would only wait for the one that writes
        finally:
            self._answers.clear()
        if found.rows_written() < rows_of(block):
            raise EngineError(f"{table} took {found.rows_written()} rows of {rows_of(block)}", NOT_ENOUGH_SPACE)

    @contextmanager
    def ask(self, sql: str, limits: Limits, stop: Stop | None = None) -> Iterator[RowStream]:
        """Run a user-supplied SELECT in a separate session that can neither write nor change a setting."""
        mark = secrets.token_hex(8)
        with (
            self._guarded(limits, mark) as connection,
            (stop or Stop()).calls(lambda: self._kill(mark)),
        ):
            head = _head(connection, sql)
            with closing(_chunks(connection, sql, "JSONCompactEachRow")) as chunks:
                yield row_stream(head, _rows(head, _lines(chunks, limits)), limits.rows)

    def _kill(self, mark: str) -> None:
        """Kill the query of a marked session, if it is still running."""
        with suppress(EngineError):
            self._command(f"KILL QUERY WHERE Settings['log_comment'] = '{mark}' ASYNC")

    def tree(self, sql: str) -> str | None:
        """Return the syntax tree of a statement.

        It is user-supplied: what follows a semicolon would run, too.
        """
        with self._guarded(Limits()) as connection:
            answer = _run(connection, f"EXPLAIN AST {sql}", "JSONCompactEachRow")
        return "\n".join(_readable(_row(line)[0]) for line in answer.splitlines())

    def check(self, table: str) -> list[str]:
        """Verify the checksums of every part of a table."""
        statement = f"CHECK TABLE {table} SETTINGS check_query_single_value_result = 0"
        with self._connection() as connection:
            found = _run(connection, statement, "JSONCompactEachRow")
        return [f"{table}: part {part}: {message}" for part, good, message in _parts(found) if not good]

    def cluster_state(self) -> None:
        """Return None: there is no cluster."""

    def shard(self, index: int) -> "Chdb":
        """Return this engine: it is not divided."""
        return self

    def settle(self, tables: Sequence[str]) -> None:
        """Return at once: there are no replicas."""

    def note_commit(self, shard: int, commit: int) -> None:
        """Do nothing: every answer has what was written before."""

    def drop_unregistered(self) -> None:
        """Do nothing: there are no replicas."""

    def close(self) -> None:
        """Wait for running queries and close every connection; afterwards another process may open the folder."""
        self._closed = True
        self._answers.clear()
        self._threads.shutdown()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Lend an idle connection, or a new one."""
        if self._closed:
            raise EngineError("the store is closed")
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._enter(self._connect())
        try:
            yield connection
        finally:
            self._take_back(connection)

    def _take_back(self, connection: Any) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def _guarded(self, limits: Limits, mark: str = "") -> Iterator[Any]:
        """Open a session that is read-only until it is closed; `mark` identifies its query among the running ones."""
        settings = {
            **_GUARDED,
            "limit": limits.rows + 1,
            "max_execution_time": limits.seconds,
            "max_memory_usage": limits.memory,
            "log_comment": mark,
        }
        connection = self._enter(self._connect(settings))
        try:
            _run(connection, "SET readonly = 1")
            yield connection
        finally:
            connection.close()
            self._return_memory()

    def _return_memory(self) -> None:
        """Return freed memory to the system, which the allocator would keep."""
        with suppress(EngineError):
            self._command("SYSTEM JEMALLOC PURGE")

    def _command(self, sql: str) -> None:
        with self._connection() as connection:
            _run(connection, sql)

    def _connect(self, extra: dict[str, Any] | None = None) -> Any:
        settings = {**self._server, **self._session, **(extra or {})}
        address = self._where + "?" + "&".join(f"{name}={value}" for name, value in settings.items())
        try:
            return self._library.connect(address)
        except RuntimeError as error:
            raise _refusal(error) from None

    def _enter(self, connection: Any) -> Any:
        _run(connection, f"USE {DATABASE}")
        return connection


def _library() -> Any:
    """Import chDB, which takes a second and brings pandas and pyarrow along."""
    os.environ.setdefault("JE_MALLOC_CONF", _ALLOCATOR)
    try:
        import chdb
    except ImportError as error:
        raise ConfigError("the hub's store needs chDB: pip install 'stepscope[hub]'") from error
    return chdb


def _address(folder: Path) -> str:
    path = str(folder.absolute())
    if set(path) & set("?&#%\n"):
        raise ConfigError(f"the store cannot be in {path!r}: choose a path without ? & # %")
    return path


def _run(connection: Any, sql: str, format: str = "Null") -> bytes:
    return bytes(_answer(connection, sql, format).bytes())


def _answer(connection: Any, sql: str, format: str = "Null") -> Any:
    with _errors():
        return connection.query(sql, format)


@contextmanager
def _errors() -> Iterator[None]:
    """Convert chDB's exceptions to EngineError."""
    try:
        yield
    except RuntimeError as error:
        raise _refusal(error) from None
    except UnicodeDecodeError as error:  # the engine quotes the statement, and with it bytes that are no UTF-8
        raise _refusal(RuntimeError(bytes(error.object).decode("utf-8", "replace"))) from None
    except Exception as error:
        if type(error).__name__ == "ChdbError":
            raise _refusal(error) from None
        raise


def _refusal(error: Exception) -> EngineError:
    found = _CODE.search(str(error))
    if found is None:
        return EngineError(str(error))
    return refusal(found[2].strip(), int(found[1]))


def _chunks(connection: Any, sql: str, format: str) -> Generator[memoryview, None, None]:
    """Yield the result as the engine builds it; closing the generator cancels the query."""
    with _errors():
        result = connection.send_query(sql, format)
    try:
        while True:
            with _errors():
                chunk = result.fetch()
            if chunk is None:
                return
            yield chunk.get_memview().view()
    finally:
        with suppress(Exception):
            result.cancel()


def _lines(chunks: Iterator[memoryview], limits: Limits) -> Iterator[bytes]:
    """Split a result into lines; EngineError for one that is too long or has too many values."""
    for chunk in chunks:  # a chunk is a block of whole rows
        start = 0
        while start < len(chunk):
            line = _line(chunk, start, limits.row)
            if len(line) > limits.row:
                raise too_long(limits.row)
            if len(line) > limits.row_values and sum(map(line.count, (b",", b"[", b"{"))) > limits.row_values:
                raise EngineError(f"a row of the answer has more than {limits.row_values} values")
            yield line
            start += len(line) + 1


def _line(chunk: memoryview, start: int, longest: int) -> bytes:
    """The line that begins at `start`, or one byte more than `longest` of it."""
    size = _LINE_BYTES
    while True:
        piece = bytes(chunk[start : start + min(size, longest + 1)])
        end = piece.find(b"\n")
        if end >= 0:
            return piece[:end]
        if size > longest or start + size >= len(chunk):
            return piece
        size *= 8


def _head(connection: Any, sql: str) -> list[tuple[str, str]]:
    """The names and types of a query's columns. A stream would repeat them in each chunk, and has none without rows."""
    described = _run(connection, f"DESCRIBE ({sql})", "JSONCompactEachRow")
    return [(_readable(name), type) for name, type, *_ in map(_row, described.splitlines())]


def _rows(head: Head, lines: Iterator[bytes]) -> Iterator[tuple[list[Any], int]]:
    """Read lines of JSON; each row with the bytes of its line."""
    octets = [holds_octets(type) for _, type in head]
    return ((list(map(_readable, _row(line), octets)), len(line)) for line in lines)


def _row(line: bytes) -> list[Any]:
    """Parse a line of JSON with arbitrary bytes in its texts; invalid UTF-8 becomes lone surrogates."""
    row: list[Any] = json.loads(line.decode("utf-8", "surrogateescape"))
    return row


def _readable(cell: Any, octets: bool = False) -> Any:
    """Make a cell readable: binary strings as hexadecimal, texts without invalid UTF-8."""
    if isinstance(cell, str):
        raw = cell.encode("utf-8", "surrogateescape")
        return raw.hex() if octets else raw.decode("utf-8", "replace")
    if isinstance(cell, list):
        return [_readable(each, octets) for each in cell]
    if isinstance(cell, dict):
        return {_readable(key): _readable(value) for key, value in cell.items()}
    return cell


def _parts(answer: bytes) -> list[tuple[str, bool, str]]:
    return [(row[0], bool(row[1]), row[2]) for row in _part_lines.decode_lines(answer)]


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """Make data readable by the engine under a path: in memory where the system can, else in a file."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    place = os.memfd_create("stepscope")
    try:
        written = 0
        while written < len(data):
            written += os.write(place, memoryview(data)[written:])
        yield f"/proc/self/fd/{place}"
    finally:
        os.close(place)
