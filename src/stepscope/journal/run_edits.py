"""Edits of runs (HOME/edits, one append-only file per host), and the deletion of a run's files."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from stepscope.journal import layout, request_files
from stepscope.journal.atomic_files import FileLock, append_synced, sync_folder
from stepscope.journal.quarantine import Entry, Quarantine, Unreadable, quarantined
from stepscope.journal.segments import find_writer
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event
from stepscope.model.redaction import mask_text
from stepscope.model.run_description import Change, Edit, in_order, safe_change
from stepscope.model.run_requests import Request, Requests, asked_of, merged_all
from stepscope.wire import frames

_SUFFIX = ".edits"
_FIELDS = Change.__struct_fields__
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Edit).decode


class Edits:
    """All edits of a home. Safe to use from any thread and any number of processes.

    An edit is on disk when `append` returns. A damaged edit does not affect the others. Where several hubs share a
    store, the function given to `share_with` takes the place of the disk, and `add` brings the edits of the others.
    """

    def __init__(self, home: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self.folder = home / "edits"
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._written: list[Edit] = []
        self._others: dict[str, Edit] = {}
        self._by_run: dict[str, list[Edit]] = {}
        self._share: Callable[[Edit], None] | None = None
        """Keeps an edit for all hubs; raises when it cannot."""
        self._deleted: dict[str, int] = {}
        """When each deleted run was deleted, in ns, as last read."""

    def share_with(self, share: Callable[[Edit], None]) -> None:
        """Keep edits for all hubs from now on; `share` raises when it cannot."""
        self._share = share

    def of(self, run: str) -> Sequence[Edit]:
        """The edits of a run, as they are on disk now."""
        return self.all().get(run, ())

    def all(self) -> dict[str, list[Edit]]:
        """The edits by run; OSError when they are there and cannot be read."""
        with self._lock:  # or a slow reader would restore what it read before an edit
            self._refresh()
            return self._by_run

    def _refresh(self) -> None:
        paths = self._paths()
        stamp = tuple((path.name, found.st_size, found.st_mtime_ns) for path in paths if (found := _stat(path)))
        if stamp != self._stamp:
            self._written = _read_all(paths)
            self._stamp = stamp
            self._merge()

    def _merge(self) -> None:
        written = {edit.id for edit in self._written}
        others = [edit for edit in self._others.values() if edit.id not in written]
        by_run = _by_run([*self._written, *others])
        deletions = {run: [edit.time for edit in edits if edit.deleted] for run, edits in by_run.items()}
        self._deleted = {run: max(times) for run, times in deletions.items() if times}
        self._by_run = by_run

    def written(self) -> list[Edit]:
        """The edits on disk; the same list until they change."""
        with self._lock:
            self._refresh()
            return self._written

    def add(self, edits: Iterable[Edit]) -> None:
        """Add edits that are kept elsewhere; their requests reach the programs whose journals are in this home."""
        added = {edit.id: edit for edit in edits}
        with self._lock:
            self._refresh()
            fresh = [edit for id, edit in added.items() if id not in self._others]
            self._others = self._others | added
            self._merge()
        for edit in fresh:
            with contextlib.suppress(OSError):
                self._post(edit)

    def requests(self, run: str) -> Requests:
        """What users ask of a program."""
        edits = in_order(self.of(run))
        return merged_all(
            asked_of(edit.id, edit.time, edit.who, edit.request) for edit in edits if edit.request is not None
        )

    def newest_attempt(self, run: str) -> int:
        """The newest attempt of a run whose journals are in this home; 0 without one."""
        names = layout.list_writers(self.folder.parent, run) if layout.is_safe(run) else []
        return max((found.attempt for name in names if (found := layout.parse_writer(name))), default=0)

    def _post(self, edit: Edit) -> None:
        """Leave a request where the processes of its run look, if their journals are in this home."""
        if edit.request is not None and has_journals(self.folder.parent, edit.run):
            request_files.post(self.folder.parent, edit.run, asked_of(edit.id, edit.time, edit.who, edit.request))

    def append(
        self,
        run: str,
        who: str,
        change: Change | None = None,
        *,
        after: int = 0,
        deleted: bool = False,
        request: Request | None = None,
    ) -> Edit:
        """Write an edit and return it; OSError when it could not be written.

        Its time is after every known edit of the run, and after `after`, even if the clock was set back.
        """
        if self._share is not None:
            edit = self._made(run, who, change, self.of(run), after, deleted=deleted, request=request)
            self._share(edit)
            self.add([edit])
            return edit
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / f"{layout.slug(os.uname().nodename)}{_SUFFIX}"
        with FileLock(path, wait=True) as lock:
            known = _by_run(_read_all(self._paths())).get(run, ())
            edit = self._made(run, who, change, known, after, deleted=deleted, request=request)
            _write(lock.fd, frames.frame(_encode(edit)))
            sync_folder(self.folder)
            sync_folder(self.folder.parent)
        self.all()
        self._post(edit)
        return edit

    def _made(
        self,
        run: str,
        who: str,
        change: Change | None,
        known: Sequence[Edit],
        after: int,
        *,
        deleted: bool,
        request: Request | None,
    ) -> Edit:
        moment = max([self._clock(), after + 1, *(edit.time + 1 for edit in known)])
        id = os.urandom(8).hex()
        change = safe_change(change or Change())
        return Edit(run=run, time=moment, id=id, who=mask_text(who), change=change, deleted=deleted, request=request)

    def deleted(self) -> dict[str, int]:
        """The deleted runs, and when each was deleted, in ns."""
        self.all()
        return self._deleted

    def covers(self, batch: Batch) -> bool:
        """Return whether a batch was written before its run was deleted; a new start with the same id is not affected.

        Does not read the disk: edits of other processes are seen after the next `all`.
        """
        moment = self._deleted.get(batch.writer.run)
        if moment is None:  # so with nearly all batches, and each is asked about three times
            return False
        newest = max([record.time for record in batch.records], default=0)
        return is_from_before(batch.writer, newest, moment)

    def _paths(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.suffix == _SUFFIX)
        except OSError:
            return []


def edit_of(writer: Writer, event: Event, number: int = 0) -> Edit | None:
    """Return the edit recorded as an event by a process of the run; None when it is invalid."""
    try:
        change = msgspec.convert({key: event.attrs[key] for key in _FIELDS if key in event.attrs}, Change)
    except msgspec.ValidationError:
        return None
    who = f"rank {writer.rank} on {writer.host}" if writer.host else f"rank {writer.rank}"
    return Edit(run=writer.run, time=event.time, id=f"{writer.id}/{number:06d}", who=who, change=change)


def is_from_before(writer: Writer, newest: int, moment: int) -> bool:
    """Return whether records of a writer, the newest of which has a time, belong to its run before a deletion.

    For a process of Stepscope the time of its start decides, for another client that of its records.
    """
    began = writer.wall_ns if writer.wall_ns and layout.parse_writer(writer.id) is not None else newest
    return began <= moment


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _read_all(paths: Sequence[Path]) -> list[Edit]:
    found: list[Edit] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found += _read(path.read_bytes())
    return found


def _by_run(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    found: dict[str, list[Edit]] = {}
    for edit in edits:
        found.setdefault(edit.run, []).append(edit)
    return found


def _read(data: bytes) -> list[Edit]:
    found = []
    for each in frames.scan(data, final=True):
        if isinstance(each, frames.Frame):
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(_decode(each.payload))
    return found


def _write(fd: int, data: bytes) -> None:
    """Append a frame and fsync; a torn frame, of an earlier kill or of a failure here, is truncated."""
    kept = os.pread(fd, os.fstat(fd).st_size, 0)
    end = max((each.end for each in frames.scan(kept)), default=0)
    os.ftruncate(fd, end)
    append_synced(fd, data, end)


_TRASH = ".deleted-"
"""Prefix of folders whose files are being removed; they are not runs."""


class Freed(Struct, frozen=True):
    """Bytes on disk that a deletion freed."""

    journals: int = 0
    quarantine: int = 0


def delete_files(home: Path, run: str, before: int) -> Freed:
    """Delete the files of a run, except those of processes that started after a time in ns.

    The journals vanish at once for every reader. Files left by a kill are removed by the next call for any run.
    """
    aside = sum(_delete_entries(home, sink, run, before) for sink in quarantined(home))
    freed = _delete_journals(home, run, before) if layout.is_safe(run) else 0
    if layout.is_safe(run) and not (layout.runs_folder(home) / run).exists():
        request_files.remove(home, run)
        for path in (home / "shipping").glob(f"{run}@*.want"):
            with contextlib.suppress(OSError):
                path.unlink()
    return Freed(freed, aside)


def has_journals(home: Path, run: str) -> bool:
    """Return whether a home holds journals of a run."""
    return layout.is_safe(run) and (layout.runs_folder(home) / run).is_dir()


def _delete_journals(home: Path, run: str, before: int) -> int:
    folder = layout.runs_folder(home) / run
    going = [name for name in layout.list_writers(home, run) if find_writer(folder / name).wall_ns <= before]
    if len(going) == len(layout.list_writers(home, run)):
        removed = [folder] if folder.is_dir() else []
    else:
        removed = [folder / name for name in going]
    for number, path in enumerate(removed):
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
    """Return the size of the journals of a run."""
    return folder_bytes(layout.runs_folder(home) / run) if layout.is_safe(run) else 0


def _delete_entries(home: Path, sink: str, run: str, before: int) -> int:
    aside, freed = Quarantine(home, sink), 0
    found: list[Entry | Unreadable] = [*aside.entries(), *aside.unreadable()]
    for entry in found:
        owner, since = (
            (entry.run, entry.time) if isinstance(entry, Unreadable) else (entry.batch.writer.run, entry.note.time)
        )
        if owner == run and since <= before:
            with contextlib.suppress(OSError):
                freed += entry.path.stat().st_size
            aside.discard(entry)
    return freed
