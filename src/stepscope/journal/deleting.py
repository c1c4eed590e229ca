"""Delete what a home folder holds of a run: its journals, its quarantined records, its requests for delivery."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from stepscope.journal import layout
from stepscope.journal.quarantine import Lot, Quarantine, Unreadable, quarantined
from stepscope.journal.read import find_writer

GOING = ("running", "stalled", "importing")
"""The states of a run that may still write, and so is not deleted."""
_TRASH = ".deleted-"
"""A folder of runs with such a name is no run's: its files are being removed."""


class Freed(Struct, frozen=True):
    """Bytes on disk that a deletion freed."""

    journals: int = 0
    quarantine: int = 0


def delete_files(home: Path, run: str, before: int) -> Freed:
    """Delete the files of a run but for those of processes that began after a time in ns: they are a new start.

    The journals vanish at once for every reader. What a kill leaves behind is removed by the next call for any run.
    """
    aside = sum(_delete_lots(home, sink, run, before) for sink in quarantined(home))
    freed = _delete_journals(home, run, before) if layout.is_safe(run) else 0
    if layout.is_safe(run) and not (layout.runs_folder(home) / run).exists():
        for path in (home / "shipping").glob(f"{run}@*.want"):
            with contextlib.suppress(OSError):
                path.unlink()
    return Freed(freed, aside)


def has_journals(home: Path, run: str) -> bool:
    """Tell whether a home holds journals of a run."""
    return layout.is_safe(run) and (layout.runs_folder(home) / run).is_dir()


def _delete_journals(home: Path, run: str, before: int) -> int:
    folder = layout.runs_folder(home) / run
    going = [name for name in layout.list_writers(home, run) if find_writer(folder / name).wall_ns <= before]
    if len(going) == len(layout.list_writers(home, run)):
        doomed = [folder] if folder.is_dir() else []
    else:
        doomed = [folder / name for name in going]
    for number, path in enumerate(doomed):
        os.replace(path, layout.runs_folder(home) / f"{_TRASH}{run}-{os.getpid()}-{os.urandom(4).hex()}-{number}")
    return sum(map(_remove, _trash(home)))


def _trash(home: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in layout.runs_folder(home).iterdir() if path.name.startswith(_TRASH))


def _remove(folder: Path) -> int:
    size = folder_bytes(folder)
    shutil.rmtree(folder)
    return size


def folder_bytes(folder: Path) -> int:
    """Add up the sizes of all files below a folder."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
    return size


def run_bytes(home: Path, run: str) -> int:
    """What the journals of a run take on disk."""
    return folder_bytes(layout.runs_folder(home) / run) if layout.is_safe(run) else 0


def _delete_lots(home: Path, sink: str, run: str, before: int) -> int:
    aside, freed = Quarantine(home, sink), 0
    found: list[Lot | Unreadable] = [*aside.lots(), *aside.unreadable()]
    for lot in found:
        owner, since = (lot.run, lot.time) if isinstance(lot, Unreadable) else (lot.batch.writer.run, lot.note.time)
        if owner == run and since <= before:
            with contextlib.suppress(OSError):
                freed += lot.path.stat().st_size
            aside.discard(lot)
    return freed
