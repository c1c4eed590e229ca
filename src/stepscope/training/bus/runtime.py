"""Measurements of the Python runtime (memory, garbage collection, event loop lag), and a poller for them."""

import asyncio
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import stepscope
from stepscope.extend import describe_error, text_of
from stepscope.training.bus.event_bus import BUS, Bus
from stepscope.training.inputs import reject

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def dispatch_runtime_metrics(bus: Bus = BUS) -> None:
    """Emit `vm.memory`, `vm.total_run_queue_lengths`, `vm.system_counts`, `python.gc` and `python.threads`."""
    bus.execute(("vm", "memory"), memory(), {})
    bus.execute(("vm", "total_run_queue_lengths"), run_queue_lengths(), {})
    bus.execute(("vm", "system_counts"), {"thread_count": threading.active_count(), "module_count": len(sys.modules)})
    bus.execute(("python", "threads"), {"count": threading.active_count()}, {})
    for generation, (counts, stats) in enumerate(zip(gc.get_count(), gc.get_stats(), strict=False)):
        bus.execute(("python", "gc"), {"pending": counts, **stats}, {"generation": generation})


dispatch_vm_metrics = dispatch_runtime_metrics


def memory() -> dict[str, int]:
    """Memory of this process in bytes: `total` (resident), `virtual`, `shared`, and blocks allocated by Python."""
    blocks = sys.getallocatedblocks()
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            size, resident, shared = (int(word) * _PAGE for word in file.read().split()[:3])
    except (OSError, ValueError):  # not on Linux
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return {"total": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "blocks": blocks}
    return {"total": resident, "virtual": size, "shared": shared, "blocks": blocks}


def run_queue_lengths() -> dict[str, int]:
    """Tasks of the machine that are runnable (`cpu`), waiting for a disk (`io`), and both; empty except on Linux."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            found = dict(line.split()[:2] for line in file if line.startswith("procs_"))
        cpu, io = int(found["procs_running"]), int(found["procs_blocked"])
    except (OSError, KeyError, ValueError):
        return {}
    return {"total": cpu + io, "cpu": cpu, "io": io}


class EventLoopLag:
    """Measures how late an event loop runs a scheduled call: `python.event_loop` with `lag`.

    A measurement for a `Poller`. Each poll emits the lag of the previous call and schedules the next; while the loop
    is blocked, the lag grows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "main", bus: Bus = BUS) -> None:
        self._loop = loop
        self._name = name
        self._bus = bus
        self._requested: int | None = None
        self._lag: int | None = None

    def __call__(self) -> None:
        """Emit the lag in nanoseconds, and schedule the next call."""
        if self._loop.is_closed():
            return
        requested, lag = self._requested, self._lag
        if requested is not None and lag is None:
            lag = time.monotonic_ns() - requested
        elif self._requested is None or lag is not None:
            self._requested, self._lag = time.monotonic_ns(), None
            self._loop.call_soon_threadsafe(self._answer, self._requested)
        if lag is not None:
            self._bus.execute(("python", "event_loop"), {"lag": lag}, {"loop": self._name})

    def _answer(self, requested: int) -> None:
        self._lag = time.monotonic_ns() - requested


PERIOD = 10.0
LONG_PERIOD = 1000.0
"""A period this long in seconds was probably meant in milliseconds, as in Erlang."""
Measurement = Callable[[], object] | tuple[Any, Callable[[], Any]] | tuple[Any, str, Iterable[Any]]
"""A function that emits its own events, or (event, function) where the function returns the measurements.

As in Erlang also (module, function name, arguments); the module may be given by name, or be any object.
"""


class Poller:
    """Measures every `period` seconds on its own thread, starting immediately, until it is stopped.

    Erlang's period is in milliseconds. A measurement that raises is counted, named in a warning and not called again.
    An invalid period or list of measurements is counted and replaced by the default.
    """

    def __init__(
        self, measurements: Iterable[Measurement] | None = None, period: Any = PERIOD, *, bus: Bus = BUS
    ) -> None:
        self._bus = bus
        self._period: float = period if isinstance(period, (int, float)) and period > 0 else PERIOD
        if self._period != period:
            reject("period", period)
        self._period = min(self._period, threading.TIMEOUT_MAX)
        run = stepscope.current_run()
        if self._period >= LONG_PERIOD and run is not None:
            text = f"Poller(period={self._period:g}) is in seconds; Erlang's period is in milliseconds"
            run.warn(text)
        runtime: list[Measurement] = [lambda: dispatch_runtime_metrics(bus)]
        self.measurements = runtime if measurements is None else _listed(measurements)
        """The measurements that have not failed."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Poller":
        """Start the thread; a second call does nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._loop, name="stepscope-poller", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float = 1.0) -> None:
        """Stop, and wait at most `timeout` for a running measurement."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def poll(self) -> None:
        """Measure once, on the calling thread."""
        for each in list(self.measurements):
            try:
                self._measure(each)
            except Exception as error:
                self.measurements.remove(each)
                self._give_up(each, error)

    def _measure(self, measurement: Any) -> None:
        if callable(measurement):
            measurement()
            return
        first, function, *arguments = measurement
        if not arguments:
            self._bus.execute(first, function(), {})
            return
        module = importlib.import_module(first) if isinstance(first, str) else first
        getattr(module, function)(*arguments[0])

    def _give_up(self, measurement: Any, error: Exception) -> None:
        run = stepscope.current_run()
        if run is not None:
            run.count("failed", "poller", type(error).__name__)
            named = text_of(measurement)
            run.warn(f"the poller's measurement {named} raised {describe_error(error)}; it is not called again")

    def _loop(self) -> None:
        while True:
            self.poll()
            if self._stopping.wait(self._period):
                return

    def __enter__(self) -> "Poller":
        return self.start()

    def __exit__(self, *raised: Any) -> None:
        self.stop()


def _listed(measurements: Any) -> list[Measurement]:
    try:
        return list(measurements)
    except Exception:  # not iterable, or a user's iterator raised
        reject("measurements", measurements)
        return []
