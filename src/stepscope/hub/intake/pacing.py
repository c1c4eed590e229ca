"""How far apart commits are while nobody reads: farther on a busy machine, not at all once a process has ended."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.hub.intake.store_pump import LOOK_SECONDS, ReceivedBatch
from stepscope.journal.layout import process_alive
from stepscope.model.ports import Writer

QUIET_PACE_SECONDS = 20.0
"""Seconds between two commits while nobody reads: most of what a commit costs does not depend on what it holds."""
BUSY_PACE_SECONDS = 60.0
"""The same while the machine is busy."""
MAX_WAITING_BYTES = 8 * 1024 * 1024
"""Bytes of journals that may wait for a commit: about a second of work."""
IDLE_SHARE, PRESSURE = 0.25, 0.2
"""A machine is busy while less than this share of its CPUs is idle, or tasks wait for one this share of the time."""
MAX_FOLLOWED = 1000
"""The most processes whose end is waited for; others are stored at the usual pace."""
_PRESSURES = (Path("/sys/fs/cgroup/cpu.pressure"), Path("/proc/pressure/cpu"))
"""That of the control group counts: in a container, what others do may not be seen otherwise."""
_STAT = Path("/proc/stat")


class Machine:
    """How busy the CPUs are that this process may use. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, stat: Path = _STAT) -> None:
        self._clock, self._stat = clock, stat
        self._looked = float("-inf")
        self._times: tuple[int, int] = (0, 0)
        self._busy = False

    def is_busy(self) -> bool:
        """Return whether other programs use most of the machine, as of a few seconds ago."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._busy = self._look()
        return self._busy

    def _look(self) -> bool:
        found = self._cpu_times()
        if found is None:
            return os.getloadavg()[0] >= _cpus()
        (idle, total), (idle_before, total_before), self._times = found, self._times, found
        share = (idle - idle_before) / max(total - total_before, 1)
        return share < IDLE_SHARE or _pressure() >= PRESSURE

    def _cpu_times(self) -> tuple[int, int] | None:
        """The time for which the CPUs were idle, and all of their time; None where the system does not tell."""
        try:
            usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
            lines = [line.split() for line in self._stat.read_text().splitlines() if line.startswith("cpu")]
            times = [list(map(int, line[1:9])) for line in lines if line[0] in usable]
        except (OSError, ValueError, AttributeError):
            return None
        return sum(each[3] + each[4] for each in times), sum(map(sum, times))


def _pressure() -> float:
    """The share of the last ten seconds in which some task waited for a CPU; 0 where the system does not tell."""
    for path in _PRESSURES:
        try:
            return float(path.read_text().partition("avg10=")[2].partition(" ")[0]) / 100
        except (OSError, ValueError):
            continue
    return 0.0


def _cpus() -> int:
    return os.cpu_count() or 1


class Pacing:
    """Decides how far apart commits may be. `take` is a subscriber of what is stored; thread-safe."""

    def __init__(
        self,
        waiting_bytes: Callable[[Iterable[str]], int],
        *,
        machine: Machine | None = None,
        is_alive: Callable[[Writer], bool | None] = process_alive,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting_bytes, self._is_alive, self._clock = waiting_bytes, is_alive, clock
        """The first counts what waits of the processes with these journals, and of the network."""
        self._machine = machine or Machine()
        self._lock = threading.Lock()
        self._followed: dict[str, Writer] = {}
        """Processes of this machine whose records were stored, by the path of their journals."""
        self._ended: dict[str, None] = {}
        """Those that have ended, the oldest first."""
        self._looked = float("-inf")

    def take(self, items: Sequence[ReceivedBatch]) -> None:
        """Follow the processes whose records were just stored."""
        with self._lock:
            for item in items:
                writer = item.batch.writer
                key = f"{writer.run}/{writer.id}"
                if len(self._followed) < MAX_FOLLOWED and key not in self._ended:
                    self._followed[key] = writer

    def has_waiting(self) -> bool:
        """Return whether a process that was followed at the last commit has written more, or a client has sent more."""
        with self._lock:
            living = list(self._followed)
        return self._waiting_bytes(living) > 0

    def seconds(self) -> float:
        """Return how far apart commits may be at present."""
        with self._lock:
            return BUSY_PACE_SECONDS if self._machine.is_busy() else QUIET_PACE_SECONDS

    def is_due(self) -> bool:
        """Return whether to store at once: a process has ended since the last look, or too much is waiting."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        with self._lock:
            ended, living = self._has_ended(), list(self._followed)
        return ended or self._waiting_bytes(living) > MAX_WAITING_BYTES

    def _has_ended(self) -> bool:
        known = {key: self._is_alive(writer) for key, writer in self._followed.items()}
        for key in [key for key, alive in known.items() if not alive]:
            del self._followed[key]
            self._ended[key] = None
        while len(self._ended) > MAX_FOLLOWED:
            del self._ended[next(iter(self._ended))]
        return False in known.values()
