"""Delete a run: a tombstone first, so that a crash or a late batch brings nothing back, then files and rows."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, structs

from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.maintenance import drop_runs, info
from stepscope.hub.store.read.run_catalog import list_runs, read_writers
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.store import Store
from stepscope.hub.threads import Periodic
from stepscope.journal.kept_files import kept_bytes, remove_kept
from stepscope.journal.run_edits import Edits, delete_files, folder_bytes, has_journals, is_from_before
from stepscope.model.errors import Retry

_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 5.0
_OTHER_HUB_SECONDS = 10.0
"""How long the hub that writes a run is waited for."""


class Deleted(Struct, frozen=True):
    """What a deletion freed, in bytes on disk.

    The engine rewrites what shares a file with other runs, so the size of the store's part is an estimate.
    """

    journals: int = 0
    quarantine: int = 0
    store: int = 0
    files: int = 0
    """Uploaded files and artifacts."""

    @property
    def bytes(self) -> int:
        """The sum."""
        return self.journals + self.quarantine + self.store + self.files


def delete_run(home: Path, edits: Edits, run: str, who: str, store: Store | None, after: int = 0) -> Deleted:
    """Delete a run that is not running; without a store its rows are deleted when a hub opens it next.

    The deletion is later than `after`, whatever the clock says.
    """
    moment = edits.append(run, who, after=after, deleted=True).time
    freed = delete_files(home, run, moment)
    rows = [] if store is None else list_runs(store.engine, ids=[run])
    dropped = 0 if store is None else _drop(store, rows)
    return Deleted(freed.journals, freed.quarantine, dropped)


def finish_deletions(home: Path, edits: Edits, store: Store) -> None:
    """Finish interrupted deletions: files and rows of deleted runs from before their deletion."""
    deleted = edits.deleted()
    known = list_runs(store.engine, ids=list(deleted)) if deleted else []
    rows = [row for row in known if store.is_written_here(row.number) and _is_left(store, row, deleted[row.id])]
    # Rows go last: where they and the journals are gone, nothing is left to do.
    for run in {*(row.id for row in rows), *(run for run in deleted if has_journals(home, run))}:
        delete_files(home, run, deleted[run])
    _drop(store, rows)


def _is_left(store: Store, row: RunRow, moment: int) -> bool:
    """Return whether a run is from before its deletion, and has not been started again since.

    The hub that writes its records may have taken some after the deletion, before it knew of it.
    """
    if row.received <= moment:
        return True
    return all(is_from_before(each.writer, each.seen, moment) for each in read_writers(store.engine, row.number))


def _drop(store: Store, rows: Sequence[RunRow]) -> int:
    """Delete the rows of runs; return the bytes freed."""
    if not rows:
        return 0
    before = info(store.engine).bytes
    drop_runs(store, [row.number for row in rows])
    return max(before - info(store.engine).bytes, 0)


class RunDeletion:
    """The deletions of a hub, those that other hubs on the same store asked for included. Safe from several threads."""

    def __init__(self, home: Path, edits: Edits, store: Store, forget: Callable[[str], object]) -> None:
        self._home, self._edits, self._store, self._forget = home, edits, store, forget
        self.uploads: list[Callable[[str, int], int]] = []
        """Delete the files that receivers keep of a run, from before a time in ns; they return the bytes freed."""
        self._lock = threading.Lock()
        self._left: set[str] = set()
        """Runs of which something may be left."""
        self._next_look = 0.0
        self._upkeep = Periodic(self._finish_if_due, first=_LOOK_SECONDS, every=_LOOK_SECONDS, what="deleting runs")

    @property
    def problem(self) -> str:
        """Why rows of deleted runs are still there; empty when none are."""
        return self._upkeep.problem

    def start(self) -> None:
        """Begin to finish what could not be deleted at once."""
        self._upkeep.start()

    def stop(self) -> None:
        """Stop that."""
        self._upkeep.stop()

    def expect(self, runs: Sequence[str]) -> None:
        """Delete soon what is here of runs that another hub deleted."""
        with self._lock:
            self._left.update(runs)

    def find_left_rows(self) -> None:
        """Look for rows of deleted runs on shards that this hub has just got."""
        self.expect(list(self._edits.deleted()))

    def delete(self, row: RunRow, who: str) -> Deleted:
        """Delete a run that is not running, and return what that freed; Retry when a part of it must wait."""
        here = self._store.is_written_here(row.number)
        try:
            deleted = delete_run(self._home, self._edits, row.id, who, self._store if here else None, row.received)
            self._forget(row.id)
            moment = self._edits.deleted()[row.id]
            if not here:
                self._await_other_hub(row.id, moment)
        except EngineError as error:
            if not error.passing:
                raise
            raise self._later(row.id, str(error)) from error
        return structs.replace(deleted, files=self._delete_uploads(row.id, moment))

    def delete_left_uploads(self) -> None:
        """Delete the uploaded files of runs that were deleted while no hub was running, or the store was away."""
        for run, moment in self._edits.deleted().items():
            self._delete_uploads(run, moment)

    def file_bytes(self) -> int:
        """Add up the files of all runs beside the store, but for journals; reads the disk."""
        return folder_bytes(self._home / "hub" / "files") + kept_bytes(self._home)

    def delete_files(self, runs: Sequence[int]) -> None:
        """Delete the files of runs that retention is about to delete; their journals stay."""
        now = time.time_ns()
        wanted = set(runs)
        for row in list_runs(self._store.engine):
            if row.number in wanted:
                self._delete_uploads(row.id, now)
                remove_kept(self._home, row.id)

    def finish(self) -> None:
        """Delete what is left of deleted runs, now or, while a part of the store is unavailable, later."""
        with self._lock:
            left, self._left = self._left, set()
        try:
            for run in left:
                self._forget(run)
            finish_deletions(self._home, self._edits, self._store)
            self.delete_left_uploads()
        except EngineError as error:
            self.find_left_rows()
            self._next_look = time.monotonic() + _RETRY_SECONDS
            if not error.passing:
                raise

    def _finish_if_due(self) -> None:
        if self._left and time.monotonic() >= self._next_look:
            self.finish()

    def _delete_uploads(self, run: str, before: int) -> int:
        return sum(delete(run, before) for delete in self.uploads)

    def _await_other_hub(self, run: str, moment: int) -> None:
        deadline = time.monotonic() + _OTHER_HUB_SECONDS
        while any(_is_left(self._store, row, moment) for row in list_runs(self._store.engine, ids=[run])):
            if time.monotonic() > deadline:
                raise self._later(run, "the hub that writes them does not answer")
            time.sleep(0.1)

    def _later(self, run: str, why: str) -> Retry:
        self.expect([run])
        return Retry(
            f"{run} is marked as deleted, and its rows are deleted as soon as the store can: {why}", after=30.0
        )
