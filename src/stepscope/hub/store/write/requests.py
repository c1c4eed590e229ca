"""Requests of clients that do not number their batches: a retry is recognised by its bytes, also by a later process."""

from collections.abc import Callable, Iterable, Sequence

from stepscope.hub.store import literal, schema
from stepscope.hub.store.columns import Block, numbers
from stepscope.hub.store.engine import Engine, Tables
from stepscope.model.ports import Batch

TABLE = "requests"
KEPT_NS = 3600 * 1_000_000_000
"""How long a request is remembered: a client gives up after minutes."""
_COLUMNS = """(run UInt32, writer UInt64, request UInt64, commit UInt32, received Int64)
    ENGINE = MergeTree ORDER BY (writer, received)"""
_MAX_KNOWN = 500_000
"""When more than this are cached, the cache is cleared."""


Stored = tuple[int, int, int]
"""The numbers of a run, a writer and a request, which is 0 when it is not known."""


class Requests:
    """The requests of a shard that were stored lately, each with the writer of its records.

    Their rows are written before the ledger entry of their commit, and do not count when that commit was aborted.
    """

    def __init__(self, engine: Tables) -> None:
        self._engine = engine
        self._known: dict[int, set[int]] = {}
        self._size = 0
        self._expire_at = 0

    def load(self, batches: Iterable[tuple[int, Batch]], aborted: Sequence[int], now: int) -> None:
        """Look up the requests of writers, given with their batches."""
        missing = {writer for writer, batch in batches if batch.request and writer not in self._known}
        if not missing:
            return
        valid = f"commit NOT IN {literal.integers(aborted)}" if aborted else "1"
        found = self._engine.query_all(
            f"""SELECT writer, request FROM {TABLE} WHERE writer IN {literal.integers(missing)}
            AND received > {now - KEPT_NS} AND {valid}"""
        )
        self._known.update((writer, set()) for writer in missing)
        for writer, request in (row for answer in found for row in answer.rows("writer", "request")):
            self._known[writer].add(request)
            self._size += 1

    def seen(self, writer: int, request: int) -> bool:
        """Return whether the records of a request are stored; its writer must have been loaded."""
        return request in self._known.get(writer, ())

    def blocks(self, stored: Sequence[Stored], commit: int, received: int) -> dict[str, Block]:
        """Make the rows of a commit."""
        rows = [each for each in stored if each[2]]
        return {TABLE: _block(rows, commit, received)} if rows else {}

    def accept(self, stored: Iterable[Stored]) -> None:
        """Remember requests that are now stored."""
        if self._size > _MAX_KNOWN:
            self.forget()
        for _, writer, request in stored:
            if request and writer in self._known:
                self._known[writer].add(request)
                self._size += 1

    def expire_if_due(self, now: int, guard: Callable[[], None]) -> None:
        """Delete requests that no client repeats any more, once in the time for which they are kept."""
        if now < self._expire_at:
            return
        old = f"received < {now - KEPT_NS}"
        if self._engine.query(f"SELECT count() AS found FROM {TABLE} WHERE {old}").one("found"):
            guard()
            self._engine.execute(f"ALTER TABLE {TABLE} DELETE WHERE {old}")
        self._expire_at = now + KEPT_NS

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()
        self._size = 0


def prepare(engine: Engine) -> None:
    """Create the table if it is missing."""
    schema.create(engine, TABLE, _COLUMNS)


def _block(rows: Sequence[Stored], commit: int, received: int) -> Block:
    return {
        "run": numbers("UInt32", [row[0] for row in rows]),
        "writer": numbers("UInt64", [row[1] for row in rows]),
        "request": numbers("UInt64", [row[2] for row in rows]),
        "commit": numbers("UInt32", [commit] * len(rows)),
        "received": numbers("Int64", [received] * len(rows)),
    }
