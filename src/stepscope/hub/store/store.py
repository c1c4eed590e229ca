"""An open store: batches become rows and a ledger entry in one commit, complete or, after a crash, not at all."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.hub.store import address, schema
from stepscope.hub.store.columns import Block
from stepscope.hub.store.embedded import Chdb
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.lease import Lease
from stepscope.hub.store.ownership import Member, Ownership, this_process
from stepscope.hub.store.shards import WHOLE, Placement, Shard
from stepscope.hub.store.store_folder import Folder, full_disk
from stepscope.hub.store.write import ledger as loaded
from stepscope.hub.store.write.catalog import Catalog, Source
from stepscope.hub.store.write.group import UNFIT, Built, build, portions
from stepscope.hub.store.write.ledger import Entry, Ledger, writer_key
from stepscope.hub.store.write.recovery import Recovery
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.model.ports import Batch

Outcome = Reject | Retry | None
"""The outcome of a batch: None when all of it is stored."""

_SWEEP_SECONDS = (5.0, 60.0, 600.0)
"""When late rows of aborted commits are looked for, after a recovery."""


class Committer:
    """The one writer of a shard. Not thread-safe: callers take turns.

    The order is the promise: numbers of runs and series first (harmless when orphaned), then the rows, each with the
    commit's number, metrics before their totals, and the ledger last, in one atomic insert. A commit is complete when
    it is in the ledger and, on a shared store, the hub still has the shard. The rows of others were never acknowledged;
    `recover` deletes them before anything else is written.
    """

    def __init__(
        self, engine: Engine, clock: Callable[[], int], shard: Shard = WHOLE, lease: Lease | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._lease = lease
        self._epoch = 0
        """The epoch in which the caches were filled."""
        self._ledger = Ledger(engine, shard)
        self._catalog = Catalog(engine, clock, shard)
        self._recovery = Recovery(engine, self._ledger, shard, shared=lease is not None)
        self._last = 0
        self._broken = True
        """Whether rows of an incomplete commit may be in the tables."""
        self._sweeps: list[float] = []

    def check(self) -> None:
        """Raise EngineError, which passes, when another hub may write to the shard."""
        if self._lease is not None:
            self._lease.check()

    def _guard(self) -> None:
        if self._lease is not None:
            self._lease.guard()

    def write(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches and return the outcome of each; those stored before are skipped."""
        outcomes: list[Outcome] = []
        before = self._last
        for group in portions(batches):
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
            self.check()
            self.recover_if_needed()
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
        if fresh:
            self._commit_fresh(batches, fresh, outcomes)
            self._catalog.saved()
        return outcomes

    def _commit_fresh(
        self, batches: Sequence[Batch], fresh: Sequence[tuple[int, Source]], outcomes: list[Outcome]
    ) -> None:
        number = self._last + 1
        built = build(self._catalog, [(source, batches[index].records) for index, source in fresh], number)
        entries = self._entries(batches, fresh, built)
        self._insert({**self._catalog.blocks(), **built.traces})
        self._insert(built.facts)
        self._insert({"ledger": loaded.block(entries, number, self._clock())})
        self.check()
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
            if not self._catalog.has_room(batch.writer.run):
                outcomes[index] = Retry("too many new runs in one commit", after=0.0)
                continue
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
                entry = entries[source.key] = self._ledger.entry(source.key, source.run_numbers.number)
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
            self._guard()
            self._engine.insert(table, block)

    def recover_if_needed(self) -> None:
        """Delete the rows of incomplete commits, after a failure or when this hub has just got the shard."""
        epoch = self._lease.epoch if self._lease is not None else 0
        if not self._broken and epoch == self._epoch:
            return
        self._broken = True
        self._last = self._recovery.recover(self._clock, self._guard)
        self._ledger.forget()
        if epoch != self._epoch:
            self._catalog.begin_epoch(epoch)
        if epoch:
            self._sweeps = [time.monotonic() + seconds for seconds in _SWEEP_SECONDS]
        self._broken, self._epoch = False, epoch

    def sweep_if_due(self) -> None:
        """Delete what arrived late of commits that were aborted."""
        if self._sweeps and time.monotonic() >= self._sweeps[0]:
            self._recovery.sweep(self._guard)
            self._sweeps.pop(0)

    def forget(self) -> None:
        """Look up runs and writers again, after some were deleted."""
        self._catalog.forget()
        self._ledger.forget()


RESERVE = 256 * 1024 * 1024
"""Bytes left free on the disk, so that merges and deletions can still work when it is full."""


class Store:
    """Records in an engine. `write` is a `Write`; reads are functions that take `engine`."""

    def __init__(
        self,
        engine: Engine,
        folder: Folder | None = None,
        *,
        ownership: Ownership | None = None,
        reserve: int = RESERVE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self.reserve = reserve
        self.ownership = ownership
        """Who may write to which shard of a shared store; None for a store that one process has to itself."""
        self.version = schema.prepare(engine)
        self.is_deleted: Callable[[Batch], bool] = lambda batch: False
        """Returns whether a batch belongs to a deleted run; such a batch is skipped like one that was stored before."""
        leases: Sequence[Lease | None] = ownership.leases if ownership is not None else [None] * engine.shards
        self._committers = [
            Committer(engine, clock, Shard(index, engine.shards), lease) for index, lease in enumerate(leases)
        ]
        self._placement = Placement(engine)
        self._lock = threading.Lock()
        for index in self._held():
            self._committers[index].recover_if_needed()

    def _held(self) -> Sequence[int]:
        """The shards that this process may write to."""
        return range(self.engine.shards) if self.ownership is None else self.ownership.held()

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
            outcomes = self._write_kept(kept) if kept else []
        if len(kept) == len(batches):
            return outcomes
        known = {id(batch): outcome for batch, outcome in zip(kept, outcomes, strict=True)}
        return [known.get(id(batch)) for batch in batches]

    def _write_kept(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches, those of each shard in commits of their own: only an insert into one server is atomic."""
        if self.engine.shards == 1:
            return self._committers[0].write(batches)
        try:
            shards = self._placement.find(batch.writer.run for batch in batches)
        except Retry as error:
            return [error] * len(batches)
        parts: dict[int, list[int]] = {}
        for index, batch in enumerate(batches):
            parts.setdefault(shards[batch.writer.run], []).append(index)
        outcomes: list[Outcome] = [Retry("a part of the group", after=0.0)] * len(batches)
        for done, (shard, indices) in enumerate(parts.items()):
            try:
                found = self._committers[shard].write([batches[index] for index in indices])
            except Exception:  # raised again unless a part is stored already, whose outcomes must be reported
                if not done:
                    raise
                break
            for index, outcome in zip(indices, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def change(self, work: Callable[[], None], runs: Iterable[int]) -> None:
        """Run maintenance of runs that must not overlap a commit, and clear the caches afterwards.

        EngineError, which passes, when another hub writes to one of their shards.
        """
        committers = [self._committers[shard] for shard in {run % self.engine.shards for run in runs}]
        with self._lock:
            for each in committers:
                each.check()
            try:
                work()
            finally:
                for each in committers:
                    each.forget()

    def is_written_here(self, number: int) -> bool:
        """Return whether this process writes the records of a run, by its number."""
        return number % self.engine.shards in self._held()

    def owners(self, runs: Iterable[str]) -> "dict[str, Member | Retry | None]":
        """The hub that writes the records of each run: None for this one, Retry when none is known to.

        Raises Retry when the store does not say where the runs are.
        """
        if self.ownership is None:
            return dict.fromkeys(runs)
        found = self._placement.find(runs)
        by_shard = {shard: self.ownership.writer(shard) for shard in set(found.values())}
        return {run: by_shard[shard] for run, shard in found.items()}

    def renew(self) -> None:
        """Keep the shards of a process that does not call `beat`; EngineError when it lost one."""
        with self._lock:
            for shard in self._held():
                self._committers[shard].check()

    @property
    def created(self) -> int:
        """When the store was made, in ns."""
        return int(self.engine.query("SELECT min(time) AS at FROM versions").one("at"))

    def beat(self) -> None:
        """Keep the shards of this hub, take free ones, hand over those beyond its share; to be called regularly."""
        if self.ownership is None:
            return
        surplus = self.ownership.beat()
        if not self._lock.acquire(blocking=False):
            return  # a commit is under way, and must not delay the next beat
        try:
            for shard in surplus:
                self.ownership.leases[shard].release()
            for shard in self._held():
                self._committers[shard].recover_if_needed()
                self._committers[shard].sweep_if_due()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for a running commit and release the folder or the shards."""
        with self._lock:
            if self.ownership is not None:
                self.ownership.leave()
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


def open_server(
    url: str, *, member: Member | None = None, shared: bool = False, clock: Callable[[], int] = time.time_ns
) -> Store:
    """Open the store of a ClickHouse server by its address; ConfigError with what to do when it cannot be used.

    `member` is the hub that opens it. It shares the store with other hubs, or is refused while another has a shard.
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
            ownership = Ownership(engine, member or this_process(), where.lease)
            undo.callback(ownership.leave)
            ownership.join() if shared else ownership.take_all()
            store = Store(engine, ownership=ownership, clock=clock)
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
