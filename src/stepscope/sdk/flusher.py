"""The one thread that writes: every tenth of a second, what was recorded goes to the journal."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from stepscope.journal import quota
from stepscope.journal.write import Journal
from stepscope.model.records import KINDS
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import Recorder
from stepscope.wire import frames

log = logging.getLogger("stepscope")
RETRY_SECONDS = 1.0


class Flusher:
    """Drains a recorder into a journal. Survives every failure of the disk; what waits is bounded by the recorder."""

    def __init__(
        self,
        recorder: Recorder,
        outcomes: Outcomes,
        open_journal: Callable[[], Journal],
        *,
        interval: float,
        disk_quota: int,
        duties: Callable[[float], None],
    ) -> None:
        self.journal: Journal | None = None
        self._recorder = recorder
        self._outcomes = outcomes
        self._open_journal = open_journal
        self._interval = interval
        self._disk_quota = disk_quota
        self._duties = duties
        self.reset()

    def reset(self) -> None:
        """Forget thread, locks and journal; a child does this after a fork."""
        if self.journal is not None:
            self.journal.close()
        self.journal = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._waiting: list[threading.Event] = []
        self._stopping = False
        self._ended = False
        self._safe = True
        """Whether the last round wrote everything there was."""
        self._retry_at = 0.0
        self._segment: object = None

    def start(self) -> None:
        """Start the thread unless it runs or has been stopped. Never raises."""
        if self._thread is not None or self._stopping or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="stepscope-flusher", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:  # no new threads at interpreter shutdown
            self._stopping = True
        finally:
            self._starting.release()

    def flush(self, timeout: float) -> bool:
        """Wait until everything recorded before the call is in the journal; False when that took too long."""
        self.start()
        if self._ended or self._thread is None:
            return self._safe
        done = threading.Event()
        self._waiting.append(done)
        self._wake.set()
        return done.wait(timeout) and self._safe

    def stop(self, timeout: float) -> bool:
        """Write what is left, close the journal and end the thread; False when that took too long."""
        deadline = time.monotonic() + timeout
        self.start()
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(max(deadline - time.monotonic(), 0))
        elif not self._ended:  # no thread could be started so late: write here
            self._end()
        return self._ended and self._safe

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval)
            self._wake.clear()
            self._cycle()
        self._end()

    def _end(self) -> None:
        self._cycle(last=True)
        self._ended = True
        if self._recorder.buffer:
            log.warning("%d records could not be written before the end", len(self._recorder.buffer))
        self._recorder.close()
        if self.journal is not None:
            self.journal.close()

    def _cycle(self, *, last: bool = False) -> None:
        """Do one round of everything; whatever goes wrong is counted and the next round tries again."""
        waiting, self._waiting = self._waiting, []
        self._safe = False
        try:
            now = time.monotonic()
            self._duties(now)
            if last or now >= self._retry_at:
                self._safe = self._drain()
            for notice in self._outcomes.take_notices():
                log.warning("%s", notice)
        except Exception as error:
            self._outcomes.add("failed", "cycle", type(error).__name__)
            log.warning("the flusher stumbled and goes on: %r", error)
        for done in waiting:
            done.set()

    def _drain(self) -> bool:
        while batch := self._recorder.take():
            try:
                self._write(batch)
            except OSError as error:
                self._recorder.taken(safe=False)
                self._trouble(error)
                return False
            except BaseException:
                self._recorder.taken(safe=True)
                self._outcomes.add("dropped", "record", "unwritable", len(batch))
                raise
            self._recorder.taken(safe=True)
            self._mend()
        return True

    def _write(self, batch: list[bytes]) -> None:
        if len(batch[0]) > frames.LIMIT - frames.BATCH_BYTES:
            self._outcomes.add("dropped", KINDS[quota.kind_of(batch[0])], "too large")
            return
        if self.journal is None:
            self.journal = self._open_journal()
        self.journal.append(batch)
        for kind, count in Counter(map(quota.kind_of, batch)).items():
            self._outcomes.add("written", KINDS[kind], count=count)
        current = self.journal.current()
        if current != self._segment:
            self._segment = current
            for name, count in quota.enforce(self.journal.folder, self._disk_quota, current).items():
                self._outcomes.add("dropped", name, "disk", count)

    def _trouble(self, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._outcomes.notice(
            "journal",
            "trouble",
            f"the journal cannot be written ({error}); records wait in memory, training goes on. "
            "Free some space or set STEPSCOPE_HOME to a folder that can be written",
        )

    def _mend(self) -> None:
        if self._retry_at:
            self._retry_at = 0.0
            self._outcomes.rearm("journal", "trouble")
            self._outcomes.notice("journal", f"mended {time.monotonic()}", "the journal can be written again")
