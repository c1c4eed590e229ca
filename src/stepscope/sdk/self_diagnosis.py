"""Diagnosis in the trainer: processes what was written, in small slices, records findings and calls back."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from stepscope.journal.quota import kind_of
from stepscope.model import names
from stepscope.model.records import LOG
from stepscope.sdk.run_protocols import AlertingPart, Part
from stepscope.wire import frames

if TYPE_CHECKING:
    from stepscope.diagnosis.finding import Finding
    from stepscope.diagnosis.run_diagnosis import Diagnosis
    from stepscope.sdk.trainer_rules import TrainerRules

OnAlert = Callable[["Finding"], object]
SLICE_SECONDS = 0.0005
"""How long it works before it releases the interpreter to the loop..."""
PAUSE_SECONDS = 0.001
"""... for at least this long."""
ROUND_SECONDS = 0.01
"""Time limit in each round of the flusher."""
LAST_SECONDS = 0.1
"""Time limit at the end of the run, if it is loaded by then."""
MAX_WAITING = 20_000
"""Limit on waiting records; when it is exceeded, the diagnosis restarts with the next record."""
LONGEST_LINE = 32 * 1024
"""Bytes of a log line or sample that is diagnosed, because very many may wait."""
MAX_RECORDED = 4096
"""The most recorded findings that are remembered, so that none is recorded twice."""
SLICE_RECORDS = 16
MIN_RECORDS = 16
"""How much must be recorded before the diagnosis is loaded, which takes about 0.1 s on its own thread."""
PROGRAM = frozenset(("alert", "error", "crash", "dead_rank"))
"""Findings about what the program itself recorded."""


class SelfDiagnosis:
    """Diagnoses the records of this process, not of other ranks. Called by the flusher's thread alone."""

    def __init__(
        self,
        run: AlertingPart,
        rules: "TrainerRules | None" = None,
        on_alert: OnAlert | None = None,
        *,
        wanted: bool = True,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run, self._clock, self._pause = run, clock, pause
        self._rules, self._wanted = rules, wanted
        """The alert rules of `init`, and whether the detectors get the records, too."""
        self._callback = None if on_alert is None else Callback(run, on_alert)
        self.reset()

    def reset(self) -> None:
        """Discard all state; called in a child after a fork."""
        self._waiting: deque[bytes] = deque()
        self._diagnosis: Diagnosis | None = None
        self._loading = False
        self._attempt = 1
        self._seen = 0
        self.last = False
        """Whether the run ends: waiting records are diagnosed within the time limit before the end is recorded."""
        self._recorded: dict[tuple[object, ...], None] = {}
        """The identities of findings that were recorded as alerts, the oldest first."""
        if self._rules is not None:
            self._rules.reset()

    def take(self, batch: list[bytes], attempt: int) -> None:
        """Receive records that were written."""
        if not self._run.main:
            return
        self._attempt = attempt
        if max(map(len, batch), default=0) > LONGEST_LINE:
            batch = [packed for packed in batch if len(packed) <= LONGEST_LINE or kind_of(packed) != LOG]
        if len(self._waiting) + len(batch) > MAX_WAITING:
            self._run.outcomes.add("skipped", "diagnosis", "behind", len(self._waiting) + len(batch))
            self._waiting.clear()
            self._diagnosis, self._loading = None, False
            return
        self._waiting.extend(batch)
        if self._wanted and not self._loading and (self._rules or len(self._waiting) >= MIN_RECORDS):
            self._loading = True
            threading.Thread(target=self._load, name="stepscope-diagnosis", daemon=True).start()

    def _load(self) -> None:
        """Import the detectors: not on the flusher's thread, which has to write."""
        from stepscope.diagnosis.run_diagnosis import Diagnosis

        self._diagnosis = Diagnosis(world=self._run.launch.world_size)

    @property
    def loaded(self) -> bool:
        """Whether it is loaded."""
        return self._diagnosis is not None

    def work(self) -> None:
        """Diagnose waiting records within the time limit of a round, and report new findings."""
        diagnosis, rules = self._diagnosis, self._rules
        waits = diagnosis is None and self._wanted and not self.last
        if waits or not self._waiting or (diagnosis is None and rules is None):
            return
        left = LAST_SECONDS if self.last else ROUND_SECONDS
        while self._waiting and left > 0:
            begun = self._clock()
            while self._waiting and self._clock() - begun < SLICE_SECONDS:
                count = min(len(self._waiting), SLICE_RECORDS)
                taken = [frames.unpack_record(self._waiting.popleft()) for _ in range(count)]
                if diagnosis is not None:
                    diagnosis.feed_many(self._run.rank, taken, self._attempt)
                if rules is not None:
                    rules.feed(taken)
            took = self._clock() - begun
            self._run.overhead.add("diagnosis", took, optional=False)
            left -= took
            if not self.last:
                self._pause(PAUSE_SECONDS)
        if diagnosis is not None:
            self._report_new(diagnosis)
        if rules is not None:
            for breach in rules.take_breaches():
                if self._callback is not None:
                    self._callback.put(breach)

    def _report_new(self, diagnosis: "Diagnosis") -> None:
        if diagnosis.changes == self._seen:
            return
        self._seen = diagnosis.changes
        for finding in diagnosis.findings():
            if finding.identity in self._recorded or finding.kind in PROGRAM:
                continue
            self._recorded[finding.identity] = None
            if len(self._recorded) > MAX_RECORDED:
                del self._recorded[next(iter(self._recorded))]
            text, attrs = finding.text, describe(finding)
            self._run.alert(names.ALERT_FINDING, finding.severity, text, step=finding.last, **attrs)
            if self._callback is not None:
                self._callback.put(finding)

    def close(self, deadline: float, _until: float) -> None:
        """Wait until the callback got every finding, at most until the deadline."""
        if self._callback is not None:
            self._callback.close(deadline)


class Callback:
    """Calls `on_alert` on its own thread, one finding after the other; what it raises is counted."""

    MOST = 256
    """Limit on findings waiting for a slow callback; further ones are counted and not passed on."""

    def __init__(self, run: Part, on_alert: OnAlert) -> None:
        self._run, self._on_alert = run, on_alert
        import queue  # imported on use, as few runs have a callback

        self._findings: queue.Queue[Finding | None] = queue.Queue(self.MOST)
        self._full = queue.Full
        self._thread: threading.Thread | None = None

    def put(self, finding: "Finding") -> None:
        """Queue a call of the callback; never waits."""
        try:
            self._findings.put_nowait(finding)
        except self._full:
            self._run.outcomes.add("dropped", "on_alert", "behind")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="stepscope-on-alert", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while (finding := self._findings.get()) is not None:
            try:
                self._on_alert(finding)
            except BaseException as error:
                self._run.outcomes.add("failed", "on_alert", type(error).__name__)
                self._run.outcomes.notice("on_alert", type(error).__name__, f"on_alert raised {error!r}")

    def close(self, deadline: float) -> None:
        """Wait until it got every finding, at most until the deadline."""
        if self._thread is None or self._thread is threading.current_thread():
            return
        try:
            self._findings.put_nowait(None)
        except self._full:
            return
        self._thread.join(max(deadline - time.monotonic(), 0))


def describe(finding: "Finding") -> dict[str, object]:
    """The attributes of the alert about a finding."""
    shown = {
        "kind": finding.kind,
        "key": finding.key,
        "span": finding.span,
        "value": finding.value,
        "expected": None if finding.expected is None else list(finding.expected),
        "expects": finding.expects or None,
        "since": finding.step,
        "cause": finding.cause,
        "advice": finding.advice,
    }
    return {f"{names.ALERT_FINDING}.{name}": value for name, value in shown.items() if value is not None}
