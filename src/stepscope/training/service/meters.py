"""Instruments of training code: they write to whatever run is current, whoever owns the process's OpenTelemetry."""

import functools
import os
import threading
import time
from typing import Any

import stepscope
from stepscope.sdk.otel.collect import Collector
from stepscope.sdk.otel.meter import MeterProvider
from stepscope.sdk.otel.seat import Seat


class RunSeat(Seat):
    """The current run; a new one starts the instruments from nothing and has them collected."""

    __slots__ = ("_bound", "_collector", "_lock", "provider")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bound: Any = None
        self._collector: Collector | None = None
        self.provider = MeterProvider(self)
        os.register_at_fork(after_in_child=self._after_fork)

    @property
    def run(self) -> Any:  # type: ignore[override]
        """The current run."""
        run = stepscope.current_run()
        if run is not None and run is not self._bound:
            self._bind(run)
        return run

    def _bind(self, run: Any) -> None:
        with self._lock:
            if self._bound is run or not hasattr(run, "duties"):
                return
            self.provider.begin(run.started)
            self._collector = collector = Collector(run, self.provider)
            run.duties.collectors.append(collector)
            run.duties.closing.append(collector.end)
            self._bound = run

    def _after_fork(self) -> None:
        """Count from nothing in a child: it is a writer of its own."""
        self._lock = threading.Lock()
        self.provider.begin(time.time_ns())
        if self._collector is not None:
            self._collector.after_fork()


_seat = functools.cache(RunSeat)


def meters() -> MeterProvider:
    """The process's provider of such instruments."""
    return _seat().provider


def follow() -> None:
    """Have the current run collect the instruments from now on, and not only from the first measurement."""
    _ = _seat().run
