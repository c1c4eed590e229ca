"""The instruments of a training service under their published names, and gauges of the machine it runs on."""

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation, UpDownCounter

from stepscope.extend import meters, probes

METER = "tuft"


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """One instrument for each published name; the attribute is the name without `tuft.`, with `_` for its dots."""

    training_models_active: UpDownCounter
    training_tokens_per_second: Histogram
    training_checkpoints_saved: Counter
    training_checkpoint_size_bytes: Histogram
    sampling_sessions_active: UpDownCounter
    sampling_requests: Counter
    sampling_duration: Histogram
    sampling_tokens_per_second: Histogram
    sampling_output_tokens: Histogram
    futures_queue_length: UpDownCounter
    futures_created: Counter
    futures_completed: Counter
    futures_wait_time: Histogram
    futures_execution_time: Histogram
    redis_operation_duration: Histogram


INSTRUMENTS: dict[str, tuple[str, str, str]] = {
    "tuft.training.models.active": ("up_down_counter", "{model}", "Models that are loaded"),
    "tuft.training.tokens_per_second": ("histogram", "tokens/s", "Tokens trained on per second"),
    "tuft.training.checkpoints.saved": ("counter", "{checkpoint}", "Checkpoints that were saved"),
    "tuft.training.checkpoint.size_bytes": ("histogram", "bytes", "Size of a checkpoint"),
    "tuft.sampling.sessions.active": ("up_down_counter", "{session}", "Sampling sessions that are open"),
    "tuft.sampling.requests": ("counter", "{request}", "Requests for samples"),
    "tuft.sampling.duration": ("histogram", "s", "Time a request for samples took"),
    "tuft.sampling.tokens_per_second": ("histogram", "tokens/s", "Tokens sampled per second"),
    "tuft.sampling.output_tokens": ("histogram", "tokens", "Tokens of a sample"),
    "tuft.futures.queue_length": ("up_down_counter", "{future}", "Futures that wait"),
    "tuft.futures.created": ("counter", "{future}", "Futures that were made"),
    "tuft.futures.completed": ("counter", "{future}", "Futures that ended, by status"),
    "tuft.futures.wait_time": ("histogram", "s", "Time a future waited"),
    "tuft.futures.execution_time": ("histogram", "s", "Time a future ran"),
    "tuft.redis.operation.duration": ("histogram", "s", "Time an operation of Redis took"),
}
"""The kind, unit and description of each instrument."""


def attribute(name: str) -> str:
    """The attribute of `ServiceMetrics` that holds an instrument."""
    return name.removeprefix("tuft.").replace(".", "_")


@functools.cache
def get_metrics() -> ServiceMetrics:
    """The instruments of this process; always the same. They write to the current run, and without one nowhere."""
    meter: Any = meters().get_meter(METER)
    return ServiceMetrics(
        **{
            attribute(name): getattr(meter, f"create_{kind}")(name, unit=unit, description=text)
            for name, (kind, unit, text) in INSTRUMENTS.items()
        }
    )


RESOURCE_METER = "tuft.resources"
FRESH_SECONDS = 0.5
"""How long a reading is cached for all gauges."""

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
    """Reads the probes that work here, at most twice a second for all gauges."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._probes = [each for each in probes() if each.name.split("/")[0] in ("cpu", "memory", "process", "gpu")]
        self._read: dict[str, float] = {}
        self._at = float("-inf")
        self.watched = True
        """Whether anything is observed at all."""

    def readings(self) -> dict[str, float]:
        """The values of all probes; one that fails is left out."""
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
    meter = meters().get_meter(RESOURCE_METER)
    for name, (key, unit, factor) in GAUGES.items():
        meter.create_observable_gauge(name, [made.gauge(key, factor)], unit)
    for name, (key, unit, factor) in GPU_GAUGES.items():
        meter.create_observable_gauge(name, [made.gpu_gauge(key, factor)], unit)
    return made
