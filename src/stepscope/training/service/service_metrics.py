"""The instruments of a training service under their published names, and gauges of its machine."""

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
    """One instrument per published name; the attribute is the name without `tuft.`, with `_` instead of dots."""

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
    "tuft.training.models.active": ("up_down_counter", "{model}", "Loaded models"),
    "tuft.training.tokens_per_second": ("histogram", "tokens/s", "Tokens trained on per second"),
    "tuft.training.checkpoints.saved": ("counter", "{checkpoint}", "Saved checkpoints"),
    "tuft.training.checkpoint.size_bytes": ("histogram", "bytes", "Size of a checkpoint"),
    "tuft.sampling.sessions.active": ("up_down_counter", "{session}", "Open sampling sessions"),
    "tuft.sampling.requests": ("counter", "{request}", "Sampling requests"),
    "tuft.sampling.duration": ("histogram", "s", "Duration of a sampling request"),
    "tuft.sampling.tokens_per_second": ("histogram", "tokens/s", "Tokens sampled per second"),
    "tuft.sampling.output_tokens": ("histogram", "tokens", "Tokens per sample"),
    "tuft.futures.queue_length": ("up_down_counter", "{future}", "Waiting futures"),
    "tuft.futures.created": ("counter", "{future}", "Created futures"),
    "tuft.futures.completed": ("counter", "{future}", "Completed futures by status"),
    "tuft.futures.wait_time": ("histogram", "s", "Waiting time of a future"),
    "tuft.futures.execution_time": ("histogram", "s", "Execution time of a future"),
    "tuft.redis.operation.duration": ("histogram", "s", "Duration of a Redis operation"),
}
"""The kind, unit and description of each instrument."""


def attribute(name: str) -> str:
    """The attribute of `ServiceMetrics` for an instrument."""
    return name.removeprefix("tuft.").replace(".", "_")


@functools.cache
def get_metrics() -> ServiceMetrics:
    """The instruments of this process, always the same object. They write to the current run, if any."""
    meter: Any = meters().get_meter(METER)
    return ServiceMetrics(
        **{
            attribute(name): getattr(meter, f"create_{kind}")(name, unit=unit, description=text)
            for name, (kind, unit, text) in INSTRUMENTS.items()
        }
    )


RESOURCE_METER = "tuft.resources"
FRESH_SECONDS = 0.5
"""How long readings are cached, in seconds."""

GAUGES: dict[str, tuple[str, str, float]] = {
    "tuft.resource.cpu.utilization_percent": ("cpu/utilization", "%", 100.0),
    "tuft.resource.memory.used_bytes": ("memory/used_bytes", "By", 1),
    "tuft.resource.memory.total_bytes": ("memory/limit_bytes", "By", 1),
    "tuft.resource.memory.utilization_percent": ("memory/utilization", "%", 100.0),
    "tuft.resource.process.memory_used_bytes": ("process/rss_bytes", "By", 1),
}
"""For each gauge: its reading, its unit, and the factor for the reading."""
GPU_GAUGES: dict[str, tuple[str, str, float]] = {
    "tuft.resource.gpu.utilization_percent": ("utilization", "%", 100.0),
    "tuft.resource.gpu.memory_used_bytes": ("memory_used_bytes", "By", 1),
    "tuft.resource.gpu.memory_total_bytes": ("memory_limit_bytes", "By", 1),
}
"""The same for gauges of each GPU, with the attribute `gpu_id`."""


class Machine:
    """Reads the available probes, at most twice a second for all gauges."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._probes = [each for each in probes() if each.name.split("/")[0] in ("cpu", "memory", "process", "gpu")]
        self._read: dict[str, float] = {}
        self._at = float("-inf")
        self.watched = True
        """Whether the gauges are observed."""

    def readings(self) -> dict[str, float]:
        """The values of all probes; failing probes are left out."""
        if self._clock() - self._at >= FRESH_SECONDS:
            self._at, self._read = self._clock(), {}
            for probe in self._probes:
                try:
                    self._read.update(probe.read())
                except (OSError, ValueError, IndexError):
                    continue
        return self._read

    def gauge(self, key: str, factor: float) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """A callback for a reading; it observes nothing while there is no reading yet, such as of a rate."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            found = self.readings().get(key) if self.watched else None
            return [] if found is None else [Observation(found * factor)]

        return observe

    def gpu_gauge(self, key: str, factor: float) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """A callback for a reading of each GPU."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for name, value in self.readings().items() if self.watched else ():
                kind, _, rest = name.partition("/")
                index, _, which = rest.partition("/")
                if kind == "gpu" and which == key:
                    yield Observation(value * factor, {"gpu_id": index})

        return observe


@functools.cache
def machine() -> Machine:
    """The machine of this process, with its gauges created; they record into the current run."""
    made = Machine()
    meter = meters().get_meter(RESOURCE_METER)
    for name, (key, unit, factor) in GAUGES.items():
        meter.create_observable_gauge(name, [made.gauge(key, factor)], unit)
    for name, (key, unit, factor) in GPU_GAUGES.items():
        meter.create_observable_gauge(name, [made.gpu_gauge(key, factor)], unit)
    return made
