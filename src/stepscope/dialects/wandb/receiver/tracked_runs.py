"""The state of W&B runs (metadata, line counts, summary) that clients need to resume; one file per run."""

import contextlib
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

import msgspec

from stepscope.extend.receiver import (
    Engine,
    EngineError,
    Ingest,
    Refusal,
    Refused,
    Upload,
    list_runs,
    remove_folder,
    replace_file,
)
from stepscope.model.errors import Retry
from stepscope.model.names import ATTR_HEARTBEAT
from stepscope.model.ports import Writer, run_id_problem
from stepscope.model.records import Metric, Record

HEARTBEAT_SECONDS = 30.0
"""The client's heartbeat interval when it has nothing else to send."""
LONGEST_NAME = 128
"""The maximum length of a project name or run id, as in W&B."""
START, END = "start", "end"
"""The streams of the batches that record the start and the end of an attempt."""
_MAX_OPEN = 2000
MAX_STREAMS = 3000
"""The limit of streams per run: three for each process that writes to it."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Lines of a stream that were journaled together, as batch `seq` of an attempt."""

    start: int
    stop: int
    seq: int
    attempt: int


class Stream(msgspec.Struct):
    """The progress of one streamed file."""

    lines: int = 0
    first: str = ""
    """A digest of the first line; a different first line means that a new process reused the run id."""
    last: Block | None = None
    tail: str = ""
    """The fields of the last line that a resuming client needs, as JSON."""


class TrackedRun(msgspec.Struct, kw_only=True):
    """A run as its W&B client sees it."""

    project: str
    id: str
    """The id of the run in URLs, which W&B calls its name."""
    run: str
    """The id of the run in the hub."""
    created: int
    unique: str = ""
    """A part of the writers' names that differs from those of a deleted run with this id, whose batches are known."""
    token: str = ""
    """The id of the token that created it, which may read it to resume it."""
    started: int = 0
    """When the current attempt started."""
    attempt: int = 0
    seq: int = 0
    """The number of the next batch."""
    name: str = ""
    notes: str = ""
    tags: list[str] = []
    group: str = ""
    job_type: str = ""
    host: str = ""
    program: str = ""
    commit: str = ""
    repo: str = ""
    config: str = "{}"
    """The client's configuration as JSON; secrets are masked in it, as in the summary."""
    summary: str = "{}"
    parent: str = ""
    """The id in the hub of the run that it was forked from, and the step of that run."""
    from_step: int | None = None
    step: int | None = None
    """The step of the last history line."""
    resuming: bool = False
    """Whether a client has queried how to resume it, so that the next description starts a new attempt."""
    streams: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """Return the progress of a stream."""
        return self.streams.setdefault(name, Stream())

    def writer(self, attempt: int | None = None) -> Writer:
        """Return the writer of an attempt's records."""
        number = attempt or self.attempt
        return Writer(
            id=f"wandb-{self.unique}-a{number}" if self.unique else f"wandb-a{number}",
            run=self.run,
            project=self.project,
            name=self.name or self.id,
            attempt=number,
            host=self.host,
            wall_ns=self.started,
            resource={"stepscope.client": "wandb", ATTR_HEARTBEAT: HEARTBEAT_SECONDS},
        )


class OpenRun:
    """A run in memory. Hold the lock while reading or changing it."""

    def __init__(self, folder: Path, about: TrackedRun, *, unsure: bool) -> None:
        self.folder = folder
        self.about = about
        self.lock = threading.RLock()
        last = [each.last.seq for each in about.streams.values() if each.last is not None]
        self.unsure = set(last if unsure else ())
        """Batches that may not be in the journal; they are submitted again."""
        self.console: dict[tuple[str, int], str] = {}
        """The latest console lines, which the client may send again with changes."""
        self.beat = 0.0
        """The monotonic time of the last recorded heartbeat."""

    def save(self) -> None:
        """Write it to disk; Retry when that fails."""
        try:
            replace_file(self.folder / "run.json", msgspec.json.encode(self.about), fsync=True)
        except OSError as error:
            raise Retry(f"the state of a W&B run cannot be written: {error}", after=5.0) from error


@dataclass(slots=True)
class Sent:
    """The records of one request for a run."""

    run: OpenRun
    project: str | None
    """The project that the token is bound to, if any."""
    process: str = ""
    """The process id in a run with several writers (`mode="shared"`); each of them counts its own lines."""
    upload: Upload = field(default_factory=Upload)
    numbers: set[int] = field(default_factory=set)
    rewritten: list[tuple[str, int]] = field(default_factory=list)
    """Process and number of console lines that were sent before with different text."""

    def stream(self, name: str) -> Stream:
        """Return the progress of a stream of the process; Refused when the run has too many."""
        about, full = self.run.about, f"{name} {self.process}" if self.process else name
        if full not in about.streams and len(about.streams) >= MAX_STREAMS:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "too many processes write to this run"))
        return about.stream(full)


class TrackedRuns:
    """The runs of all W&B clients, in their own folder. Safe to use from any thread."""

    def __init__(
        self, files: Path, ingest: Ingest, engine: Callable[[], Engine], clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._files, self._ingest, self._engine, self.clock = files, ingest, engine, clock
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[tuple[str, str], OpenRun] = WeakValueDictionary()
        self._recent: deque[OpenRun] = deque(maxlen=_MAX_OPEN)

    def folder(self, project: str, *parts: str) -> Path:
        """Return the folder of a project or a subfolder; no name can escape it."""
        return self._files.joinpath("wandb", *(file_name(part) for part in (project, *parts)))

    def make(self, folder: Path) -> Path:
        """Create a folder; Retry when that fails."""
        try:
            missing = [each for each in (folder, *folder.parents) if each.is_relative_to(self._files)]
            for each in reversed(missing):
                each.mkdir(exist_ok=True)
        except OSError as error:
            raise Retry(f"a folder of W&B files cannot be created: {error}", after=5.0) from error
        return folder

    def find(self, project: str, id: str) -> OpenRun | None:
        """Return the run with an id in a project; None when it is unknown."""
        check_name("project", project)
        check_name("run", id)
        with self._lock:
            known = self._open.get((project, id)) or self._load(project, id)
            if known is not None and (not self._recent or self._recent[-1] is not known):
                self._recent.append(known)
            return known

    def of_run(self, project: str, run: str) -> OpenRun | None:
        """Return the W&B run that is a run of the hub; None when another client logged it."""
        for id in dict.fromkeys((run, run.removeprefix(f"{project}."))):
            found = self.find(project, id) if len(id) <= LONGEST_NAME else None
            if found is not None and found.about.run == run:
                return found
        return None

    def _load(self, project: str, id: str) -> OpenRun | None:
        folder = self.folder(project, "runs", id)
        try:
            data = (folder / "run.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Retry(f"the state of a W&B run cannot be read: {error}", after=5.0) from error
        try:
            about = msgspec.json.decode(data, type=TrackedRun)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        made = self._open[project, id] = OpenRun(folder, about, unsure=True)
        return made

    def find_or_make(self, project: str, id: str, bound: str | None = None) -> OpenRun:
        """Return the run with an id, created when it is new; Refused when the token is bound to another project."""
        if bound not in (None, project):
            text = f"this token is for the project {bound!r}, not {project!r}"
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, text))
        known = self.find(project, id)
        if known is not None:
            return known
        run = self._free_id(project, id)
        self._ingest.admit_run(run)
        with self._lock:
            found = self._open.get((project, id))
            if found is None:
                folder = self.make(self.folder(project, "runs", id))
                now = self.clock()
                about = TrackedRun(project=project, id=id, run=run, created=now, unique=f"{now:x}")
                found = self._open[project, id] = OpenRun(folder, about, unsure=False)
                self._recent.append(found)
            return found

    def delete_run(self, run: str, before: int) -> int:
        """Delete the files of a run of the hub that was created before a time in ns; return the bytes freed."""
        freed = 0
        for folder in sorted((self._files / "wandb").glob("*/runs")):
            project = unquote(folder.parent.name)
            for id in {run, run.removeprefix(f"{project}.")}:
                known = None
                with contextlib.suppress(Refused, Retry):
                    known = self.find(project, id)
                if known is not None and known.about.run == run and known.about.created <= before:
                    with self._lock:
                        self._open.pop((project, id), None)
                    freed += remove_folder(known.folder, "run.json")
        return freed

    def _free_id(self, project: str, id: str) -> str:
        """Return the run's id in the hub, prefixed where another project uses it: W&B's ids are unique per project."""
        try:
            taken = [row.project for row in list_runs(self._engine(), ids=[id])]
        except EngineError as error:
            raise Retry(f"the store is failing: {error}", after=5.0) from error
        return id if not taken or project in taken else f"{project}.{id}"

    def add(self, sent: "Sent", records: list[Record], block: Block | None = None) -> Block:
        """Add records, with the sequence number of an existing block or as the next batch of the run.

        Refused when the token is for another project.
        """
        run = sent.run
        if block is None:
            block = Block(0, 0, run.about.seq, run.about.attempt)
            run.about.seq += 1
        reason = self._ingest.add(sent.upload, run.about.writer(block.attempt), records, sent.project, block.seq)
        if reason:
            self._ingest.reject(reason, len(records))
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, reason))
        sent.numbers.add(block.seq)
        run.unsure.add(block.seq)
        return block

    def submit(self, sent: "Sent") -> "Future[None]":
        """Save the run's state, then journal the records; the caller holds the run's lock."""
        sent.run.save()
        future = self._ingest.submit(sent.upload)
        future.add_done_callback(lambda done: _settle(sent, done))
        return future

    def heartbeat(self, run: OpenRun) -> list[Record]:
        """Return a heartbeat record, or nothing when the last one is recent enough."""
        now = time.monotonic()
        if run.beat and now - run.beat < HEARTBEAT_SECONDS / 3:
            return []
        run.beat = now
        return [Metric(self.clock(), None, None, "stepscope", {"heartbeats": 1})]


def _settle(sent: "Sent", done: "Future[None]") -> None:
    if not done.cancelled() and done.exception() is None:
        sent.run.unsure -= sent.numbers
    else:
        sent.run.console.update(dict.fromkeys(sent.rewritten, ""))


def file_name(text: str) -> str:
    """Encode any text as the name of one file or folder."""
    name = quote(text, safe=" ,=+@()[]{}!~-_").replace("/", "%2F")
    name = name.replace(".", "%2E") if set(name) <= {"."} else name
    if len(name) > 200:
        name = f"{name[:150]}%{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return name or "%"


def check_name(what: str, name: str) -> None:
    """Raise Refused for an invalid project or run name."""
    if not name or len(name) > LONGEST_NAME or run_id_problem(name):
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"the {what} must have 1 to {LONGEST_NAME} printable characters"))
    with contextlib.suppress(UnicodeEncodeError):
        name.encode()
        return
    raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"the name of the {what} is not valid Unicode"))
