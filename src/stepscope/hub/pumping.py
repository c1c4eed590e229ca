"""The hub's pump at work on a thread of its own: two commits a second or as fast as it must, heard and timed."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from stepscope.hub.backlog import Item
from stepscope.hub.inflow import Inflow
from stepscope.hub.tallies import Tallies
from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Sink
from stepscope.pump import Progress, Pump

GROUP_BYTES = 256 * 1024 * 1024
"""More than a full group of records has: their number bounds it."""
PACE_SECONDS = 0.5
HOPELESS_SECONDS = 2.0
"""A store that is left alone for so long after it refused is not waited for at the end: the journals hold the rest."""
_RATE_SECONDS = 30.0
_STORED = {"written": "stored"}
"""In the hub, written means acknowledged."""


class Pumping:
    """Drives one pump from the journals into the store; it survives every refusal, and the journals hold the rest."""

    def __init__(
        self,
        sink: Sink,
        inflow: Inflow,
        quarantine: Quarantine,
        tallies: Tallies,
        *,
        idle: Callable[[], float] = lambda: PACE_SECONDS,
        pace: float = PACE_SECONDS,
    ) -> None:
        self._inflow, self._tallies = inflow, tallies
        self._pump = Pump(sink, inflow, quarantine, group_bytes=GROUP_BYTES, on_outcome=self._on_outcome)
        self._idle, self._pace = idle, pace
        self.listeners: list[Callable[[Sequence[Item]], None]] = []
        """Called on the pump's thread with what was just stored; they must be quick."""
        self._wake, self._halt = threading.Event(), threading.Event()
        self._deadline = 0.0
        self._began = float("-inf")
        self._caught_up_at = time.monotonic()
        self._rates: deque[tuple[float, int]] = deque(maxlen=10_000)
        self._thread = threading.Thread(target=self._loop, name="stepscope-pump", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to move."""
        self._wake.set()

    def stop(self, seconds: float = 10.0) -> None:
        """Move what is there, for so long at most, save the cursors and end."""
        self._deadline = time.monotonic() + seconds
        self._halt.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds + 5.0)

    @property
    def trouble(self) -> str:
        """Why the store takes nothing just now; empty when it does."""
        return self._pump.trouble

    def seconds_behind(self) -> float:
        """Tell how long it has been since everything that was read was stored."""
        return max(time.monotonic() - self._caught_up_at - 2 * PACE_SECONDS, 0.0)

    def rate(self) -> float:
        """Records stored per second, over the last half minute."""
        since = time.monotonic() - _RATE_SECONDS
        return sum(count for moment, count in list(self._rates) if moment >= since) / _RATE_SECONDS

    def _loop(self) -> None:
        while not self._halt.is_set():
            progress = self._step()
            if not (progress.moved and self._inflow.full and not progress.wait):
                self._rest(progress.wait)
        self._pump.wake()
        while (left := self._deadline - time.monotonic()) > 0:
            progress = self._step()
            hopeless = self._pump.trouble and progress.wait >= HOPELESS_SECONDS
            if hopeless or progress.wait >= left or (self._pump.at_end and not progress.moved):
                break
            time.sleep(progress.wait)
        self._end()

    def _step(self) -> Progress:
        began = time.monotonic()
        progress = self._pump.step()
        if progress.moved:
            self._began = began
        if not self._inflow.full and not self._pump.trouble:
            self._caught_up_at = time.monotonic()
        return progress

    def _rest(self, seconds: float) -> None:
        """Wait so long, leave time between two commits, for each makes parts that must be merged; then for news."""
        self._halt.wait(max(seconds, self._began + self._pace - time.monotonic()))
        self._wake.wait(min(self._idle(), self._pace))
        self._wake.clear()

    def _end(self) -> None:
        self._pump.close()
        try:
            self._inflow.save()
        except (OSError, Retry) as error:
            self._pump.trouble = f"the hub cannot save how far it has read: {error}"

    def _on_outcome(self, outcome: str, batches: Sequence[Batch], reason: str) -> None:
        if outcome == "retried":
            self._tallies.add("retried", "store", len(batches), "store")
            return
        items = [Item(self._inflow.receiver(batch), batch) for batch in batches]
        counts: dict[str, int] = {}
        for item in items:
            counts[item.receiver] = counts.get(item.receiver, 0) + len(item.batch.records)
        for receiver, count in counts.items():
            self._tallies.add(_STORED.get(outcome, outcome), receiver, count, reason[:100])
        if outcome == "written":
            self._rates.append((time.monotonic(), sum(counts.values())))
            self._tell(items)

    def _tell(self, items: Sequence[Item]) -> None:
        for listener in self.listeners if items else ():
            try:
                listener(items)
            except Exception as error:
                self._tallies.add("dropped", "listener", len(items), type(error).__name__)
