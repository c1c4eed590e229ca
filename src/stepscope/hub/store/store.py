"""An open store: takes batches from any thread, and is what reads and upkeep begin with."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stepscope.hub.store import schema
from stepscope.hub.store.embedded import Chdb
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.folder import Folder, full_disk
from stepscope.hub.store.write.commit import Committer, Outcome
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch

RESERVE = 256 * 1024 * 1024
"""Bytes left free on the disk, so that merges and deletions can still work when it is full."""


class Store:
    """Records in an engine. `write` is a `Write`; reads are functions that take `engine`."""

    def __init__(
        self,
        engine: Engine,
        folder: Folder | None = None,
        *,
        reserve: int = RESERVE,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self.reserve = reserve
        self.version = schema.prepare(engine)
        self.is_deleted: Callable[[Batch], bool] = lambda batch: False
        """Tells a batch of a deleted run, which is passed over like one that was stored before."""
        self._committer = Committer(engine, clock)
        self._lock = threading.Lock()
        self._committer.recover()

    def write(self, batch: Batch) -> None:
        """Store one batch in a commit of its own; raises its Retry or Reject."""
        (outcome,) = self.write_many([batch])
        if outcome is not None:
            raise outcome

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Store batches in one commit (several when they are many) and tell what became of each.

        Offer them at most about twice a second. A batch whose outcome is None or a Reject survives the death of
        this process and is ignored when it is offered again.
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
        """Run upkeep that must not meet a commit, and clear the caches afterwards."""
        with self._lock:
            try:
                work(self._committer)
            finally:
                self._committer.forget()

    def close(self) -> None:
        """Wait for a commit under way and release the folder."""
        with self._lock:
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
    """Open the store in a folder, making it when missing; ConfigError with what to do when it cannot be used."""
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


def _why(path: Path, error: EngineError) -> str:
    """Say why a store cannot be opened, and what to do."""
    if error.full:
        return full_disk(path)
    if error.forbidden:
        return f"the store in {path} cannot be opened ({error.cause}): mend the permissions of the folder"
    if error.starved:
        return f"there is too little memory to open the store in {path} ({error.cause}): free some"
    return (
        f"the store in {path} is damaged or of another kind ({error.cause}): move the folder away to start "
        "with an empty store; journals that are still there will be read again"
    )
