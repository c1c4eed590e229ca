"""The one thread that writes: every tenth of a second, what was recorded goes to the journal; and its periodic work."""

import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.journal import quota
from stepscope.journal.layout import requests_path
from stepscope.journal.segments import Journal
from stepscope.model import names
from stepscope.model.formatting import amount
from stepscope.model.records import EVENT, KINDS, METRIC, SPAN
from stepscope.sdk.context import NO_MARK, pack
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import MASKED_LATER, Unmasked, mask_record
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.overhead import CallTimes
from stepscope.sdk.recorder import PARTS, Recorder
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.tensors import Row, Transfer
from stepscope.wire import frames

if TYPE_CHECKING:
    from stepscope.sdk.remote_control import RemoteControl

log = logging.getLogger("stepscope")
RETRY_SECONDS = 1.0
COUNTERS_BYTES = 4096
"""Bytes of the reserved space for the counters, and for what frames a batch."""


class _Waiter(threading.Event):
    """A waiting call of `flush`, and whether its records were written."""

    safe = False


class Diagnoses(Protocol):
    """Receives records once they are written, and evaluates them after the round."""

    def take(self, batch: list[bytes], attempt: int) -> None:
        """Receive records that were written."""

    last: bool
    """Whether the run ends: what is found must be written in this round."""

    def work(self) -> None:
        """Evaluate some of the waiting records; when the run ends, all of them if possible."""


class Flusher:
    """Drains a recorder into a journal. Survives every disk failure; the recorder bounds what accumulates meanwhile."""

    def __init__(
        self,
        recorder: Recorder,
        outcomes: Outcomes,
        open_journal: Callable[[], Journal],
        *,
        interval: float,
        disk_quota: int,
        periodic: Callable[[float], None],
        diagnosis: Diagnoses | None = None,
    ) -> None:
        self.journal: Journal | None = None
        self._recorder = recorder
        self._outcomes = outcomes
        self._open_journal = open_journal
        self._interval = interval
        self._disk_quota = disk_quota
        self._periodic = periodic
        self._diagnosis = diagnosis
        self.reset()

    def reset(self) -> None:
        """Discard thread, locks and journal; called in a child after a fork."""
        if self.journal is not None:
            self.journal.close()
        self.journal = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._bell = threading.Lock()
        """Held while there is nothing to do; unlike an Event, it can be released from a signal handler at any moment.
        """
        self._bell.acquire()
        self._waiting: deque[_Waiter] = deque()
        self._stopping = False
        self.ended = False
        self.rounds = 0
        """Number of rounds that wrote everything."""
        self._safe = True
        """Whether the last round wrote everything."""
        self._retry_at = 0.0
        self._segment: object = None
        self._held: dict[Path, Counter[str]] = {}
        """The records in each segment of the journal, by kind."""
        self._damages = 0
        self._reserve: quota.EndReserve | None = None
        self.blob_bytes = 0
        """Bytes that media take beside the journal, within the same quota."""
        self.cpu_seconds = 0.0
        """Processor time that the thread has taken."""

    @property
    def started(self) -> bool:
        """Whether there was ever anything to write."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread unless it runs or was stopped, and wake it when memory fills up. Never raises.

        After the end no thread is started, but pending warnings are printed.
        """
        if self.ended:
            self._quietly(self._print_notices)
            return
        if self._thread is not None and (
            self._recorder.is_full or (self._recorder.is_filling_up and not self._retry_at)
        ):
            self.wake()
        if self._thread is not None or self._stopping or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="stepscope-flusher", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:  # no thread can be started now, or any more at interpreter shutdown
            pass
        finally:
            self._starting.release()

    def flush(self, timeout: float) -> bool:
        """Wait until everything recorded before the call is in the journal; False when that took too long."""
        self.start()
        if self._thread is None:
            return self._safe
        waiter = _Waiter()
        self._waiting.append(waiter)
        self.wake()
        if self.ended:  # it may have ended before it saw this call
            return self._safe
        return waiter.wait(timeout) and waiter.safe

    def stop(self, timeout: float) -> bool:
        """Write what is left, close the journal and end the thread; False when that took too long."""
        deadline = time.monotonic() + timeout
        self.start()
        self._stopping = True
        self.wake()
        if self._thread is not None:
            self._thread.join(max(deadline - time.monotonic(), 0))
        elif not self.ended:  # no thread could be started this late: write here
            self._end()
        return self.ended and self._safe

    def wake(self) -> None:
        """Start a round at once. Takes no lock."""
        try:
            self._bell.release()
        except RuntimeError:  # it is released already
            pass

    def _loop(self) -> None:
        # The first round comes at once: opening a journal beside a busy loop takes longest.
        while not self._stopping:
            self._cycle()
            self.cpu_seconds = time.thread_time()
            self._bell.acquire(timeout=self._interval)
        self._end()

    def _end(self) -> None:
        self._cycle(last=True)
        self.ended = True
        self._release()
        if self._recorder.buffer and not self._safe:
            dropped = self._outcomes.dropped()
            self._quietly(self._write_reserved)
            left = len(self._recorder.buffer)
            lost = amount(left + self._outcomes.dropped() - dropped, "record")
            kept = "" if left else "; how the run ended is in its journal"
            self._outcomes.notice_text(f"{lost} could not be written before the end{kept}")
            self._quietly(self._print_notices)
        self._recorder.close()
        if self.journal is not None:
            self.journal.close()
        if self._reserve is not None:
            self._reserve.release()

    def _write_reserved(self) -> None:
        """Write how the run ended, and what of the rest fits beside it, to the space that was reserved for it."""
        if self.journal is None or self._reserve is None or not self._reserve.room:
            return
        room = self._reserve.room - len(frames.pack_head(self.journal.writer)) - COUNTERS_BYTES
        kept = self._recorder.take_last(room)
        batch = [mask_record(packed) if type(packed) in MASKED_LATER else packed for packed in kept]
        counts = pack((METRIC, time.time_ns(), *NO_MARK, "stepscope", self._outcomes.snapshot()))
        self.journal.append_reserved(self._reserve, [*batch, counts])
        for kind, count in Counter(map(quota.kind_of, batch)).items():
            self._outcomes.add("written", KINDS[kind], count=count)

    def _cycle(self, *, last: bool = False) -> None:
        """Do one round; errors are counted, and the next round tries again."""
        count = len(self._waiting)
        now = time.monotonic()
        self._safe = False
        self._quietly(lambda: self._periodic(now))
        self._quietly(lambda: self._recorder.thin(most=PARTS))
        if last or count or now >= self._retry_at:
            self._quietly(self._drain)
        if last or count:
            self._quietly(self._check_journal)
        self._quietly(self._print_notices)
        diagnosis = self._diagnosis
        if diagnosis is not None and diagnosis.last and not last:
            self._quietly(diagnosis.work)
            self._quietly(self._drain)
        self._release(count)
        if diagnosis is not None and not last:
            self._quietly(diagnosis.work)

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # a callback of the program may raise SystemExit; this thread must not end
            self._outcomes.add("failed", "cycle", type(error).__name__)
            self._outcomes.notice("cycle", type(error).__name__, f"the flusher ignored an error: {error!r}")

    def _print_notices(self) -> None:
        for notice in self._outcomes.take_notices():
            log.warning("stepscope: %s", notice)

    def _release(self, count: int | None = None) -> None:
        """Release the calls of `flush` that waited when the round began."""
        for _ in range(len(self._waiting) if count is None else count):
            waiter = self._waiting.popleft()
            waiter.safe = self._safe
            waiter.set()

    def _drain(self) -> None:
        """Write what is in the buffer now; what arrives meanwhile is left to the next round."""
        left = len(self._recorder.buffer)
        while left > 0 and (batch := self._recorder.take()):
            left -= len(batch)
            try:
                batch = self._masked(batch)
                if batch:
                    self._write(batch)
            except OSError as error:
                self._recorder.taken(safe=False)
                self._report_unwritable(error)
                return
            except BaseException:
                self._recorder.taken(safe=True)
                self._outcomes.add("dropped", "record", "unwritable", len(batch))
                raise
            self._recorder.taken(safe=True)
            if self._diagnosis is not None and self.journal is not None:
                self._diagnosis.take(batch, self.journal.writer.attempt)
            self._report_writable()
            self._quietly(self._keep_quota)
        self._safe = True
        self.rounds += 1

    def _masked(self, batch: list[bytes]) -> list[bytes]:
        """Mask the records that may hold a secret; one that cannot be read is dropped, not written as it is."""
        if MASKED_LATER.isdisjoint(map(type, batch)):
            return batch
        masked: list[bytes] = []
        for packed in batch:
            if type(packed) in MASKED_LATER:
                try:
                    masked.append(mask_record(packed))
                except Exception:
                    self._outcomes.add("dropped", KINDS[quota.kind_of(packed)], "unreadable")
            else:
                masked.append(packed)
        self._recorder.replace_taken(masked)
        return masked

    def _write(self, batch: list[bytes]) -> None:
        if len(batch[0]) > frames.LIMIT - frames.BATCH_BYTES:
            self._outcomes.add("dropped", KINDS[quota.kind_of(batch[0])], "too large")
            return
        if self.journal is None:
            self.journal = self._open_journal()
        self.journal.append(batch)
        if self._reserve is None and self.journal.writer.main:
            self._reserve = quota.EndReserve(self.journal.folder)
            self._reserve.take()
        written = Counter([packed[3] if packed[0] == 0xDC else packed[1] for packed in batch])
        counts = Counter({KINDS[kind]: count for kind, count in written.items()})
        for kind, count in counts.items():
            self._outcomes.add("written", kind, count=count)
        current = self.journal.current()
        if current is not None:
            self._held.setdefault(current, Counter()).update(counts)
        self._count_removed(current)

    def _check_journal(self) -> None:
        """Find out whether the journal was removed after the last write, for a call that waits for it."""
        if self.journal is not None:
            self.journal.check()
            self._count_removed(self.journal.current())

    def _count_removed(self, current: Path | None) -> None:
        """Count what was in removed or changed segments as dropped, besides having been written."""
        if self.journal is None or self.journal.damages == self._damages:
            return
        self._damages = self.journal.damages
        self._outcomes.notice(
            "journal",
            "damage",
            f"the journal in {self.journal.folder} was removed or changed; what it held is lost and counted as "
            "dropped, and recording continues in a new segment",
        )
        for path in [path for path in self._held if path != current]:
            left = quota.count_kinds(path)
            for kind, count in (self._held.pop(path) - left).items():
                self._outcomes.add("dropped", kind, "removed", count)
            if left:
                self._held[path] = left

    def _keep_quota(self) -> None:
        """Thin the journal when a new segment was started; not at the end, when the last counters are written."""
        current = self.journal.current() if self.journal is not None else None
        if self.journal is not None and current != self._segment and not self._stopping:
            self._segment = current
            room = self._disk_quota - self.journal.segment_bytes - self.blob_bytes
            for name, count in quota.enforce(self.journal.folder, room, current, on_thinned=self._note_thinned).items():
                self._outcomes.add("dropped", name, "disk", count)

    def _note_thinned(self, path: Path, dropped: "Counter[str]") -> None:
        if path in self._held:
            self._held[path] -= dropped

    def _report_unwritable(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._outcomes.notice(
            "journal",
            "unwritable",
            f"the journal cannot be written ({error}); records are kept in memory, training continues. "
            "Free some space or set STEPSCOPE_HOME to a writable folder",
        )

    def _report_writable(self) -> None:
        if self._retry_at:
            self._retry_at = 0.0
            self._outcomes.rearm("journal", "unwritable")
            self._outcomes.notice("journal", f"writable {time.monotonic()}", "the journal can be written again")


OPEN_SECONDS = 1.0
"""A span that is open for longer is recorded before it ends."""
BEAT_SECONDS = 5.0
MAX_OPEN = 10_000
"""Limit on tracked open spans; older ones can still be ended."""
MAX_HELD = 10_000
CLOCK_JUMP_NS = 1_000_000_000
COPIES_HINT = (
    "copying logged arrays takes {:.1%} of the time, more than the overhead_budget of {:.1%}; "
    "Image(array, copy=False) copies nothing, if the array is not changed afterwards"
)
MAX_KEYS = 256
"""Rejected keys in one event: as many entries as a dict in a record may have."""


class TimedPart(Part, Protocol):
    """A process's part in a run, with what measures its cost."""

    flusher: Flusher
    call_times: CallTimes

    @property
    def remote_control(self) -> "RemoteControl":
        """What users ask of this process."""


class PeriodicWork:
    """The periodic work of one run, called by the flusher each round with the monotonic time."""

    def __init__(self, run: TimedPart) -> None:
        self._run = run
        self.collectors: list[Callable[[], None]] = []
        """Called about once a second, such as OpenTelemetry's instruments."""
        self.rounds: list[Callable[[], object]] = []
        """Called in each round of the flusher; each must be quick."""
        self.closing: list[Callable[[], object]] = []
        """Called once when the run ends, newest first."""
        self._held: list[Row] = []
        self._transfer: Transfer | None = None
        self._second = 0.0
        self._beat = 0.0
        self._beats = 0
        self._clock = time.time_ns() - time.monotonic_ns()
        self._requests = str(requests_path(run.home, run.id))
        """The file with what users ask of this run."""
        self._ended = False
        self.closed = False
        self.until = math.inf
        """When the end of the run should be over."""
        self._rejected: dict[str, str] = {}
        """The rejected keys that were recorded."""

    def after_fork(self) -> None:
        """Discard the parent's work, which the parent finishes."""
        self._held.clear()
        self._transfer = None
        self._beats = 0
        self._rejected = {}
        self.closing.clear()

    def __call__(self, now: float) -> None:
        self._move_tensors()
        for each in self.rounds:
            self._quietly(each)
        if self._run.preempted and self._run.status == "running":
            self.record_end("preempted")
        if now - self._second >= 1.0:
            if self._second and self._run.status == "running" and not self.closed:
                self._run.call_times.arm()  # not in the first second, whose calls are no usual ones
            self._second = now
            self._show_open_spans()
            self._quietly(self._look_for_requests)
            self.collect()
        if now - self._beat >= BEAT_SECONDS:
            self._beat = now
            self.beat()

    def hold(self, row: Row) -> None:
        """Keep a row until its tensors are transferred; rows beyond a limit are dropped."""
        if len(self._held) < MAX_HELD:
            self._held.append(row)
        else:
            self._run.outcomes.add("dropped", "metric", "device")
        self._run.recorder.wake()

    def _move_tensors(self) -> None:
        transfer = self._transfer
        if transfer is not None:
            try:
                if not transfer.ready():
                    return
                for row in transfer.finish(self._run.outcomes.reject):
                    packed = pack((METRIC, *row))
                    self._run.recorder.append(Unmasked(packed) if row.attrs else packed)
            except Exception as error:
                self._lose(transfer.rows, error)
            self._transfer = None
        if self._held:
            rows = self._held[:]
            del self._held[: len(rows)]
            try:
                self._transfer = Transfer(rows)
            except Exception as error:
                self._lose(rows, error)

    def _lose(self, rows: list[Row], error: Exception) -> None:
        """Count rows as dropped whose device failed, such as a GPU after an assertion; later rows are tried again."""
        self._run.outcomes.add("dropped", "metric", "device", len(rows))
        self._run.outcomes.notice("device", type(error).__name__, f"values on a device cannot be read: {error}")

    def waiting(self) -> bool:
        """Return whether values are still on a device."""
        return self._transfer is not None or bool(self._held)

    def _show_open_spans(self) -> None:
        """Record long-open spans, once each, so that a hang is visible."""
        before = time.time_ns() - int(OPEN_SECONDS * 1e9)
        for span in list(self._run.open_spans.values()):
            if not span.announced and span.start < before and span.duration is None:
                span.announced = True
                self._run.recorder.append(span.packed())
        for id in list(self._run.open_spans)[:-MAX_OPEN]:  # spans that are never ended
            self._run.open_spans.pop(id, None)

    def _look_for_requests(self) -> None:
        """Follow what users ask of this process, once its journal tells which attempt it is."""
        journal = self._run.flusher.journal
        if journal is None:
            return
        try:
            found = os.stat(self._requests)
        except OSError:
            return
        self._run.remote_control.look(found, journal.writer.attempt)

    def beat(self, *, last: bool = False) -> None:
        """Record this process's own counters as a heartbeat; a reader that sees none for a while reports a stall.

        The last heartbeat counts no waiting records, since they are written with it.
        """
        run = self._run
        rejected = run.outcomes.rejected_keys()
        if fresh := {key: reason for key, reason in rejected.items() if key not in self._rejected}:
            self._rejected |= fresh
            for start in range(0, len(fresh), MAX_KEYS):
                keys = dict(islice(fresh.items(), start, start + MAX_KEYS))
                run.event(names.EVENT_REJECTED, {"keys": keys}, "WARN")
        counts: dict[str, Any] = dict(run.outcomes.snapshot())
        counts["waiting/records"] = 0 if last else len(run.recorder.buffer)
        counts["open_spans"] = len(run.open_spans)
        counts["beats"] = self._beats = self._beats + 1
        counts |= self._overhead(counts)
        run.recorder.append(pack((METRIC, time.time_ns(), *NO_MARK, "stepscope", counts)))
        clock = time.time_ns() - time.monotonic_ns()
        if abs(clock - self._clock) > CLOCK_JUMP_NS:
            run.event(names.EVENT_CLOCK, {"seconds": (clock - self._clock) / 1e9}, "WARN")
        self._clock = clock

    def _overhead(self, counts: dict[str, Any]) -> dict[str, float]:
        """Return the share of the time since the last heartbeat that Stepscope took, by part."""
        run = self._run
        written = {kind: counts.get(f"written/{kind}", 0) for kind in ("metric", "span")}
        shares = run.overhead.shares(calls=run.call_times.seconds(written), flusher=run.flusher.cpu_seconds)
        copies = shares.get("copies", 0.0)
        if run.overhead.exceeds("copies", copies):
            run.outcomes.notice("overhead", "copies", COPIES_HINT.format(copies, run.overhead.budget))
        return {f"{names.OVERHEAD}{part}": round(share, 6) for part, share in shares.items()}

    def close(self, until: float) -> None:
        """Remove the run's hooks from the process, newest first; those that wait do so for a part of the time left."""
        self.closed, self.until = True, until
        self._run.call_times.disarm()
        while self.closing:
            self._quietly(self.closing.pop())

    def collect(self) -> None:
        """Call every collector once."""
        for each in list(self.collectors):
            self._quietly(each)

    def record_end(self, status: str) -> None:
        """Record how the run ended, once, and only from the process that began it."""
        run = self._run
        run.status = status
        if self._ended or not run.main:
            return
        self._ended = True
        if run.stop_asked is not None and status == "finished":
            run.event(names.EVENT_STOPPED, {"request": run.stop_asked.id, "who": run.stop_asked.who})
        now = time.time_ns()
        failed = 2 if status == "failed" else 0
        ids = run.link[:2]
        above = run.above and run.above.get_span_context().span_id.to_bytes(8, "big")
        span = (SPAN, run.started, now - run.started, *NO_MARK, *ids, above, names.SPAN_RUN, 1, failed, "")
        run.recorder.append(pack((*span, {names.ATTR_RUN_ID: run.id, "train.status": status})))
        event = (EVENT, now, *NO_MARK, *ids, 17 if failed else 9, names.EVENT_FINISHED)
        run.recorder.append(pack((*event, {"status": status})))

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            pass_on(error)
            self._run.outcomes.add("failed", "duty", type(error).__name__)
