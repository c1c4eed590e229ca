"""Gauges of the machine that a service runs on: cpu, memory, GPUs and its own process, asked about once a second."""

import functools
import time
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Observation

from stepscope.extend import meters, probes

METER = "tuft.resources"
FRESH_SECONDS = 0.5
"""How long a reading serves all gauges."""

GAUGES: dict[str, tuple[str, str, float]] = {
    "tuft.resource.cpu.utilization_percent": ("cpu/utilization", "%", 100.0),
    "tuft.resource.memory.used_bytes": ("memory/used_bytes", "By", 1),
    "tuft.resource.memory.total_bytes": ("memory/limit_bytes", "By", 1),
    "tuft.resource.memory.utilization_percent": ("memory/utilization", "%", 100.0),
    "tuft.resource.process.memory_used_bytes": ("process/rss_bytes", "By", 1),
}
"""For each gauge: which reading it is, its unit, and what the reading is multiplied with."""
GPU_GAUGES: dict[str, tuple[str, str, float]] = {
    "tuft.resource.gpu.utilization_percent": ("utilization", "%", 100.0),
    "tuft.resource.gpu.memory_used_bytes": ("memory_used_bytes", "By", 1),
    "tuft.resource.gpu.memory_total_bytes": ("memory_limit_bytes", "By", 1),
}
"""The same for each GPU, with the attribute `gpu_id`."""


class Machine:
    """Reads the probes that work here, at most twice a second however many gauges ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._probes = [each for each in probes() if each.name.split("/")[0] in ("cpu", "memory", "process", "gpu")]
        self._read: dict[str, float] = {}
        self._at = float("-inf")
        self.watched = True
        """Whether anything is observed at all."""

    def readings(self) -> dict[str, float]:
        """What all probes say now; a probe that fails this time is left out."""
        if self._clock() - self._at >= FRESH_SECONDS:
            self._at, self._read = self._clock(), {}
            for probe in self._probes:
                try:
                    self._read.update(probe.read())
                except (OSError, ValueError, IndexError):
                    continue
        return self._read

    def gauge(self, key: str, factor: float) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """A callback for a reading; without one, such as the first of a rate, nothing is observed."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            found = self.readings().get(key) if self.watched else None
            return [] if found is None else [Observation(found * factor)]

        return observe

    def gpu_gauge(self, key: str, factor: float) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """A callback for a reading of every GPU."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for name, value in self.readings().items() if self.watched else ():
                kind, _, rest = name.partition("/")
                index, _, which = rest.partition("/")
                if kind == "gpu" and which == key:
                    yield Observation(value * factor, {"gpu_id": index})

        return observe


@functools.cache
def machine() -> Machine:
    """The machine of this process, its gauges made; they observe for whatever run is current."""
    made = Machine()
    meter = meters().get_meter(METER)
    for name, (key, unit, factor) in GAUGES.items():
        meter.create_observable_gauge(name, [made.gauge(key, factor)], unit)
    for name, (key, unit, factor) in GPU_GAUGES.items():
        meter.create_observable_gauge(name, [made.gpu_gauge(key, factor)], unit)
    return made
