"""Reads the machine and the process periodically, in one thread that cannot affect the run."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stepscope.sdk.overhead import Overhead
from stepscope.sdk.probes import amd, nvml, system, tpu
from stepscope.sdk.probes.cgroup import PROC
from stepscope.sdk.probes.gpu_totals import GpuTotals, is_within
from stepscope.sdk.probes.system import Reading

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

INTERVAL = 5.0
GROUP = "stepscope.probes"
"""The entry points of other packages: functions without arguments that return probes, or raise with the reason."""


class Probe(Protocol):
    """Something that can be read repeatedly, by one thread."""

    name: str
    detail: str
    """What is read, for display."""

    def read(self) -> Reading:
        """Read now; rates are against the reading before, and missing from the first."""

    def close(self) -> None:
        """Release resources; it is not read again."""


def available(*, host: bool = True) -> list[Probe]:
    """Open every probe that works here; without `host` only the one of this process."""
    return survey(host=host)[0]


def missing() -> dict[str, str]:
    """Name the probes that do not work here, each with the reason."""
    found, reasons = survey()
    for probe in found:
        probe.close()
    return reasons


def survey(*, host: bool = True) -> tuple[list[Probe], dict[str, str]]:
    """Open the probes that work here, and name the others with their reasons.

    Asking a GPU driver can take seconds.
    """
    found: list[Probe] = []
    reasons: dict[str, str] = {}
    for name, open_probes in _openers(host).items():
        try:
            for probe in open_probes():
                _try(probe, found, reasons)
        except Exception as error:
            reasons[name] = str(error) or type(error).__name__
    return found, reasons


def _try(probe: Probe, found: list[Probe], reasons: dict[str, str]) -> None:
    try:
        probe.read()
    except Exception as error:
        reasons[probe.name] = str(error) or type(error).__name__
        probe.close()
    else:
        found.append(probe)


def _openers(host: bool) -> dict[str, Callable[[], Sequence[Probe]]]:
    names = ["cpu", "psi", "memory", "disk", "network", "process"] if host else ["process"]
    if (PROC / "self" / "stat").exists():
        linux: dict[str, Callable[[], Probe]] = {
            "cpu": system.Cpu,
            "psi": system.Pressure,
            "memory": system.Memory,
            "disk": system.Disk,
            "network": system.Network,
            "process": system.Process,
        }
        openers = {name: partial(_one, linux[name]) for name in names}
    else:
        openers = {name: partial(_one, partial(system.open_portable, name)) for name in names if name != "psi"}
    return openers | ({"gpu": _gpus, **_registered()} if host else {})


def _gpus() -> list[Probe]:
    """The GPUs of the first maker that has any here; OSError, with all reasons, when there is none."""
    makers: tuple[Callable[[], Sequence[Probe]], ...] = (nvml.open_gpus, amd.open_gpus, tpu.open_gpus)
    reasons: list[str] = []
    for open_gpus in makers:
        try:
            return list(open_gpus())
        except (OSError, ImportError) as error:
            reasons.append(str(error))
    raise OSError("; ".join(reasons))


def _registered() -> dict[str, Callable[[], Sequence[Probe]]]:
    """The probes of other packages, by the name of their entry point."""
    from importlib.metadata import entry_points  # slow to import, and only in the thread of the probes

    return {point.name: partial(_load, point) for point in entry_points(group=GROUP)}


def _load(point: "EntryPoint") -> Sequence[Probe]:
    opened: Sequence[Probe] = point.load()()
    return opened


def _held(probes: Sequence[Probe]) -> list[int]:
    """The GPUs that this process or one that it started computes on, as far as their drivers say."""
    here = os.getpid()
    found = []
    for probe in probes:
        processes = getattr(probe, "processes", None)
        if processes is not None and any(is_within(pid, here) for pid in processes()):
            found.append(int(probe.name.removeprefix("gpu/")))
    return found


def _one(open_probe: Callable[[], Probe]) -> list[Probe]:
    return [open_probe()]


class Probes:
    """Reads all probes every `interval` seconds and passes the values to `write`, in one daemon thread.

    A probe that raises is not read again, which is reported once to `notice`. The probes are closed by the thread that
    reads them. After a fork nothing runs in the child, and `stop` does nothing there.
    """

    def __init__(
        self,
        write: Callable[[Reading], None],
        interval: float = INTERVAL,
        probes: Sequence[Probe] | None = None,
        *,
        notice: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
        overhead: Overhead | None = None,
        totals: GpuTotals | None = None,
    ) -> None:
        """Without `probes` the thread opens those `available`; `wait` sleeps and returns whether to stop."""
        self._write = write
        self._interval = interval
        self._probes = probes
        self._notice = notice
        self._clock = clock
        self._wait = wait
        self._overhead = overhead
        self._totals = totals
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._noticed: set[str] = set()

    def start(self) -> None:
        """Start the thread, unless it is running; where no thread can be started there are no readings."""
        if self._thread is not None and self._pid == os.getpid() and self._thread.is_alive():
            return
        self._pid = os.getpid()
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._run, args=(self._stopped,), name="stepscope-probes", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._notify(f"the probes are off: {error}")
        else:
            self._thread = thread

    def stop(self, timeout: float = 1.0) -> bool:
        """Stop reading; False when a hanging probe kept the thread alive for longer than `timeout`."""
        if self._thread is None or self._pid != os.getpid():
            return True
        self._stopped.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, stopped: threading.Event) -> None:
        wait = self._wait or stopped.wait
        probes = list(available() if self._probes is None else self._probes)
        due = self._clock()
        while probes and not stopped.is_set():
            self._read_if_affordable(probes)
            due = max(due + self._interval, self._clock())
            if wait(due - self._clock()):
                break
        if self._totals is not None and self._pid == os.getpid():
            self._read([probe for probe in probes if probe.name.startswith("gpu/")], ended=True)
        for probe in probes:
            self._close(probe)

    def _read_if_affordable(self, probes: list[Probe]) -> None:
        """Read, unless that would exceed the overhead budget: then the next reading comes later."""
        overhead = self._overhead
        if overhead is None:
            self._read(probes)
        elif overhead.affords():
            began = time.thread_time()
            self._read(probes)
            overhead.add("probes", time.thread_time() - began)

    def _read(self, probes: list[Probe], *, ended: bool = False) -> None:
        """Read every probe, and remove those that raise."""
        reading: Reading = {}
        for probe in list(probes):
            try:
                reading |= probe.read()
            except Exception as error:
                probes.remove(probe)
                self._notify(f"the {probe.name} probe is off: {type(error).__name__}: {error}")
                self._close(probe)
        try:
            if self._totals is not None:
                sums = self._totals.add(reading, self._clock(), _held(probes), ended=ended)
                reading = {key: value for key, value in reading.items() if not key.endswith("/energy_joules")} | sums
            if reading:
                self._write(reading)
        except Exception as error:
            self._notify(f"probe values cannot be written: {type(error).__name__}: {error}")

    def _close(self, probe: Probe) -> None:
        try:
            probe.close()
        except Exception as error:
            self._notify(f"the {probe.name} probe cannot be closed: {type(error).__name__}: {error}")

    def _notify(self, text: str) -> None:
        if text in self._noticed:
            return
        self._noticed.add(text)
        try:
            self._notice(text)
        except Exception:
            pass
