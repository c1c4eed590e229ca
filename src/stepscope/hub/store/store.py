"""An open store: batches become rows and a ledger entry in one commit, complete or, after a crash, not at all."""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.hub.store import address, literal, schema
from stepscope.hub.store.columns import Block
from stepscope.hub.store.embedded import Chdb
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.folder import Folder, full_disk
from stepscope.hub.store.lease import Lease
from stepscope.hub.store.schema import FACTS, FOLD
from stepscope.hub.store.write import ledger as books
from stepscope.hub.store.write.catalog import Catalog, Source
from stepscope.hub.store.write.group import UNFIT, Built, build
from stepscope.hub.store.write.ledger import Entry, Ledger, writer_key
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Metric

Outcome = Reject | Retry | None
"""The outcome of a batch: None when all of it is stored."""

MOST_ROWS = 1_000_000
"""The most rows of one commit; a larger group is split."""
UNFINISHED = 341
_CHUNK = 5000

_AS_TOTALS = """SELECT series, attempt, toUInt64(1) AS points,
    toUInt8(isNaN(value) + 2 * (isInfinite(value) AND value > 0) + 4 * (isInfinite(value) AND value < 0)) AS flags,
    step AS first_step, step AS last_step, time AS first_time, time AS last_time,
    if(isFinite(value), value, 1 / 0) AS low, if(isFinite(value), value, -1 / 0) AS high,
    value AS last, step AS at_step, time AS at_time
    FROM metrics"""


class Committer:
    """The one writer of a store. Not thread-safe: callers take turns.

    The order is the promise: numbers of runs and series first (harmless when orphaned), then the rows, each with the
    commit's number, metrics before their totals, and the ledger last, in one atomic insert. A commit is complete when
    it is in the ledger. Rows with a higher number were never acknowledged; `recover` deletes them before anything else
    is written.
    """

    def __init__(self, engine: Engine, clock: Callable[[], int], allowed: Callable[[], None]) -> None:
        self._engine = engine
        self._clock = clock
        self._allowed = allowed
        """Raises EngineError when another process may write to the store."""
        self._ledger = Ledger(engine)
        self._catalog = Catalog(engine, clock)
        self._last = 0
        self._broken = True
        """Whether rows of an incomplete commit may be in the tables."""

    def write(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches and return the outcome of each; those stored before are skipped."""
        outcomes: list[Outcome] = []
        before = self._last
        for group in _portions(batches):
            try:
                outcomes += self._write(group)
            except Exception:  # raised again unless a part is stored already
                if self._last == before:
                    raise
                # What came before is safe, and its outcome must be reported; the rest fails when it is offered again.
                return outcomes + [Retry("a part of the group", after=0.0)] * (len(batches) - len(outcomes))
        return outcomes

    def _write(self, batches: Sequence[Batch]) -> list[Outcome]:
        try:
            self._allowed()
            if self._broken:
                self.recover()
            return self._commit(batches)
        except EngineError as error:
            self._broken = True
            if not error.passing:
                raise
            return [Retry(f"the store cannot take more now: {error}", after=5.0)] * len(batches)
        except BaseException:
            self._broken = True
            raise

    def _commit(self, batches: Sequence[Batch]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(batches)
        fresh = self._fresh(batches, outcomes)
        for part in self._by_shard(fresh):
            self._commit_part(batches, part, outcomes)
        if fresh:
            self._catalog.saved()
        return outcomes

    def _by_shard(self, fresh: list[tuple[int, Source]]) -> Iterable[list[tuple[int, Source]]]:
        """Divide batches by the shard of their run: an insert is atomic on one server only, and so is a commit."""
        parts: dict[int, list[tuple[int, Source]]] = {}
        for index, source in fresh:
            parts.setdefault(source.book.number % self._engine.shards, []).append((index, source))
        return parts.values()

    def _commit_part(
        self, batches: Sequence[Batch], fresh: Sequence[tuple[int, Source]], outcomes: list[Outcome]
    ) -> None:
        number = self._last + 1
        built = build(self._catalog, [(source, batches[index].records) for index, source in fresh], number)
        entries = self._entries(batches, fresh, built)
        self._insert({**self._catalog.blocks(), **built.traces})
        self._insert(built.facts)
        self._engine.insert("ledger", books.block(entries, number, self._clock()))
        self._last = number
        self._ledger.accept(entries)
        for part, refusal in built.refusals.items():
            outcomes[fresh[part][0]] = refusal

    def _fresh(self, batches: Sequence[Batch], outcomes: list[Outcome]) -> list[tuple[int, Source]]:
        """Find the batches that are not stored yet, each with its source; invalid writers are rejected."""
        keys = [writer_key(batch.writer) for batch in batches]
        self._ledger.load(keys)
        met: set[tuple[int, int]] = set()
        fresh: list[int] = []
        for index, (key, batch) in enumerate(zip(keys, batches, strict=True)):
            if (key, batch.seq) not in met and not self._ledger.seen(key, batch.seq):
                met.add((key, batch.seq))
                fresh.append(index)
        self._catalog.load(batches[index].writer.run for index in fresh)
        found: list[tuple[int, Source]] = []
        for index in fresh:
            batch = batches[index]
            try:
                found.append((index, self._catalog.source(batch.writer)))
            except UNFIT as error:
                outcomes[index] = Reject(f"unfit writer: {error}", range(len(batch.records)))
        return found

    def _entries(self, batches: Sequence[Batch], fresh: Sequence[tuple[int, Source]], built: Built) -> dict[int, Entry]:
        entries: dict[int, Entry] = {}
        for (index, source), gain in zip(fresh, built.gains, strict=True):
            entry = entries.get(source.key)
            if entry is None:
                entry = entries[source.key] = self._ledger.entry(source.key, source.book.number)
            progress = entry.progress
            progress.batches.add(batches[index].seq)
            progress.seen = max(progress.seen, gain.seen)
            progress.began = min(filter(None, (progress.began, gain.began)), default=0)
            progress.step = max(progress.step, gain.step)
            for name, count in gain.counts.items():
                progress.counts[name] += count
            entry.added.append(batches[index].seq)
        return entries

    def _insert(self, blocks: dict[str, Block]) -> None:
        for table, block in blocks.items():
            self._engine.insert(table, block)

    def recover(self) -> None:
        """Delete the rows of incomplete commits; may itself be interrupted and repeated.

        Totals first: their series are found by the rows of points, which are therefore deleted last.
        """
        self._engine.settle(("ledger", *FACTS))
        last = self._ledger.last_commit()
        late = f"commit > {last}"
        touched = self._engine.query(f"SELECT DISTINCT series FROM metrics WHERE {late}")["series"]
        self.rebuild_totals(touched, f"commit <= {last}")
        for table in FACTS:
            if self._count(table, late):
                self._engine.execute(f"ALTER TABLE {table} DELETE WHERE {late}")
                if left := self._count(table, late):
                    raise EngineError(f"{left} rows of {table} could not be rolled back", UNFINISHED)
        self._ledger.forget()
        self._last = last
        self._broken = False

    def _count(self, table: str, condition: str) -> int:
        return int(self._engine.query(f"SELECT count() AS found FROM {table} WHERE {condition}").one("found"))

    def rebuild_totals(self, series: Sequence[int], condition: str = "1") -> None:
        """Compute the totals of these series again from their points."""
        for chunk in _chunks(series, _CHUNK):
            among = f"series IN {literal.integers(chunk)}"
            self._engine.execute(f"ALTER TABLE totals DELETE WHERE {among}")
            points = f"{_AS_TOTALS} WHERE {among} AND {condition}"
            self._engine.execute(
                f"INSERT INTO totals SELECT series, attempt, {FOLD} FROM ({points}) GROUP BY series, attempt"
            )

    def forget(self) -> None:
        """Look up runs and writers again, after some were deleted."""
        self._catalog.forget()
        self._ledger.forget()


def _portions(batches: Sequence[Batch]) -> Iterable[Sequence[Batch]]:
    """Split a group that is too large for one commit."""
    start = rows = 0
    for index, batch in enumerate(batches):
        size = _rows(batch)
        if rows and rows + size > MOST_ROWS:
            yield batches[start:index]
            start, rows = index, 0
        rows += size
    if start < len(batches):
        yield batches[start:]


def _rows(batch: Batch) -> int:
    """Estimate the rows of a batch by its first record; counting all of them costs as much as storing some."""
    first = next(iter(batch.records), None)
    return len(batch.records) * (len(first.values) if isinstance(first, Metric) else 1)


def _chunks(values: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (values[at : at + size] for at in range(0, len(values), size))


RESERVE = 256 * 1024 * 1024
"""Bytes left free on the disk, so that merges and deletions can still work when it is full."""


class Store:
    """Records in an engine. `write` is a `Write`; reads are functions that take `engine`."""

    def __init__(
        self,
        engine: Engine,
        folder: Folder | None = None,
        *,
        lease: Lease | None = None,
        reserve: int = RESERVE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self.reserve = reserve
        self._lease = lease
        self.version = schema.prepare(engine)
        self.is_deleted: Callable[[Batch], bool] = lambda batch: False
        """Returns whether a batch belongs to a deleted run; such a batch is skipped like one that was stored before."""
        self._committer = Committer(engine, clock, self._allowed)
        self._lock = threading.Lock()
        self._committer.recover()

    def write(self, batch: Batch) -> None:
        """Store one batch in its own commit; raises its Retry or Reject."""
        (outcome,) = self.write_many([batch])
        if outcome is not None:
            raise outcome

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches in one commit (several when they are many) and return the outcome of each.

        Call it at most about twice a second. A batch whose outcome is None or a Reject survives the death of this
        process and is skipped when it is offered again.
        """
        if self.folder is not None and (free := self.folder.free()) < self.reserve:
            reason = f"the store's disk has {free >> 20} MiB left, less than the {self.reserve >> 20} kept free"
            return [Retry(reason, after=30.0)] * len(batches)
        with self._lock:
            kept = [batch for batch in batches if not self.is_deleted(batch)]
            outcomes = self._committer.write(kept) if kept else []
        if len(kept) == len(batches):
            return outcomes
        known = {id(batch): outcome for batch, outcome in zip(kept, outcomes, strict=True)}
        return [known.get(id(batch)) for batch in batches]

    def change(self, work: Callable[[Committer], None]) -> None:
        """Run maintenance that must not overlap a commit, and clear the caches afterwards."""
        with self._lock:
            self._allowed()
            try:
                work(self._committer)
            finally:
                self._committer.forget()

    @property
    def created(self) -> int:
        """When the store was made, in ns."""
        return int(self.engine.query("SELECT min(time) AS at FROM versions").one("at"))

    def renew(self) -> None:
        """Keep the store ours while nothing is written; EngineError when it is not any more."""
        with self._lock:
            self._allowed()

    def _allowed(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def close(self) -> None:
        """Wait for a running commit and release the folder or the lease."""
        with self._lock:
            if self._lease is not None:
                self._lease.release()
            self.engine.close()
            if self.folder is not None:
                self.folder.close()


def open_store(
    path: Path,
    *,
    memory: int = 2 * 1024**3,
    threads: int | None = None,
    reserve: int = RESERVE,
    clock: Callable[[], int] = time.time_ns,
) -> Store:
    """Open the store in a folder, creating it if missing; ConfigError, with the fix, when it cannot be used."""
    folder = Folder(path)
    engine: Chdb | None = None
    try:
        engine = Chdb(folder.data, memory=memory, threads=threads)
        return Store(engine, folder, reserve=reserve, clock=clock)
    except BaseException as error:
        if engine is not None:
            engine.close()
        folder.close()
        if isinstance(error, EngineError):
            raise ConfigError(_why(path, error)) from error
        raise


def open_server(url: str, *, hub: str = "", clock: Callable[[], int] = time.time_ns) -> Store:
    """Open the store of a ClickHouse server by its address; ConfigError with what to do when it cannot be used.

    `hub` is the id of the hub that opens it: while another one has it open, it is refused.
    """
    where = address.parse(url)
    try:
        from stepscope.hub.store.server import Server
    except ImportError as error:
        raise ConfigError("a ClickHouse server as the store needs: pip install 'stepscope[cluster]'") from error
    with contextlib.ExitStack() as undo:
        try:
            engine = Server(where)
            undo.callback(engine.close)
            lease = Lease(engine, hub or secrets.token_hex(8), f"{socket.gethostname()}, pid {os.getpid()}")
            lease.take()
            undo.callback(lease.release)
            store = Store(engine, lease=lease, clock=clock)
            undo.pop_all()
            return store
        except EngineError as error:
            raise ConfigError(f"the store at {where} cannot be opened: {error.cause}") from error


def _why(path: Path, error: EngineError) -> str:
    """Return why a store cannot be opened, and what to do."""
    if error.full:
        return full_disk(path)
    if error.forbidden:
        return f"the store in {path} cannot be opened ({error.cause}): fix the permissions of the folder"
    if error.starved:
        return f"there is too little memory to open the store in {path} ({error.cause}): free some"
    return (
        f"the store in {path} is damaged or of another kind ({error.cause}): move the folder away to start "
        "with an empty store; journals that are still there will be read again"
    )
