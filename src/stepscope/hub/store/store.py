"""An open store: batches become rows and a ledger entry in one commit, complete or, after a crash, not at all."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.hub.store import schema
from stepscope.hub.store.embedded import Chdb
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.schema import ShardUnavailable
from stepscope.hub.store.store_folder import Folder, full_disk
from stepscope.hub.store.write import ledger, recovery
from stepscope.hub.store.write.committer import Committer
from stepscope.hub.store.write.committer import Outcome as Outcome
from stepscope.hub.store.write.ledger import Shard
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch

if TYPE_CHECKING:  # a store in a folder needs nothing of a cluster
    from stepscope.hub.store.cluster.lease import Lease
    from stepscope.hub.store.cluster.ownership import Member, Ownership

RESERVE = 256 * 1024 * 1024
"""Bytes left free on the disk, so that merges and deletions can still work when it is full."""

_TURN_SECONDS = 1.0
"""How long a commit to one of several shards waits for another one, or for a change of its runs."""


class Store:
    """Records in an engine. `write` is a `Write`; reads are functions that take `engine`."""

    def __init__(
        self,
        engine: Engine,
        folder: Folder | None = None,
        *,
        ownership: "Ownership | None" = None,
        reserve: int = RESERVE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self.reserve = reserve
        self.ownership = ownership
        """Who may write to which shard of a shared store; None for a store that one process has to itself."""
        self.version = schema.prepare(engine)
        self._is_deleted: Callable[[Batch], bool] = lambda batch: False
        leases: Sequence[Lease | None] = ownership.leases if ownership is not None else [None] * engine.shards
        ledger.prepare_requests(engine)
        if ownership is not None:
            recovery.prepare(engine)
        self._committers = [
            Committer(
                engine.shard(index), clock, Shard(index, engine.shards), lease, partial(engine.note_commit, index)
            )
            for index, lease in enumerate(leases)
        ]
        self._locks = [threading.Lock() for _ in leases]
        """Held by a commit to a shard, its recovery, and changes of its runs."""
        self._recovers_apart = False
        """Whether some thread calls `recover`, so that commits to one of several shards do not wait for it."""
        for index in self.held():
            try:
                self._committers[index].recover_if_needed()
            except EngineError as error:
                if ownership is None or not ownership.may_recover_later(error):
                    raise

    def skip_deleted(self, is_deleted: Callable[[Batch], bool]) -> None:
        """Skip the batches of deleted runs from now on, like those that were stored before."""
        self._is_deleted = is_deleted

    def recover_apart(self) -> None:
        """Leave recoveries to threads that call `recover`, from now on: commits to other shards do not wait."""
        self._recovers_apart = True

    def held(self) -> Sequence[int]:
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
        if self.folder is not None and (free := _free_bytes(self.folder.path)) < self.reserve:
            reason = f"the store's disk has {free >> 20} MiB left, less than the {self.reserve >> 20} kept free"
            return [Retry(reason, after=30.0)] * len(batches)
        return self._skipping_deleted(batches, self._write_kept)

    def _skipping_deleted(
        self, batches: Sequence[Batch], write: Callable[[Sequence[Batch]], list[Outcome]]
    ) -> list[Outcome]:
        kept = [batch for batch in batches if not self._is_deleted(batch)]
        outcomes = write(kept) if kept else []
        if len(kept) == len(batches):
            return outcomes
        known = {id(batch): outcome for batch, outcome in zip(kept, outcomes, strict=True)}
        return [known.get(id(batch)) for batch in batches]

    def _write_kept(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches, those of each shard in commits of their own: only an insert into one server is atomic."""
        if self.ownership is None or self.engine.shards == 1:
            return self._write_to(0, batches)
        try:
            shards = self.ownership.placement.find(batch.writer.run for batch in batches)
        except Retry as error:
            return [error] * len(batches)
        parts: dict[int, list[int]] = {}
        outcomes: list[Outcome] = [Retry("the rest of the group is not stored yet", after=0.0)] * len(batches)
        for index, batch in enumerate(batches):
            place = shards[batch.writer.run]
            if isinstance(place, ShardUnavailable):
                outcomes[index] = place
            else:
                parts.setdefault(place, []).append(index)
        for done, (shard, indices) in enumerate(parts.items()):
            try:
                found = self._write_to(shard, [batches[index] for index in indices])
            except Exception:  # raised again unless a part is stored already, whose outcomes must be reported
                if not done:
                    raise
                break
            for index, outcome in zip(indices, found, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _write_to(self, shard: int, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches of one shard. While others may go on, one that is being recovered is not waited for."""
        apart = self._recovers_apart and self.engine.shards > 1
        if not self._locks[shard].acquire(timeout=_TURN_SECONDS if apart else -1):
            return [ShardUnavailable(f"shard {shard + 1} is being changed", shard, after=1.0)] * len(batches)
        try:
            committer = self._committers[shard]
            if apart and committer.must_recover():
                return [ShardUnavailable(f"shard {shard + 1} is being recovered", shard, after=1.0)] * len(batches)
            return self._skipping_deleted(batches, committer.write)  # one may have been deleted since
        finally:
            self._locks[shard].release()

    def change(self, work: Callable[[], None], runs: Iterable[int]) -> None:
        """Run maintenance of runs that must not overlap a commit, and clear the caches afterwards.

        EngineError, which passes, when another hub writes to one of their shards.
        """
        shards = sorted({run % self.engine.shards for run in runs})
        with contextlib.ExitStack() as undo:
            for shard in shards:
                undo.enter_context(self._locks[shard])
                self._committers[shard].check()
                undo.callback(self._committers[shard].forget)
            work()

    def fold_all(self) -> None:
        """Fold the long series of the shards that this process writes to; takes about as long as to read them once."""
        for shard in self.held():
            with self._locks[shard]:
                self._committers[shard].fold_all()

    def ignored_aborts(self) -> int:
        """Commits that a hub without the shard aborted: they count, and nothing of them was deleted."""
        return sum(each.ignored_aborts for each in self._committers)

    def is_written_here(self, number: int) -> bool:
        """Return whether this process writes the records of a run, by its number."""
        return number % self.engine.shards in self.held()

    def owners(self, runs: Iterable[str]) -> "dict[str, Member | Retry | None]":
        """The hub that writes the records of each run: None for this one, Retry when none is known to.

        Raises Retry when the store does not say where the runs are.
        """
        if self.ownership is None:
            return dict.fromkeys(runs)
        found = self.ownership.placement.find(runs)
        writers = {place: self.ownership.writer(place) for place in found.values() if isinstance(place, int)}
        return {run: writers[place] if isinstance(place, int) else place for run, place in found.items()}

    def renew(self) -> None:
        """Keep the shards of a process that does not call `beat`; EngineError when it lost one."""
        for shard in self.held():
            with self._locks[shard]:
                self._committers[shard].check()

    @property
    def created(self) -> int:
        """When the store was made, in ns."""
        return schema.created(self.engine)

    def beat(self) -> None:
        """Keep the shards of this hub, take free ones, hand over those beyond its share; to be called regularly."""
        if self.ownership is None:
            return
        for shard in self.ownership.beat():
            if self._locks[shard].acquire(blocking=False):  # else a commit is under way, and must not delay this
                try:
                    self.ownership.leases[shard].release()
                finally:
                    self._locks[shard].release()

    def recover(self, shard: int) -> bool:
        """Delete what incomplete and aborted commits left on a shard, if this process writes to it: whether it does.

        To be called regularly, for each shard on a thread of its own: it may wait for the servers for a while.
        """
        with self._locks[shard]:
            if shard not in self.held():
                return False
            self._committers[shard].recover_if_needed()
            self._committers[shard].sweep_if_due()
            return True

    def close(self) -> None:
        """Wait for a running commit and release the folder or the shards."""
        with contextlib.ExitStack() as undo:
            for lock in self._locks:
                undo.enter_context(lock)
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
    url: str,
    *,
    member: "Member | None" = None,
    shared: bool = False,
    patience: float = 0.0,
    clock: Callable[[], int] = time.time_ns,
) -> Store:
    """Open the store of a ClickHouse server by its address; ConfigError with what to do when it cannot be used.

    `member` is the hub that opens it. It shares the store with other hubs, or is refused while another has a shard.
    Replicas that fetch or delete rows are waited for up to `patience` seconds.
    """
    from stepscope.hub.store.cluster import address
    from stepscope.hub.store.cluster.ownership import Ownership, this_process
    from stepscope.hub.store.cluster.waiting import Unfinished

    where = address.parse(url)
    try:
        from stepscope.hub.store.cluster.server import Server
    except ImportError as error:
        raise ConfigError("a ClickHouse server as the store needs: pip install 'stepscope[cluster]'") from error
    deadline = time.monotonic() + patience
    while True:
        try:
            with contextlib.ExitStack() as undo:
                engine = Server(where)
                undo.callback(engine.close)
                ownership = Ownership(engine, member or this_process(), where.lease)
                undo.callback(ownership.leave)
                ownership.join() if shared else ownership.take_all()
                store = Store(engine, ownership=ownership, clock=clock)
                undo.pop_all()
                return store
        except EngineError as error:
            if not isinstance(error, Unfinished) or time.monotonic() > deadline:
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


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
