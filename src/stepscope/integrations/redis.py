"""Redis: a span `redis.COMMAND` and a duration for each command of a client; keys and values are not recorded."""

import functools
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import Histogram

from stepscope import extend

DURATION = "tuft.redis.operation.duration"
_MARK = "_stepscope_instrumented"


def instrument(client: Any, duration: Histogram | None = None) -> Any:
    """Record the commands and pipelines of a sync or asyncio client; return the client. A second call does nothing.

    `duration` is the histogram of durations in seconds, with the attribute `operation`; by default the published one.
    Commands are recorded in the run that is current at the time, whichever OpenTelemetry provider is set.
    """
    if not getattr(client, _MARK, False):
        if duration is None:
            duration = (
                extend.meters().get_meter("tuft").create_histogram(DURATION, "s", "Duration of a Redis operation")
            )
        tracer = extend.tracers().get_tracer("tuft.redis_store")
        client.execute_command = extend.wrap(
            client.execute_command, lambda *args: _Operation(_command(*args), tracer, duration)
        )
        client.pipeline = _recorded_pipeline(client.pipeline, tracer, duration)
        setattr(client, _MARK, True)
    return client


def _command(*args: Any) -> str:
    word = args[0] if args else "UNKNOWN"
    text = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    return text.split(" ")[0].upper()


def _recorded_pipeline(make: Callable[..., Any], tracer: trace.Tracer, duration: Histogram) -> Callable[..., Any]:
    """Create pipelines whose execution is one operation."""

    @functools.wraps(make)
    def pipeline(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        made.execute = extend.wrap(made.execute, lambda *args: _Operation("PIPELINE", tracer, duration))
        return made

    return pipeline


class _Operation:
    """One operation: its span and its duration."""

    __slots__ = ("_began", "_duration", "_entry", "_name")

    def __init__(self, name: str, tracer: trace.Tracer, duration: Histogram) -> None:
        self._name = name
        self._duration = duration
        attributes = {"db.system": "redis", "db.operation": name}
        self._entry = tracer.start_as_current_span(f"redis.{name}", kind=trace.SpanKind.CLIENT, attributes=attributes)

    def __enter__(self) -> None:
        self._began = time.perf_counter()
        self._entry.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._entry.__exit__(*raised)
        self._duration.record(time.perf_counter() - self._began, {"operation": self._name})
