"""Deliver to one sink on a thread of its own, and record its state changes and counters into the runs it serves."""

import contextlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stepscope.journal import layout, request_files
from stepscope.journal.atomic_files import put_file
from stepscope.journal.following import Following, Wanted
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.run_edits import has_journals
from stepscope.journal.segments import Journal, find_writer
from stepscope.model.errors import Retry
from stepscope.model.names import SEVERITIES
from stepscope.model.ports import AskingSink, Batch, Sink
from stepscope.model.records import EVENT, METRIC
from stepscope.model.run_requests import Requests
from stepscope.pump import GROUP_BYTES, Pump, Source
from stepscope.sdk.context import NO_MARK, pack
from stepscope.sinks import tls_calls
from stepscope.sinks.registry import Chosen, Config, RecordFilter, StoredSink, open_sink
from stepscope.wire import frames

DEAD, BACK = "stepscope.sink.dead", "stepscope.sink.back"
FIRST, REFUSED = "stepscope.sink.first_delivery", "stepscope.sink.refused"
COUNT_SECONDS = 30.0
"""Between two records of the counters."""
DEAD_SECONDS = 10.0
"""Minimum time between two `dead` events; a sink that fails again sooner is reported later, or not at all."""
REFUSED_SECONDS, MAX_SECONDS = 60.0, 3600.0
"""Time between two `refused` events, doubled each time, because the same sink may reject the event itself."""
MAX_BYTES = 1024 * 1024
"""Limit on what a shipper writes into one run."""
MAX_RUNS = 16
"""Limit on the runs that are written to; the latest ones count."""

WriteRecords = Callable[[Sequence[bytes]], None]
"""Writes packed records into runs; must not raise or block."""


class Watched(Protocol):
    """The parts of a pump that are watched."""

    counts: "Counter[str]"
    problem: str

    @property
    def is_stuck(self) -> bool:
        """Whether the sink counts as dead."""


class Watch:
    """Watches a pump and records state changes of its sink; called by one thread after each step.

    The place is a function because a sink may know its address only once it is open.
    """

    def __init__(
        self,
        sink: str,
        place: Callable[[], str],
        write_records: WriteRecords,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._place = sink, place
        self._write_records, self._clock = write_records, clock
        self._delivered = False
        self._dead_since: float | None = None
        self._next_dead_event = float("-inf")
        self._refused: Counter[str] = Counter()
        self._refused_total = 0
        self._next_refused_event, self._refused_pause = float("-inf"), REFUSED_SECONDS

    def look(self, pump: Watched) -> None:
        """Record changes since the last call; usually there are none, and this costs a few comparisons."""
        if not self._delivered and pump.counts["written"]:
            self._delivered = True
            self._record(FIRST, "INFO", {})
        if pump.is_stuck != (self._dead_since is not None):
            self._report_state(pump)
        if pump.counts["rejected"] + pump.counts["dropped"] != self._refused_total:
            self._report_refusals(pump.counts)

    def _report_state(self, pump: Watched) -> None:
        now = self._clock()
        if self._dead_since is not None:
            self._record(BACK, "INFO", {"seconds": round(now - self._dead_since, 3)})
            self._dead_since = None
        elif now >= self._next_dead_event:
            self._dead_since, self._next_dead_event = now, now + DEAD_SECONDS
            self._record(DEAD, "WARN", {"reason": pump.problem})

    def _report_refusals(self, counts: "Counter[str]") -> None:
        now = self._clock()
        if now < self._next_refused_event:
            return
        self._next_refused_event = now + self._refused_pause
        self._refused_pause = min(self._refused_pause * 2, MAX_SECONDS)
        found = Counter({key: count for key, count in counts.items() if key.startswith(("rejected", "dropped"))})
        new = found - self._refused
        self._refused, self._refused_total = found, found["rejected"] + found["dropped"]
        reasons = [key.partition("/")[2] for key, _ in new.most_common() if "/" in key]
        attrs = {"rejected": new["rejected"], "dropped": new["dropped"], "reason": next(iter(reasons), "")}
        self._record(REFUSED, "WARN", attrs)

    def _record(self, name: str, severity: str, attrs: Mapping[str, Any]) -> None:
        details = {"sink": self._sink, "place": self._place(), **attrs}
        record = (EVENT, time.time_ns(), *NO_MARK, None, None, SEVERITIES[severity], name, details)
        self._write_records([pack(record)])


def counters(counts: Mapping[str, Mapping[str, int]]) -> bytes:
    """Pack the outcome counts of sinks as one metric: `sink/NAME/written` and so on."""
    values = {
        f"sink/{sink}/{outcome}": number
        for sink, outcomes in counts.items()
        for outcome, number in outcomes.items()
        if "/" not in outcome
    }
    return pack((METRIC, time.time_ns(), *NO_MARK, "stepscope", values))


class ShipperJournal:
    """The shipper's own writer in each run it serves; it does not affect the state of the run.

    What it writes is delivered like everything else in the run, so the limits above keep it small.
    """

    def __init__(self, home: Path, host: str, *, most_bytes: int = MAX_BYTES) -> None:
        self._home, self._host, self._most_bytes = home, host, most_bytes
        self._lock = threading.Lock()
        self._journals: dict[tuple[str, int], Journal] = {}
        self._sizes: Counter[str] = Counter()

    def record(self, records: Sequence[bytes], runs: Iterable[str]) -> None:
        """Write records into runs; a deleted run or a full disk is ignored."""
        size = sum(map(len, records))
        with self._lock:
            for run in runs:
                if self._sizes[run] + size <= self._most_bytes:
                    with contextlib.suppress(OSError, ValueError):
                        journal = self._journal(run)
                        self._sizes[run] += journal.append(records) if journal is not None else 0

    def close(self) -> None:
        """Close all journals."""
        with self._lock:
            for journal in self._journals.values():
                journal.close()
            self._journals.clear()

    def _journal(self, run: str) -> Journal | None:
        names = [layout.parse_writer(name) for name in layout.list_writers(self._home, run)]
        here = [name for name in names if name is not None and name.host == self._host]
        if not here:
            return None
        beside = min(here, key=lambda name: (-name.attempt, name.rank, name.token))
        key = (run, beside.attempt)
        if key not in self._journals:
            self._journals[key] = self._open(run, beside)
        return self._journals[key]

    def _open(self, run: str, beside: layout.WriterName) -> Journal:
        pid = os.getpid()
        name = beside._replace(pid=pid, token=os.urandom(6).hex())
        known = find_writer(layout.writer_folder(self._home, run, str(beside)))
        writer = msgspec.structs.replace(
            known,
            id=str(name),
            pid=pid,
            main=False,
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            resource={**known.resource, "process.pid": pid, "process.command": "stepscope ship"},
        )
        return Journal(layout.writer_folder(self._home, run, str(name)), writer)


MAX_READS = 64
"""Consecutive reads without a matching record before the caller gets an empty batch."""
FILTERED = "filtered"
_encode = msgspec.msgpack.Encoder().encode


class Filtered:
    """Passes on the records of a source that match a filter, packed or not; the others are settled with them.

    Records that are left out are counted as `filtered` when they are settled; they are not an outcome of the sink.
    """

    def __init__(self, source: Source, records: RecordFilter) -> None:
        self._source, self._filter = source, records
        self._left_out = 0
        self.counts: Counter[str] = Counter()
        """Counter for filtered records."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next batches with a matching record; empty ones when many consecutive reads had none."""
        batches: list[Batch] = []
        for _ in range(MAX_READS):
            batches = self._source.read(limit)
            passed = [self._passing(batch) for batch in batches]
            full = [batch for batch in passed if batch.records]
            if full or not batches:
                return full
            self.settle()
        return [batch._replace(records=[]) for batch in batches]

    def settle(self) -> None:
        """Mark everything read so far as delivered or filtered."""
        self._source.settle()
        self.counts[FILTERED] += self._left_out
        self._left_out = 0

    def rewind(self) -> None:
        """Discard what was read since the last `settle`; it is read again."""
        self._source.rewind()
        self._left_out = 0

    def _passing(self, batch: Batch) -> Batch:
        kept = [record for record in map(self._apply, batch.records) if record is not None]
        self._left_out += len(batch.records) - len(kept)
        return batch._replace(records=kept)

    def _apply(self, record: Any) -> Any:
        """Return the matching part of a record, packed if it was packed; None when nothing matches."""
        if not isinstance(record, msgspec.Raw):
            return self._filter.apply(record)
        try:
            found = frames.unpack_record(record)
        except ValueError:  # left to the sink
            return record
        kept = self._filter.apply(found)
        if kept is None or kept is found:
            return None if kept is None else record
        return msgspec.Raw(_encode(kept))


PIECE_BYTES = 1024
"""Bytes of packed records in one piece: reading and encoding them takes a fraction of a millisecond."""


class Slices:
    """Splits the batches of a source into small pieces and unpacks their records; the source must leave them packed.

    A thread keeps the GIL for up to 5 ms unless it blocks, so pieces are small and there is a pause before each. A sink
    that identifies batches by sequence number gets them whole. A batch counts as delivered when its last piece is.
    """

    def __init__(
        self,
        source: Source,
        is_divisible: Callable[[], bool],
        piece_bytes: int = PIECE_BYTES,
        stop: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source, self._is_divisible, self._piece_bytes, self._stop = source, is_divisible, piece_bytes, stop
        self._rest: deque[Batch] = deque()
        self._under_way: Batch | None = None
        """The piece returned last, until it is delivered."""
        self.unreadable = 0
        """Records that could not be unpacked."""

    def read(self, limit: int) -> list[Batch]:
        """Return the next piece; an empty list when the source has no more."""
        if not self._rest:
            undivided = not self._is_divisible()
            for batch in self._source.read(limit):
                self._stop(0.0)
                self._rest.extend([batch] if undivided else self._cut(batch))
        self._stop(0.0)
        self._under_way = self._rest.popleft() if self._rest else None
        return [self._unpacked(self._under_way)] if self._under_way is not None else []

    def settle(self) -> None:
        """Mark the last piece as delivered; the source is settled when all pieces are."""
        self._under_way = None
        if not self._rest:
            self._source.settle()

    def rewind(self) -> None:
        """Return the undelivered piece to the queue; pieces delivered before it are not repeated."""
        if self._under_way is not None:
            self._rest.appendleft(self._under_way)
            self._under_way = None

    def _cut(self, batch: Batch) -> list[Batch]:
        pieces: list[Batch] = []
        room = 0
        packed: list[Any] = batch.records
        for record in packed:
            size = len(memoryview(record))
            if size > room:
                pieces.append(batch._replace(records=[]))
                room = self._piece_bytes
            pieces[-1].records.append(record)
            room -= size
        return pieces or [batch]

    def _unpacked(self, batch: Batch) -> Batch:
        records = []
        packed: list[Any] = batch.records
        for raw in packed:
            try:
                records.append(frames.unpack_record(raw))
            except ValueError:
                self.unreadable += 1
        return batch._replace(records=records)


REPORT_SECONDS = 2.0
TLS_SECONDS = 2.0
"""How long to wait for threads that were in OpenSSL: that takes milliseconds on a machine that is not overloaded."""


class Report(msgspec.Struct, frozen=True):
    """The state of a sink, for `stepscope doctor` and for callers that wait for delivery."""

    sink: str
    place: str
    counts: dict[str, int]
    problem: str = msgspec.field(name="trouble")
    unread: int
    """Bytes of journal still to be delivered."""
    time: float
    gives_up_at: float | None = None
    """When the shipper stops trying, in seconds of the wall clock; None while it waits for trainers."""


class _Opening:
    """A sink that is opened on first use, and retried if that fails."""

    def __init__(self, config: Config, home: Path, on_requests: Callable[[str, Requests], object]) -> None:
        self._config, self._home, self._on_requests = config, home, on_requests
        self._sink: Sink | None = None

    @property
    def timeout(self) -> float:
        """The timeout of the sink."""
        return self._sink.timeout if self._sink is not None else 10.0

    @property
    def divisible(self) -> bool:
        """Whether the sink takes batches in parts; False while it cannot be opened."""
        try:
            return self._opened().divisible
        except Retry:
            return False

    @property
    def place(self) -> str:
        """The address of the sink, which may be more precise than its options once it is open."""
        return str(getattr(self._sink, "place", self._config.place))

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Open the sink if needed, and write."""
        return self._opened().write(batches)

    def _opened(self) -> Sink:
        if self._sink is None:
            try:
                self._sink = open_sink(self._config, self._home)
            except Exception as error:
                raise Retry(f"cannot be opened: {error}") from error
            if isinstance(self._sink, AskingSink):
                self._sink.on_requests = self._on_requests
        return self._sink

    def close(self) -> None:
        """Close the sink if it was opened."""
        if self._sink is not None:
            self._sink.close()


def _post(home: Path, run: str, requests: Requests) -> None:
    """Leave what the users of a destination ask of a program where its processes look; the next answer has it again."""
    if has_journals(home, run):
        with contextlib.suppress(OSError):
            request_files.post(home, run, requests)


def keep_sink(home: Path, chosen: Chosen) -> None:
    """Store the options of a sink for `stepscope quarantine retry`; the file is readable only by its owner."""
    with contextlib.suppress(OSError):
        put_file(layout.shipping_folder(home) / f"{chosen.id}.sink", msgspec.json.encode(chosen.stored()))


def kept_sinks(home: Path) -> dict[str, Chosen]:
    """Return the sinks that runs of this home were delivered to, by id; unreadable files are skipped."""
    found = {}
    for path in layout.shipping_folder(home).glob("*.sink"):
        with contextlib.suppress(OSError, ValueError):
            chosen = msgspec.json.decode(path.read_bytes(), type=StoredSink).chosen()
            found[chosen.id] = chosen
    return found


class SinkWorker:
    """Delivers to one sink on its own thread. `drained` is true when the last look found nothing left.

    With `sliced` it works in pieces so small that they hardly delay other threads of the process.
    """

    def __init__(
        self,
        home: Path,
        chosen: Chosen,
        *,
        runs: Callable[[], Iterable[str]] | None = None,
        wanted: Wanted = lambda name: True,
        remember: bool = True,
        group_bytes: int = GROUP_BYTES,
        sliced: bool = False,
        report: str = "",
        write_records: WriteRecords | None = None,
    ) -> None:
        self.chosen = chosen
        self._kept_in = home if remember else None
        """Home folder in which the options of the sink are stored, for `stepscope quarantine retry`."""
        packed = getattr(chosen.config, "packed", False)
        unpack = frames.unpack_raw_batch if packed or sliced else frames.unpack_batch
        self.following = Following(home, chosen.id, runs=runs, wanted=wanted, remember=remember, unpack=unpack)
        sink = self._sink = _Opening(chosen.config, home, lambda run, requests: _post(home, run, requests))
        slices = Slices(self.following, lambda: sink.divisible) if sliced and not packed else self.following
        source = Filtered(slices, chosen.filter) if chosen.filter else slices
        self.pump = Pump(sink, source, Quarantine(home, chosen.id), group_bytes=group_bytes)
        if isinstance(source, Filtered):
            source.counts = self.pump.counts
        self._watch = Watch(chosen.id, lambda: sink.place, write_records) if write_records is not None else None
        self.drained = False
        self.gives_up_at: float | None = None
        self._report_path = layout.shipping_folder(home) / f"{chosen.id}@{report}.report" if report else None
        self._reported = 0.0
        self._check_all = False
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"stepscope-{chosen.name}", daemon=True)
        self._thread.start()

    def check_all(self) -> None:
        """Check every journal at once; `drained` is false until that is done."""
        self.drained = False
        self._check_all = True
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """Stop after the write in progress; return whether it stopped within `timeout` seconds."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def interrupt(self) -> bool:
        """After `stop`: let it end rather than wait for a server with TLS; return whether it is about to."""
        return self._thread.is_alive() and tls_calls.interrupt(self._thread)

    def report(self) -> Report:
        """Return the state of the sink."""
        counts = {key: number for key, number in self.pump.counts.items() if "/" not in key}
        try:
            unread = self.following.unread_now()
        except (OSError, RuntimeError):  # the thread may be adding a writer
            unread = -1
        return Report(
            self.chosen.id, self._sink.place, counts, self.pump.problem, unread, time.time(), self.gives_up_at
        )

    def _loop(self) -> None:
        if self._kept_in is not None:
            keep_sink(self._kept_in, self.chosen)
        while not self._stopping:
            if self._check_all:
                self._check_all = False
                self.following.check_all()
                if not self.pump.is_stuck:
                    self.pump.wake()
            progress = self.pump.step()
            if self._watch is not None:
                self._watch.look(self.pump)
            self.drained = self.pump.at_end and not self._check_all
            self._save_report()
            if progress.wait:
                self._wake.wait(progress.wait)
                self._wake.clear()
        self.pump.close()
        self._save_report(force=True)

    def _save_report(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._report_path is not None and (force or now - self._reported > REPORT_SECONDS):
            self._reported = now
            with contextlib.suppress(OSError):
                put_file(self._report_path, msgspec.json.encode(self.report()))


def stop_all(workers: Sequence[SinkWorker], seconds: float) -> None:
    """Stop workers after their writes in progress, or after so many seconds; none is left in OpenSSL."""
    for worker in workers:
        worker.stop(0.0)
    until = time.monotonic() + seconds
    for worker in workers:
        worker.stop(max(until - time.monotonic(), 0.0))
    ending = [worker for worker in workers if worker.interrupt()]
    until = time.monotonic() + TLS_SECONDS
    for worker in ending:
        worker.stop(max(until - time.monotonic(), 0.0))
