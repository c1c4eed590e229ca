"""Periodic work of the flusher besides writing: read tensors, record open spans and heartbeats, end the run."""

import math
import os
import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from stepscope.journal.layout import requests_path
from stepscope.model import names
from stepscope.model.records import EVENT, METRIC, SPAN
from stepscope.sdk.context import NO_MARK, pack
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.overhead import CallTimes
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.tensors import Row, Transfer

if TYPE_CHECKING:
    from stepscope.sdk.flusher import Flusher
    from stepscope.sdk.remote_control import RemoteControl

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

    flusher: "Flusher"
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
