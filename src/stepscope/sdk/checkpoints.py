"""Checkpoints and artifacts: recorded with their path and step; their files are measured on a thread of its own."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stepscope.model import names
from stepscope.model.records import EVENT
from stepscope.sdk.attributes import clean, shorten
from stepscope.sdk.context import Mark, current_ids, pack_any, text_of
from stepscope.sdk.flusher import PeriodicWork
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.spans import Span
from stepscope.sdk.tensors import Row

if TYPE_CHECKING:
    from stepscope.sdk.media_values.medium import Medium

PLAIN_SECONDS = 0.2
"""A checkpoint that was not entered as a context manager by then is complete."""
MAX_WAITING = 1000
"""The most checkpoints that wait to be recorded, or to be measured; more are counted as dropped."""
MAX_FILES, MAX_SECONDS = 10_000, 10.0
"""Limits on the files of one checkpoint that are looked at, and on the time for that."""
MAX_CONTENT = 4 * 1024 * 1024
"""Bytes up to which the content of a checkpoint is hashed."""
MAX_COPIED = 1000
"""Files of one artifact that are copied."""
MAX_OFFERED = 100
"""Files of artifacts that wait to be copied at a time, so that there is room for other media."""
LEAVE_SECONDS, COPY_SECONDS = 1.0, 3.0
"""How long the end of a run waits for the measurement of its last checkpoints, and for artifacts to be copied.

It waits no longer than half of the time that `finish` has left.
"""
_POLL_SECONDS = 0.005
_INFO = 9


class CheckpointedPart(Part, Protocol):
    """A process's part in a run that records checkpoints."""

    periodic: PeriodicWork

    def span(self, name: str | None = None, /, **attrs: Any) -> Span:
        """Open a span."""

    def put_media(self, media: "Sequence[tuple[str, Medium]]", row: Row, first: int = 0) -> None:
        """Record media."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The files of a checkpoint; `complete` is false when there were too many, or they could not be read."""

    bytes: int
    files: int
    manifest: str
    """A hash of the names, sizes and times of all files."""
    content: str
    """A hash of names and content; empty for more than a few megabytes."""
    complete: bool


class Kept:
    """Files that a run made, and the place of the call that recorded them."""

    EVENT: ClassVar[str]
    MEASURED: ClassVar[str]

    def __init__(self, path: str, mark: Mark, attrs: Mapping[str, Any]) -> None:
        self.path, self.mark, self.attrs = path, mark, attrs
        self.id = os.urandom(8).hex()
        self.ids = current_ids()
        self.made = time.monotonic()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is a reference, of which nothing is read."""
        return "://" in self.path

    def walk(self, on_unreadable: Callable[[str], object]) -> Iterator[tuple[str, str]]:
        """Yield its files: their names within it, and their paths."""
        return walk_files(self.path, on_unreadable)


class Checkpoint(Kept):
    """A checkpoint of a run. In `with`, the block that saves it is a span, and nothing is recorded if it raises."""

    EVENT, MEASURED = names.EVENT_CHECKPOINT, names.EVENT_CHECKPOINT_MEASURED

    def __init__(self, owner: "Checkpoints", path: str, mark: Mark, attrs: Mapping[str, Any]) -> None:
        super().__init__(path, mark, attrs)
        self._owner = owner
        self._span: Span | None = None

    def __enter__(self) -> "Checkpoint":
        self._owner.enter(self)
        self._span = self._owner.open_span(self.path)
        self._span.__enter__()
        self.made = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        seconds = time.monotonic() - self.made
        if self._span is not None:
            self._span.__exit__(kind, error, where)
        if error is None:
            self._owner.record(self, seconds)


class Artifact(Kept):
    """Files that a run made for others to use, by their path or paths, or by a reference such as `s3://bucket/data`."""

    EVENT, MEASURED = names.EVENT_ARTIFACT, names.EVENT_ARTIFACT_MEASURED

    def __init__(self, source: Any, mark: Mark, attrs: Mapping[str, Any], name: str, kind: str, *, copy: bool) -> None:
        several = (
            {text_of(key): place_of(path) for key, path in source.items()} if isinstance(source, Mapping) else None
        )
        self._several, self.name, self.kind, self.copy = several, name, kind, copy
        self.held: Any = None
        """What must not be freed before the files are copied, such as the folder that they are in."""
        about = {"name": name, "kind": kind, **({"copied": True} if copy else {})}
        super().__init__("" if isinstance(source, Mapping) else place_of(source), mark, {**attrs, **about})

    @property
    def is_elsewhere(self) -> bool:
        """Whether it has only references, or nothing at all."""
        if self._several is None:
            return super().is_elsewhere
        return all("://" in path for path in self._several.values())

    def walk(self, on_unreadable: Callable[[str], object]) -> Iterator[tuple[str, str]]:
        """Yield its files: their names within it, and their paths; references have none."""
        if self._several is None:
            yield from super().walk(on_unreadable)
            return
        for name, path in self._several.items():
            if "://" not in path:
                for inner, place in walk_files(path, on_unreadable):
                    yield (name if not os.path.isdir(path) else f"{name}/{inner}"), place


class Checkpoints:
    """The checkpoints and artifacts of one process. Every call returns at once and never raises."""

    def __init__(self, run: CheckpointedPart) -> None:
        self._run = run
        self._plain: deque[Checkpoint] = deque()
        """Those that may still be entered as context managers."""
        self._unmeasured: deque[Kept] = deque()
        self._copying = self._left = False
        """Whether files of an artifact are still to be copied; whether the run has ended."""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        run.periodic.rounds.append(self._record_plain)
        run.periodic.closing.append(self._leave)

    def after_fork(self) -> None:
        """Discard what the parent records."""
        self._plain.clear()
        self._unmeasured.clear()
        self._thread = None
        self._copying = self._left = False
        self._starting = threading.Lock()
        self._run.periodic.closing.append(self._leave)

    def add(self, path: Any, mark: Mark, attrs: Mapping[str, Any]) -> Checkpoint:
        """Begin to record a checkpoint."""
        made = Checkpoint(self, place_of(path), mark, attrs)
        if len(self._plain) < MAX_WAITING:
            self._plain.append(made)
        else:
            self._run.outcomes.add("dropped", "checkpoint", "too many")
        return made

    def add_artifact(self, made: Artifact) -> None:
        """Record an artifact."""
        self._copying = self._copying or made.copy
        self.record(made)

    def note_used(self, what: Any, kind: str, attrs: Mapping[str, Any]) -> None:
        """Record an artifact that this process uses."""
        if issubclass(type(what), Artifact):  # a proxy may raise when it is asked for its class
            found = {"artifact": what.id, "name": what.name, "path": what.path}
        else:
            text = text_of(what)
            is_path = not issubclass(type(what), str) or "/" in text  # the disk is not asked: it may hang
            found = {"path": place_of(what)} if is_path else {"name": text}
        self._run.event(names.EVENT_ARTIFACT_USED, {**attrs, **found, **({"kind": kind} if kind else {})})

    def note_loaded(self, path: Any, step: Any) -> None:
        """Record the checkpoint that this attempt continues from."""
        found = {} if step is None else {"step": step}
        self._run.event(names.EVENT_CHECKPOINT_LOADED, {"path": place_of(path), **found})

    def enter(self, checkpoint: Checkpoint) -> None:
        """Leave the record to the end of the block."""
        try:
            self._plain.remove(checkpoint)
        except ValueError:  # recorded already, as it took so long: the record at the end of the block replaces it
            return

    def open_span(self, path: str) -> Span:
        """Open the span of the block that saves."""
        return self._run.span(names.SPAN_CHECKPOINT, **{names.ATTR_CHECKPOINT_PATH: path})

    def record(self, checkpoint: Kept, seconds: float | None = None) -> None:
        """Record a checkpoint that is complete, or an artifact, and have its files measured."""
        took = {} if seconds is None else {"seconds": round(seconds, 6)}
        self._put(checkpoint, checkpoint.EVENT, {**checkpoint.attrs, **took, "path": checkpoint.path})
        if checkpoint.is_elsewhere:
            return
        if len(self._unmeasured) >= MAX_WAITING:
            self._run.outcomes.add("dropped", "checkpoint", "unmeasured")
            return
        self._unmeasured.append(checkpoint)
        self._start()

    def _put(self, checkpoint: Kept, name: str, attrs: Mapping[str, Any]) -> None:
        """Record an event at the step and in the span in which the checkpoint was made."""
        try:
            mark = checkpoint.mark
            about = {**clean(attrs), "id": checkpoint.id, **({} if mark.step is None else {"step": mark.step})}
            record = (EVENT, time.time_ns(), *mark, *checkpoint.ids, _INFO, name, about)
            self._run.recorder.put(Unmasked(pack_any(record)))
        except BaseException as error:
            pass_on(error)
            self._run.outcomes.reject("checkpoint", type(error).__name__)

    def _record_plain(self) -> None:
        """Record those that were not entered; called by the flusher in each round."""
        if self._plain:
            self.settle(time.monotonic() - PLAIN_SECONDS)

    def settle(self, before: float = float("inf")) -> None:
        """Record those that were made before a time and not entered."""
        while self._plain and self._plain[0].made <= before:
            try:
                checkpoint = self._plain.popleft()
            except IndexError:  # another thread was faster
                return
            self.record(checkpoint)

    def _start(self) -> None:
        if self._thread is not None or not self._starting.acquire(blocking=False):
            return  # who has the lock sees what was just added
        try:
            if self._unmeasured:
                self._thread = threading.Thread(target=self._measure_all, name="stepscope-checkpoints", daemon=True)
                self._thread.start()
        except RuntimeError:  # no thread can be started now
            self._thread = None
        finally:
            self._starting.release()

    def _measure_all(self) -> None:
        while True:
            try:
                checkpoint = self._unmeasured.popleft()
            except IndexError:
                self._thread = None
                if not self._unmeasured:
                    self._copying = False
                    return
                continue  # one was added in this moment
            try:
                found = measure(checkpoint.path, walk=checkpoint.walk)
                media = self._copy(checkpoint) if isinstance(checkpoint, Artifact) and checkpoint.copy else []
            except Exception as error:
                self._run.outcomes.add("failed", "checkpoint", type(error).__name__)
                continue
            about = {"bytes": found.bytes, "files": found.files, "manifest": found.manifest, "complete": found.complete}
            content = {"content": found.content} if found.content else {}
            copies = _copies(media, found.files) if media else {}
            self._put(checkpoint, checkpoint.MEASURED, {**about, **content, **copies, "path": checkpoint.path})
            self._await(media, past_end=True)

    def _copy(self, artifact: Artifact) -> "list[Medium]":
        """Have the files of an artifact copied beside the journal, as logged files are, and wait for that."""
        from stepscope.sdk.media_values.kinds import File  # imported on use

        media: list[Medium] = []
        for name, place in artifact.walk(lambda path: self._run.outcomes.reject(artifact.name, "unreadable folder")):
            if len(media) >= MAX_COPIED:
                self._run.outcomes.reject(artifact.name, f"more than {MAX_COPIED} files")
                break
            file = File(place, name.replace(os.sep, "/"))
            file.artifact = artifact.id
            media.append(file)
        for at in range(0, len(media), MAX_OFFERED):
            if self._left:
                for each in media[at:]:
                    each.kept = False
                self._run.outcomes.add("dropped", "event", "artifact not copied in time", len(media) - at)
                break
            part = media[at : at + MAX_OFFERED]
            row = Row(time.time_ns(), *artifact.mark, None, {})
            self._run.put_media([(artifact.name, file) for file in part], row, first=at)
            self._await(part)
        return media

    def _await(self, media: "Sequence[Medium]", *, past_end: bool = False) -> None:
        """Wait until media are recorded or counted, or the run ends; it counts the rest when its time is over."""
        for each in media:
            while each.kept is None and not (self._left and not (past_end and self._in_time())):
                time.sleep(_POLL_SECONDS)

    def _in_time(self) -> bool:
        return time.monotonic() < self._run.periodic.until + LEAVE_SECONDS

    def _leave(self) -> None:
        """Record what is left at the end of the run, and wait a moment for the measurement."""
        self.settle()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            half = (self._run.periodic.until - time.monotonic()) / 2
            thread.join(max(min(COPY_SECONDS if self._copying else LEAVE_SECONDS, half), 0.0))
        self._left = True


def _copies(media: "Sequence[Medium]", files: int) -> dict[str, int]:
    """Count the files that were copied and those that were not; those still being copied are in neither."""
    copied = sum(each.kept is True for each in media)
    waiting = sum(each.kept is None for each in media)
    return {"copied_files": copied, "failed_files": max(files, len(media)) - copied - waiting}


def place_of(path: Any) -> str:
    """Return a path as an absolute one, and an address or anything else as text."""
    try:
        text = os.fsdecode(path)
        return shorten(text if "://" in text else os.path.abspath(text))
    except BaseException as error:
        pass_on(error)
        return shorten(text_of(path))


def measure(
    path: str,
    clock: Callable[[], float] = time.monotonic,
    *,
    files: int = MAX_FILES,
    content: int = MAX_CONTENT,
    walk: Callable[[Callable[[str], object]], Iterable[tuple[str, str]]] | None = None,
) -> Measured:
    """Add up a file, the files of a folder, or those that `walk` yields; what cannot be read makes it incomplete."""
    until, size, complete = clock() + MAX_SECONDS, 0, True
    found: list[tuple[str, str, os.stat_result]] = []
    unreadable: list[str] = []
    for name, place in walk_files(path, unreadable.append) if walk is None else walk(unreadable.append):
        if len(found) >= files or clock() > until:
            complete = False
            break
        try:
            stat = os.stat(place)
        except (OSError, ValueError):
            unreadable.append(place)
            continue
        found.append((name, place, stat))
        size += stat.st_size
    found.sort()
    complete = complete and bool(found) and not unreadable
    digest = sha256()
    for name, _, stat in found:
        digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    small = complete and size <= content
    return Measured(size, len(found), digest.hexdigest(), _content(found, content) if small else "", complete)


def walk_files(path: str, on_unreadable: Callable[[str], object]) -> Iterator[tuple[str, str]]:
    """Yield the files below a folder, or the file itself: names within the checkpoint, and paths."""
    if not os.path.isdir(path):
        yield os.path.basename(path), path
        return
    folders = [""]
    while folders:
        inside = folders.pop()
        try:
            with os.scandir(os.path.join(path, inside)) as entries:
                for entry in entries:
                    name = os.path.join(inside, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    else:
                        yield name, entry.path
        except OSError:
            on_unreadable(inside)


def _content(found: list[tuple[str, str, os.stat_result]], most: int) -> str:
    """Hash names and content; empty when a file cannot be read or is larger by now."""
    digest = sha256()
    for name, place, _ in found:
        try:
            with open(place, "rb") as file:
                data = file.read(most + 1)
        except (OSError, ValueError):
            return ""
        if len(data) > most:
            return ""
        digest.update(f"{name}\0{len(data)}\n".encode("utf-8", "surrogateescape"))
        digest.update(data)
    return digest.hexdigest()
