"""OpenTelemetry providers for Stepscope's own modules: they always write to the current run."""

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
    """The current run; when a new one starts, instruments are reset and collected for it."""

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
        """Reset the instruments in a forked child, which is a separate writer."""
        self._lock = threading.Lock()
        self.meters.begin(time.time_ns())
        if self._collector is not None:
            self._collector.after_fork()


_current = functools.cache(TelemetryRun)


def meters() -> MeterProvider:
    """Return the meter provider; instruments with the same name and scope share one series."""
    return _current().meters


def tracers() -> TracerProvider:
    """Return a tracer provider."""
    return TracerProvider(_current())


def follow() -> None:
    """Start collecting the instruments for the current run now, not only from the first measurement."""
    _ = _current().run
