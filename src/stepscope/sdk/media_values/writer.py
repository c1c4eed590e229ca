"""The thread that encodes media, writes their blobs and then records them; what waits for it is bounded in bytes."""

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from stepscope.journal.blobs import Blobs, blobs_of
from stepscope.journal.layout import slug
from stepscope.journal.segments import Journal
from stepscope.model.names import EVENT_MEDIA, SEVERITIES
from stepscope.model.records import EVENT, METRIC
from stepscope.sdk.attributes import safe_text
from stepscope.sdk.context import current_ids, pack_any
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.media_values.capture import MAX_BYTES, Unusable
from stepscope.sdk.media_values.kinds import Histogram
from stepscope.sdk.media_values.layers import Layer
from stepscope.sdk.media_values.medium import MAX_FILE, Encoded, Medium
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.overhead import Overhead
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.settings import Settings
from stepscope.sdk.tensors import Row

MAX_WAITING = 1000
DISK_SHARE = 0.5
"""The part of the disk quota that blobs may take; the rest is for records."""
_PIECE = 1024 * 1024
_JOURNAL_SECONDS = 10.0


class Writes(Protocol):
    """The flusher, as far as it is used here."""

    journal: Journal | None
    blob_bytes: int

    def start(self) -> None:
        """Start it, unless it runs."""

    def wake(self) -> None:
        """Start a round."""


class Recording(Protocol):
    """The parts of a run that are used here."""

    outcomes: Outcomes
    overhead: Overhead
    recorder: Recorder
    settings: Settings

    @property
    def flusher(self) -> Writes:
        """The flusher."""


class _Dropped(Exception):
    """A medium is dropped; the message is the reason it is counted under."""


class _Job:
    """A captured medium with its key and the place of the call: time, step, axis and span."""

    __slots__ = ("ids", "index", "key", "medium", "row", "settled")

    def __init__(self, key: str, medium: Medium, row: Row, ids: tuple[bytes | None, bytes | None], index: int) -> None:
        self.key, self.medium, self.row, self.ids, self.index = key, medium, row, ids, index
        self.settled = False


class MediaWriter:
    """Encodes the media of one run on one thread. Nothing here raises, and only `drain` and `close` wait.

    Every medium is written, or counted as rejected or dropped: a file as one event, a histogram as one metric.
    """

    def __init__(self, run: Recording) -> None:
        self._run = run
        self._jobs: deque[_Job | threading.Event] = deque()
        """What waits, and what is being encoded, which is the first."""
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """One entry for each job; unlike a condition, it can be used in a signal handler."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._settling = threading.Lock()
        """Held while a medium is counted or recorded, so that `close` counts each one once."""
        self._closed = False
        self._cpu_seconds = 0.0

    def take(self, media: Sequence[tuple[str, Medium]], row: Row, first: int = 0) -> None:
        """Take what one call captured, or a later part of it; `first` is the index of the first of each key."""
        ids = current_ids()
        seen: dict[str, int] = {}
        copying = 0.0
        for key, medium in media:
            copying += medium.copy_seconds
            index = seen.get(key, 0)
            seen[key] = index + 1
            name = key if row.category is None else f"{row.category}/{key}"
            for each in (medium, *medium.layers):
                self._add(_Job(name, each, row, ids, first + index))
        if copying:
            self._run.overhead.add("copies", copying, optional=False)
        self._start()

    def _add(self, job: _Job) -> None:
        if job.medium.problem is not None:
            self._reject(job, job.medium.problem)
        elif self._closed:
            self._drop(job.medium, "finished")
        elif not self._has_room(job.medium.size):
            self._drop(job.medium, "media waiting")
            self._run.outcomes.notice(
                "media", "waiting", f"media are logged faster than they are encoded; {job.key!r} is the first dropped"
            )
        else:
            self._jobs.append(job)
            self._bell.put(True)

    def _has_room(self, size: int) -> bool:
        return len(self._jobs) < MAX_WAITING and self._waiting_bytes() + size <= MAX_BYTES

    def _waiting_bytes(self) -> int:
        return sum(job.medium.size for job in self._jobs.copy() if isinstance(job, _Job))

    def _reject(self, job: _Job, reason: str) -> None:
        job.medium.kept = False
        self._run.outcomes.reject(job.key, reason)

    def _put(self, job: _Job, packed: bytes) -> None:
        self._run.recorder.put(packed)
        job.medium.kept = True

    def _drop(self, medium: Medium, reason: str) -> None:
        medium.kept = False
        self._run.outcomes.add("dropped", "metric" if isinstance(medium, Histogram) else "event", reason)

    def _start(self) -> None:
        if self._thread is not None or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="stepscope-media", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:  # no thread can be started now, or any more at interpreter shutdown
            pass
        finally:
            self._starting.release()

    def drain(self, timeout: float) -> bool:
        """Wait until everything taken before the call is recorded; False when that took too long."""
        if not self._jobs:
            return True
        self._start()
        done = threading.Event()
        self._jobs.append(done)
        self._bell.put(True)
        return done.wait(max(timeout, 0.0))

    def close(self, timeout: float) -> None:
        """Record what waits, for a limited time, and count the rest as dropped; the thread ends."""
        self.drain(timeout)
        with self._settling:
            self._closed = True
            for job in self._jobs.copy():
                if isinstance(job, _Job) and not job.settled:
                    self._drop(job.medium, "media not encoded in time")
        self._bell.put(False)

    def _loop(self) -> None:
        while self._bell.get() and not self._closed:
            job = self._jobs[0]
            if isinstance(job, threading.Event):
                job.set()
            else:
                self._record(job)
                seconds = time.thread_time()
                self._run.overhead.add("media", seconds - self._cpu_seconds, optional=False)
                self._cpu_seconds = seconds
            self._jobs.popleft()

    def _record(self, job: _Job) -> None:
        try:
            packed = self._packed(job)
            self._settle(job, partial(self._put, job, packed))
        except _Dropped as reason:
            self._settle(job, partial(self._drop, job.medium, str(reason)))
        except BaseException as error:
            pass_on(error)
            why = str(error) if isinstance(error, Unusable) else f"unreadable {type(error).__name__}"
            self._settle(job, partial(self._reject, job, why))

    def _settle(self, job: _Job, call: Callable[[], None]) -> None:
        """Record or count a medium, once."""
        with self._settling:
            if not self._closed:
                job.settled = True
                call()

    def _packed(self, job: _Job) -> bytes:
        """Return the record of a medium, whose blob is written then."""
        if not isinstance(job.medium, Histogram):
            return self._file_record(job, job.medium.encode(fast=self._waiting_bytes() > MAX_BYTES // 2))
        row = job.row._replace(category=None, values={job.key: job.medium.recorded()})
        return pack_any((METRIC, *row))

    def _file_record(self, job: _Job, found: Encoded) -> bytes:
        digest, size = self._keep(found.content)
        row = job.row
        attrs: dict[str, Any] = {"key": safe_text(job.key), "kind": job.medium.kind, "sha256": digest, "size": size}
        attrs |= {"format": found.format[:16], "name": safe_text(_file_name(job, found.format)), **found.facts}
        if job.medium.caption is not None:
            attrs["caption"] = safe_text(job.medium.caption)
        if job.index:
            attrs["index"] = job.index
        if isinstance(job.medium, Layer):
            attrs["layer"] = job.medium.group
        if job.medium.artifact is not None:
            attrs["artifact"] = job.medium.artifact
        place = (row.time, row.step, row.axis, *job.ids, SEVERITIES["INFO"], EVENT_MEDIA)
        return pack_any((EVENT, *place, attrs))  # masked here: digests would fill the flusher's list of known texts

    def _keep(self, content: bytes | Path) -> tuple[str, int]:
        """Write a blob; return its digest and its size. _Dropped when the disk or the quota is full."""
        size = len(content) if isinstance(content, bytes) else _file_size(content)
        flusher, outcomes = self._run.flusher, self._run.outcomes
        if flusher.blob_bytes + size > self._run.settings.disk_quota * DISK_SHARE:
            text = "media fill their part of the disk quota and are dropped; raise `disk_quota`, or log fewer"
            outcomes.notice("media", "quota", text)
            raise _Dropped("media disk quota")
        try:
            blobs = self._blobs()
            if isinstance(content, bytes):
                digest, grown = blobs.put(content)
            else:
                digest, size, grown = blobs.copy(_pieces(content))
        except OSError as error:
            outcomes.notice("media", "disk", f"media cannot be written ({error}) and are dropped")
            raise _Dropped("media disk") from None
        flusher.blob_bytes += grown
        return digest, size

    def _blobs(self) -> Blobs:
        """Return the blobs beside the journal, which the flusher opens in its first round."""
        flusher = self._run.flusher
        deadline = time.monotonic() + _JOURNAL_SECONDS
        while flusher.journal is None:
            if time.monotonic() > deadline:
                raise OSError("the journal is not open")
            flusher.start()
            flusher.wake()
            time.sleep(0.01)
        return blobs_of(flusher.journal.folder)


def _file_name(job: _Job, format: str) -> str:
    """Return the name under which the file is saved: its own, else one of key, step and format."""
    if job.medium.artifact is not None and job.medium.name:
        return job.medium.name.lstrip("/")[-1000:] or "file"
    if job.medium.name:
        return os.path.basename(job.medium.name)[-200:] or "file"
    layer = slug(job.medium.group) if isinstance(job.medium, Layer) else None
    places = [str(place) for place in (job.row.step, job.index or None, layer) if place is not None]
    return f"{'-'.join([slug(job.key), *places])}.{slug(format)}"


def _file_size(path: Path) -> int:
    """Return the size of a file; Unusable when it cannot be read, or is nothing that can be."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise Unusable(f"unreadable file: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise Unusable("not a regular file")
    if found.st_size > MAX_FILE:
        raise Unusable(f"larger than {MAX_FILE // 1024**2} MiB")
    return found.st_size


def _pieces(path: Path) -> Iterator[bytes]:
    """Read a file in pieces; Unusable when it cannot be read, or grows beyond the limit meanwhile."""
    left = MAX_FILE
    try:
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                left -= len(piece)
                if left < 0:
                    raise Unusable(f"larger than {MAX_FILE // 1024**2} MiB")
                yield piece
    except OSError as error:
        raise Unusable(f"unreadable file: {error.strerror}") from None
