"""Ingestion shared by receivers: mask, pack, submit, count outcomes, find runs, recognise retried requests."""

import asyncio
import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from msgspec import structs

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import Intake, IntakeBatch, SequenceNumbers, pack_parts, pack_whole
from stepscope.hub.intake.scrub import TOO_MANY_SERIES, Scrubber
from stepscope.hub.limits import Limits
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.threads import Periodic
from stepscope.model.ports import Writer, run_id_problem
from stepscope.model.records import Metric, Record, Span, has_steps_in_range

TOO_MANY_RUNS = "too many runs: the limit on new runs per day and receiver, or on runs in the store, is reached"
DAY_SECONDS = 24 * 3600.0
_COUNT_SECONDS = 60.0
_MAX_SEEN = 200_000
UNPACKABLE = "the record cannot be stored"
STEP_OUT_OF_RANGE = "the step is out of range"
EMPTY_NAME = "the metric has no name"
OTHER_PROJECT = "the run belongs to another project than the token"
_MAX_RUNS = 50_000


class Upload:
    """The content of one request; `rejected` counts records by reason, `refused` lists whole batches.

    `key` identifies a retried request, also on another hub; see `digest`.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key, self._parts = key, 0
        self.batches: list[bytes] = []
        self.taken = 0
        self.rejected: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.refused: list[tuple[int, str]] = []
        """Indices of completely rejected batches in the request, with the reason."""

    def next_part(self) -> int:
        """The number of the next batch of this request; 0 when it has no key."""
        self._parts += 1
        if not self._key:
            return 0
        found = hashlib.blake2b(self._key, digest_size=8, salt=self._parts.to_bytes(8, "big"))
        return int.from_bytes(found.digest(), "big") or 1


class Ingest:
    """Masks, packs and journals the records of one receiver. Safe to use from any thread."""

    def __init__(
        self,
        receiver: str,
        intake: Intake,
        scrubber: Scrubber,
        counters: Counters,
        numbers: SequenceNumbers,
        owners: "RunOwners",
        *,
        ours: bool = False,
    ) -> None:
        self.receiver = receiver
        self._ours = ours
        """Whether the records come from our own SDK: its metric keys are not limited, as in local journals."""
        self._intake = intake
        self._scrubber = scrubber
        self._counters = counters
        self._numbers = numbers
        self._owners = owners

    def admit_run(self, run: str) -> None:
        """Count a run before any of its records is stored; Refused when there are too many."""
        if not self._owners.limits.admits(self.receiver, run):
            self.reject(TOO_MANY_RUNS)
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, TOO_MANY_RUNS))

    def add(
        self,
        upload: Upload,
        writer: Writer,
        records: list[Record],
        project: str | None,
        seq: int | None = None,
        request: int = 0,
    ) -> str:
        """Pack the records of one writer; a batch without a sequence number is given one.

        `request` identifies records that a client repeats in requests of other bytes, see `Batch.request`.
        If the token is bound to a project, the run must belong to it, or the batch is rejected.
        """
        if problem := run_id_problem(writer.run):
            upload.rejected[problem] += len(records)
            return problem
        if not self._owners.admits(writer.run, writer.project, project):
            upload.rejected[OTHER_PROJECT] += len(records)
            return OTHER_PROJECT
        if not self._owners.limits.admits(self.receiver, writer.run):
            upload.rejected[TOO_MANY_RUNS] += len(records)
            return TOO_MANY_RUNS
        lost: Counter[str] = Counter()
        if not has_steps_in_range(records):
            given, records = len(records), [record for record in records if has_steps_in_range([record])]
            upload.rejected[STEP_OUT_OF_RANGE] += given - len(records)
        if nameless := sum(isinstance(each, Metric) and "" in each.values for each in records):
            upload.rejected[EMPTY_NAME] += nameless
            records = _named(records)
        writer = self._scrubber.safe_writer(writer, lost)
        kept = self._scrubber.scrub(None if self._ours else writer.run, records, lost)
        upload.rejected[TOO_MANY_SERIES] += lost.pop(TOO_MANY_SERIES, 0)
        upload.cut += lost
        if seq is None:
            part = count(request).__next__ if request else upload.next_part
            packed, bad = pack_parts(self.receiver, writer, kept, self._numbers, part) if kept else ([], 0)
            upload.batches += packed
        else:
            one, bad = pack_whole(IntakeBatch(self.receiver, writer, seq, kept))
            upload.batches += [one] if one is not None else []
        upload.rejected[UNPACKABLE] += bad
        upload.taken += len(kept) - bad
        return ""

    def submit(self, upload: Upload) -> "Future[None]":
        """Submit the upload to the intake; the future completes when it is synced, or with Retry."""
        self._counters.add_reasons("rejected", self.receiver, +upload.rejected)
        self._counters.add_reasons("dropped", self.receiver, upload.cut)
        future, taken = self._intake.submit(upload.batches), upload.taken
        future.add_done_callback(
            lambda done: self._count(done, taken)
        )  # must not reference the records: the future may be kept
        return future

    def reject(self, reason: str, count: int = 1) -> None:
        """Count records rejected before packing."""
        self._counters.add("rejected", self.receiver, count, reason)

    def drop(self, reason: str, count: int) -> None:
        """Count records lost in transit or after they were accepted."""
        self._counters.add("dropped", self.receiver, count, reason)

    def repeat(self) -> None:
        """Count a retried request that was accepted before."""
        self._counters.add("retried", self.receiver, reason="taken before")

    def _count(self, done: "Future[None]", taken: int) -> None:
        if done.cancelled() or done.exception() is None:
            self._counters.add("written", self.receiver, taken)
        else:
            self._counters.add("retried", self.receiver, reason="full")


def _named(records: list[Record]) -> list[Record]:
    """Leave out the values of metrics that have no name, and records that have no other."""
    named: list[Record] = []
    for each in records:
        if isinstance(each, Metric) and "" in each.values:
            values = {name: value for name, value in each.values.items() if name}
            named += [structs.replace(each, values=values)] if values else []
        else:
            named.append(each)
    return named


class RunLimits:
    """Counts the runs of each receiver. Safe to use from any thread.

    A token bucket per receiver allows `limits.runs` new runs at once and as many again per day, so that clients of one
    dialect do not use up the allowance of others. A run is new when this process has not seen it: looking it up would
    make requests wait for the store. It is looked up only while the store is at its limit of runs.
    """

    def __init__(
        self,
        limits: Limits,
        count: Callable[[], int] = lambda: 0,
        look_up: Callable[[str], str | None] = lambda run: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._count, self._look_up, self._clock = limits, count, look_up, clock
        self._lock = threading.Lock()
        self._seen: dict[str, None] = {}
        self._left: dict[str, tuple[float, float]] = {}
        """The number of runs that each receiver may still start, and as of when."""
        self._stored = 0
        self._is_counted = False
        self.counting = Periodic(self.count, first=1.0, every=_COUNT_SECONDS)
        """The thread that counts the runs in the store; start and stop it."""

    def count(self) -> None:
        """Count the runs in the store, unless no new one was seen since the last count."""
        if not self._is_counted:
            self._stored, self._is_counted = self._count(), True

    def admits(self, receiver: str, run: str) -> bool:
        """Return whether records of a run are accepted; a new run is counted."""
        if run in self._seen:
            return True
        if self._stored >= self._limits.all_runs and self._look_up(run) is None:
            self._is_counted = False  # some may have been deleted
            return False
        with self._lock:
            now, most = self._clock(), float(self._limits.runs)
            left, before = self._left.get(receiver, (most, now))
            left = min(left + (now - before) * most / DAY_SECONDS, most)
            is_admitted = left >= 1.0
            self._left[receiver] = (left - is_admitted, now)
            if is_admitted:
                if len(self._seen) >= _MAX_SEEN:
                    del self._seen[next(iter(self._seen))]
                self._seen[run] = None
                self._is_counted = False
        return is_admitted


class RunLink(NamedTuple):
    """A run and its project; the run is empty when only the project is known."""

    run: str
    project: str


FindLink = Callable[[Mapping[str, str]], RunLink | None]


class RunLinks:
    """Finds the run that a request's headers refer to in another dialect, such as a trace that names a tracked run.

    Receivers that can resolve such headers add a finder with their names; others call `find`.
    """

    def __init__(self) -> None:
        self._finders: list[tuple[frozenset[str], FindLink]] = []

    def add(self, headers: Iterable[str], finder: FindLink) -> None:
        """Add a finder; it is called for requests that have one of these headers, in lower case."""
        self._finders.append((frozenset(headers), finder))

    def find(self, headers: Mapping[str, str]) -> RunLink | None:
        """Return the run that the headers of a request refer to; None when no receiver knows it."""
        for names, finder in self._finders:
            if not names.isdisjoint(headers) and (link := finder(headers)) is not None:
                return link
        return None


class RunOwners:
    """The project of each run, that of its first writer, for tokens bound to one project.

    `limits` bounds the number of runs.
    """

    def __init__(
        self,
        look_up: Callable[[str], str | None] = lambda run: None,
        matters: Callable[[], bool] = lambda: True,
        limits: RunLimits | None = None,
    ) -> None:
        self.limits = limits or RunLimits(Limits())
        self._look_up = look_up
        self._matters = matters
        self._projects: dict[str, str] = {}

    def admits(self, run: str, project: str, bound: str | None) -> bool:
        """Return whether a writer of a project may write to a run; `bound` is the project of the token, if any.

        A run without a project gets the writer's.
        """
        if bound is None and not self._matters():
            return True
        owner = self._projects.get(run)
        if owner is None:
            if len(self._projects) >= _MAX_RUNS:
                self._projects.clear()
            owner = self._projects[run] = self._look_up(run) or project
        return bound is None or owner == bound


class Writers:
    """Adds records to uploads with one writer per origin, created by its first request and used by all later ones.

    The start time of a writer is that of its first record, since exporters send records later than they were made;
    the clock is used for records without a time or with one in the future. A writer whose records are refused is not
    kept.
    """

    def __init__(self, ingest: Ingest, clock: Callable[[], int] = time.time_ns) -> None:
        self._ingest, self._clock = ingest, clock
        self._known: dict[str, Writer] = {}

    def add(
        self,
        upload: Upload,
        writer: Writer,
        records: list[Record],
        project: str | None,
        seq: int | None = None,
        request: int = 0,
    ) -> str:
        """Add records to an upload as `Ingest.add` does, in the token's project when it has one."""
        known = self._known.get(writer.id)
        times = [_first_time(record) for record in records if record.time > 0] if known is None else []
        found = known or structs.replace(writer, wall_ns=min([*times, self._clock()]))
        bound = found if project is None else structs.replace(found, project=project)
        reason = self._ingest.add(upload, bound, records, project, seq, request)
        if known is None and not reason:
            if len(self._known) >= _MAX_RUNS:
                self._known.clear()
            self._known[writer.id] = found
        return reason


LONGEST_SPAN = 30 * 24 * 3600 * 10**9
"""Nanoseconds; the start of a longer span is ignored as implausible."""


def _first_time(record: Record) -> int:
    lasted = record.duration or 0 if isinstance(record, Span) else 0
    return record.time + lasted if lasted > LONGEST_SPAN else record.time


SECONDS = 600.0
MOST = 50_000
"""How many requests are kept, and for how long in seconds: clients stop retrying after a minute or two."""
SAFE: "Future[None]" = Future()
"""The completed future shared by all kept requests that are synced."""
SAFE.set_result(None)

Answer = TypeVar("Answer")


class Repeats(Generic[Answer]):
    """Recent requests and their responses, in memory. Safe to use from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[float, Answer]] = {}

    def find(self, key: bytes) -> Answer | None:
        """The response to a retried request; None for a new or expired one."""
        with self._lock:
            until, answer = self._known.get(key, (0.0, None))
            return answer if until > self._clock() else None

    def keep(self, key: bytes, answer: Answer) -> None:
        """Keep a response; old ones expire, and the oldest are dropped when there are too many."""
        with self._lock:
            self._known.pop(key, None)
            now = self._clock()
            while self._known and (len(self._known) >= self._most or next(iter(self._known.values()))[0] < now):
                self._known.pop(next(iter(self._known)))
            self._known[key] = (now + SECONDS, answer)

    def keep_when_safe(self, key: bytes, safe: "Future[None]", answer: Answer, settled: Answer) -> None:
        """Keep a response until its request is synced, then `settled` instead; forget it on failure."""
        self.keep(key, answer)
        safe.add_done_callback(lambda done: self._settle(key, done, settled))

    def _settle(self, key: bytes, done: "Future[None]", settled: Answer) -> None:
        if done.cancelled() or done.exception() is not None:
            self.forget(key)
        else:
            self.keep(key, settled)

    def forget(self, key: bytes) -> None:
        """Forget a request that failed."""
        with self._lock:
            self._known.pop(key, None)


async def written(done: "Future[None]") -> None:
    """Wait until records are on disk; a client that disconnects cancels only its own wait."""
    await asyncio.shield(asyncio.wrap_future(done))


class ArrivalClock:
    """The time for items of a request without one; requests that need it may be different and have the same bytes."""

    was_read = False

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        self.was_read = True
        return time.time_ns()


def digest(words: Iterable[str], data: bytes) -> bytes:
    """Compute the key of a request from its bytes and from the words that its meaning depends on."""
    found = hashlib.blake2b(data, digest_size=16)
    for word in words:
        found.update(b"\0" + word.encode("utf-8", "replace"))
    return found.digest()
