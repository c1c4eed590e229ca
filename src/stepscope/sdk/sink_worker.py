"""A line is one sink at work: its pump on a thread of its own, so that a dead sink delays nobody."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stepscope.journal.following import Following, Wanted
from stepscope.journal.quarantine import Quarantine
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Sink
from stepscope.pump import GROUP_BYTES, Pump
from stepscope.sdk import registrations
from stepscope.sdk.filtered import Filtered
from stepscope.sdk.sink_news import Tell, Watch
from stepscope.sdk.slices import Slices
from stepscope.sinks.registry import Chosen, Config
from stepscope.wire import frames

REPORT_SECONDS = 2.0


class Report(msgspec.Struct, frozen=True):
    """How a sink fares: for people and for those who wait."""

    sink: str
    place: str
    counts: dict[str, int]
    trouble: str
    unread: int
    """Bytes of journal still to be delivered."""
    time: float


class _Opening:
    """A sink that is opened when needed: what is missing for it today may be there tomorrow."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sink: Sink | None = None

    @property
    def timeout(self) -> float:
        """That of the sink."""
        return self._sink.timeout if self._sink is not None else 10.0

    @property
    def divisible(self) -> bool:
        """As the sink says; while it cannot be opened, nobody knows."""
        try:
            return self._opened().divisible
        except Retry:
            return False

    @property
    def place(self) -> str:
        """As the sink says, where it knows better than its options."""
        return str(getattr(self._sink, "place", self._config.place))

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Open the sink unless it is, and write."""
        return self._opened().write(batches)

    def _opened(self) -> Sink:
        if self._sink is None:
            try:
                self._sink = self._config.open()
            except Exception as error:
                raise Retry(f"cannot be opened: {error}") from error
        return self._sink

    def close(self) -> None:
        """Close the sink if it was opened."""
        if self._sink is not None:
            self._sink.close()


class SinkWorker:
    """One sink served on a thread. `drained` tells that nothing was left at the last look.

    With `sliced` it works in pieces so small that other threads of the process hardly notice.
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
        tell: Tell | None = None,
    ) -> None:
        self.chosen = chosen
        self._kept_in = home if remember else None
        """Where it is remembered how the sink is reached, for what it refuses."""
        packed = getattr(chosen.config, "packed", False)
        unpack = frames.unpack_raw_batch if packed or sliced else frames.unpack_batch
        self.following = Following(home, chosen.id, runs=runs, wanted=wanted, remember=remember, unpack=unpack)
        sink = self._sink = _Opening(chosen.config)
        slices = Slices(self.following, lambda: sink.divisible) if sliced and not packed else self.following
        source = Filtered(slices, chosen.filter) if chosen.filter else slices
        self.pump = Pump(sink, source, Quarantine(home, chosen.id), group_bytes=group_bytes)
        if isinstance(source, Filtered):
            source.counts = self.pump.counts
        self._watch = Watch(chosen.id, lambda: sink.place, tell) if tell is not None else None
        self.drained = False
        self._report_path = registrations.folder(home) / f"{chosen.id}@{report}.report" if report else None
        self._reported = 0.0
        self._hurry = False
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=f"stepscope-{chosen.name}", daemon=True)
        self._thread.start()

    def look_again(self) -> None:
        """Look at every journal at once; `drained` is false until that was done."""
        self.drained = False
        self._hurry = True
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """End after the write under way, at most so many seconds; whether it ended."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def report(self) -> Report:
        """Say how it fares."""
        counts = {key: number for key, number in self.pump.counts.items() if "/" not in key}
        try:
            unread = self.following.unread_now()
        except (OSError, RuntimeError):  # the thread is adding a writer just now
            unread = -1
        return Report(self.chosen.id, self._sink.place, counts, self.pump.trouble, unread, time.time())

    def _loop(self) -> None:
        if self._kept_in is not None:
            registrations.keep_sink(self._kept_in, self.chosen)
        while not self._stopping:
            if self._hurry:
                self._hurry = False
                self.following.hurry()
                if not self.pump.is_stuck:
                    self.pump.wake()
            progress = self.pump.step()
            if self._watch is not None:
                self._watch.look(self.pump)
            self.drained = self.pump.at_end and not self._hurry
            self._tell()
            if progress.wait:
                self._wake.wait(progress.wait)
                self._wake.clear()
        self.pump.close()
        self._tell(force=True)

    def _tell(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._report_path is not None and (force or now - self._reported > REPORT_SECONDS):
            self._reported = now
            with contextlib.suppress(OSError):
                registrations.replace(self._report_path, msgspec.json.encode(self.report()))
