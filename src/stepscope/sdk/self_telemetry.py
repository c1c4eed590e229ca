"""What our own modules trace and measure: it goes to the current run, whoever provides the process's OpenTelemetry."""

import functools
import os
import threading
import time
from typing import Any

from stepscope.sdk import api
from stepscope.sdk.otel.current_run import CurrentRun
from stepscope.sdk.otel.meter import Collector, MeterProvider
from stepscope.sdk.otel.tracer import TracerProvider


class TelemetryRun(CurrentRun):
    """The current run; a new one starts the instruments from nothing and has them collected."""

    __slots__ = ("_bound", "_collector", "_lock", "meters")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bound: Any = None
        self._collector: Collector | None = None
        self.meters = MeterProvider(self)
        os.register_at_fork(after_in_child=self._after_fork)

    @property
    def run(self) -> Any:  # type: ignore[override]
        """The current run."""
        run = api.current_run()
        if run is not None and run is not self._bound:
            self._bind(run)
        return run

    def _bind(self, run: Any) -> None:
        with self._lock:
            if self._bound is run:
                return
            self.meters.begin(run.started)
            self._collector = collector = Collector(run, self.meters)
            run.periodic.collectors.append(collector)
            run.periodic.closing.append(collector.end)
            self._bound = run

    def _after_fork(self) -> None:
        """Count from nothing in a child: it is a writer of its own."""
        self._lock = threading.Lock()
        self.meters.begin(time.time_ns())
        if self._collector is not None:
            self._collector.after_fork()


_current = functools.cache(TelemetryRun)


def meters() -> MeterProvider:
    """The process's provider of our own instruments: one of a name in a scope is one series, whoever asks for it."""
    return _current().meters


def tracers() -> TracerProvider:
    """A provider of tracers for our own spans."""
    return TracerProvider(_current())


def follow() -> None:
    """Have the current run collect the instruments from now on, and not only from the first measurement."""
    _ = _current().run
