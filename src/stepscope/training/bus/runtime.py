"""Measurements of the Python runtime (memory, garbage collection, event loop lag), and a poller for them."""

import asyncio
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import describe_error, text_of
from stepscope.training.bus.event_bus import BUS, Bus
from stepscope.training.inputs import reject

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def dispatch_runtime_metrics(bus: Bus = BUS) -> None:
    """Say `vm.memory`, `vm.total_run_queue_lengths`, `vm.system_counts`, `python.gc` and `python.threads`."""
    bus.execute(("vm", "memory"), memory(), {})
    bus.execute(("vm", "total_run_queue_lengths"), run_queue_lengths(), {})
    bus.execute(("vm", "system_counts"), {"thread_count": threading.active_count(), "module_count": len(sys.modules)})
    bus.execute(("python", "threads"), {"count": threading.active_count()}, {})
    for generation, (counts, stats) in enumerate(zip(gc.get_count(), gc.get_stats(), strict=False)):
        bus.execute(("python", "gc"), {"pending": counts, **stats}, {"generation": generation})


dispatch_vm_metrics = dispatch_runtime_metrics


def memory() -> dict[str, int]:
    """Bytes of this process: `total` that is resident, `virtual`, `shared`, and blocks Python holds."""
    blocks = sys.getallocatedblocks()
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            size, resident, shared = (int(word) * _PAGE for word in file.read().split()[:3])
    except (OSError, ValueError):  # no such file on this system
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return {"total": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "blocks": blocks}
    return {"total": resident, "virtual": size, "shared": shared, "blocks": blocks}


def run_queue_lengths() -> dict[str, int]:
    """Tasks of the machine that want to run (`cpu`), that wait for a disk (`io`), and both; nothing but on Linux."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            found = dict(line.split()[:2] for line in file if line.startswith("procs_"))
        cpu, io = int(found["procs_running"]), int(found["procs_blocked"])
    except (OSError, KeyError, ValueError):
        return {}
    return {"total": cpu + io, "cpu": cpu, "io": io}


class EventLoopLag:
    """Measures how late an event loop runs what it is asked to run: `python.event_loop` with `lag`.

    A measurement for a `Poller`. Each call emits the lag of the last request and makes the next; while a loop
    does not answer, the lag grows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "main", bus: Bus = BUS) -> None:
        self._loop = loop
        self._name = name
        self._bus = bus
        self._requested: int | None = None
        self._lag: int | None = None

    def __call__(self) -> None:
        """Emit the lag in nanoseconds, and ask again."""
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
"""A period of so many seconds was probably meant in milliseconds, as Erlang has it."""
Measurement = Callable[[], object] | tuple[Any, Callable[[], Any]] | tuple[Any, str, Iterable[Any]]
"""A function that says what it measures by itself, or an event and a function whose answer is its measurements.

In the manner of Erlang also a module, or its name, the name of a function in it, and the function's arguments; any
object does for a module.
"""


class Poller:
    """Measures every `period` seconds on a thread of its own, first at once, until it is stopped.

    Erlang's poller has its period in milliseconds. A measurement that raises is not asked again; it is counted and
    named once. A period or measurements that are none are counted, and the usual period or no measurements taken.
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
        """Measurements that have not failed."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Poller":
        """Begin; a second start does nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._loop, name="stepscope-poller", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float = 1.0) -> None:
        """End, and wait for a measurement that is under way, but no longer than the timeout."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def poll(self) -> None:
        """Measure once, now and here."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def _listed(measurements: Any) -> list[Measurement]:
    try:
        return list(measurements)
    except Exception:  # nothing that can be gone through, or whatever a foreign iterator raises
        reject("measurements", measurements)
        return []
