"""What the Python runtime can be asked: memory, run queues, garbage collection, threads, the lag of event loops."""

import asyncio
import gc
import os
import sys
import threading
import time

from stepscope.training.bus.dispatch import BUS, Bus

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

    A measurement for a `Poller`. Each call says what the last request met with and makes the next; while a loop
    does not answer, the lag said grows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str = "main", bus: Bus = BUS) -> None:
        self._loop = loop
        self._name = name
        self._bus = bus
        self._asked: int | None = None
        self._lag: int | None = None

    def __call__(self) -> None:
        """Say the lag in nanoseconds, and ask again."""
        if self._loop.is_closed():
            return
        asked, lag = self._asked, self._lag
        if asked is not None and lag is None:
            lag = time.monotonic_ns() - asked
        elif self._asked is None or lag is not None:
            self._asked, self._lag = time.monotonic_ns(), None
            self._loop.call_soon_threadsafe(self._answer, self._asked)
        if lag is not None:
            self._bus.execute(("python", "event_loop"), {"lag": lag}, {"loop": self._name})

    def _answer(self, asked: int) -> None:
        self._lag = time.monotonic_ns() - asked
