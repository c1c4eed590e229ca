"""Delete a run: a tombstone first, so that a crash or a late batch brings nothing back, then files and rows."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from stepscope.hub.store.maintenance import drop_runs, info
from stepscope.hub.store.read.run_catalog import RunRow, list_runs
from stepscope.hub.store.store import Store
from stepscope.journal.run_edits import Edits, delete_files, has_journals


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


def delete_run(home: Path, edits: Edits, run: str, who: str, store: Store | None) -> Deleted:
    """Delete a run that is not running; without a store its rows are deleted when a hub opens it next."""
    moment = edits.append(run, who, deleted=True).time
    freed = delete_files(home, run, moment)
    rows = [] if store is None else list_runs(store.engine, ids=[run])
    dropped = 0 if store is None else _drop(store, rows)
    return Deleted(freed.journals, freed.quarantine, dropped)


def finish_deletions(home: Path, edits: Edits, store: Store) -> None:
    """Finish interrupted deletions: files and rows of deleted runs from before their deletion."""
    deleted = edits.deleted()
    known = list_runs(store.engine, ids=list(deleted)) if deleted else []
    rows = [row for row in known if row.received <= deleted[row.id] and store.is_written_here(row.number)]
    # Rows go last: where they and the journals are gone, nothing is left to do.
    for run in {*(row.id for row in rows), *(run for run in deleted if has_journals(home, run))}:
        delete_files(home, run, deleted[run])
    _drop(store, rows)


def _drop(store: Store, rows: Sequence[RunRow]) -> int:
    """Delete the rows of runs; return the bytes freed."""
    if not rows:
        return 0
    before = info(store.engine).bytes
    drop_runs(store, [row.number for row in rows])
    return max(before - info(store.engine).bytes, 0)
