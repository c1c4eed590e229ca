"""What runs keep beside their journals: its size, its removal, and the sweep of blobs that no record names."""

import contextlib
import shutil
import time
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.blobs import FOLDER, blobs_of, run_blobs
from stepscope.journal.run_edits import folder_bytes
from stepscope.journal.segments import Tail, find_writer
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.records import Event

IMPORTED = "files"
"""The folder of a run with the files that were imported with it."""
_SWEPT = "swept"
"""The file that marks a folder of blobs in which nothing is left over."""
_QUIET_SECONDS = 86400.0
"""A writer of another machine that has been silent for this long has ended."""


def kept_bytes(home: Path) -> int:
    """Add up the bytes of what runs have beside their journals: blobs, and files that were imported."""
    found = 0
    for run in layout.list_runs(home):
        found += folder_bytes(layout.runs_folder(home) / run / IMPORTED)
        found += sum(blobs.size() for blobs in run_blobs(home, run))
    return found


def remove_kept(home: Path, run: str) -> None:
    """Remove what a run has beside its journals."""
    if layout.is_safe(run):
        shutil.rmtree(layout.runs_folder(home) / run / IMPORTED, ignore_errors=True)
        for blobs in run_blobs(home, run):
            blobs.remove()


def sweep(home: Path) -> int:
    """Remove blobs of ended writers that no record names, as after a kill between the two; return the bytes freed.

    A writer is looked at once, when it has ended: its journal says what is named. Where that cannot be read as a whole,
    everything stays.
    """
    freed = 0
    for run in layout.list_runs(home):
        for name in layout.list_writers(home, run):
            folder = layout.writer_folder(home, run, name)
            marker = folder / FOLDER / _SWEPT
            if not (folder / FOLDER).is_dir() or marker.exists() or not _has_ended(folder):
                continue
            with contextlib.suppress(OSError):
                found = named(folder)
                freed += blobs_of(folder).remove(keep=found) if found is not None else 0
                marker.touch(mode=0o600)
    return freed


def _has_ended(folder: Path) -> bool:
    alive = layout.process_alive(find_writer(folder))
    if alive is not None:
        return not alive
    return time.time() - layout.files_of(folder).changed > _QUIET_SECONDS


def named(folder: Path) -> set[str] | None:
    """Return the digests that the records of a writer name; None when some are damaged, OSError when some are out of
    reach.
    """
    for path in layout.list_segments(folder):
        path.open("rb").close()
    tail = Tail(folder)
    found = {
        str(record.attrs.get("sha256"))
        for batch in tail.read_all()
        for record in batch.records
        if isinstance(record, Event) and record.name == EVENT_MEDIA
    }
    return None if tail.damaged or tail.unreadable else found
