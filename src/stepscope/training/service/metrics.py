"""The instruments of a training service, under their published names, with bounds that fit their units."""

import functools
from dataclasses import dataclass
from typing import Any

from opentelemetry.metrics import Counter, Histogram, UpDownCounter

from stepscope.extend import meters

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
