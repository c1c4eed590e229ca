"""Correlation keys: set once in a context, they are added to every span, log and event in it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context

from stepscope import extend
from stepscope.extend import attach, current, detach
from stepscope.training.inputs import reject

PREFIX = "tuft."
KEYS = (
    "session_id",
    "training_run_id",
    "sampling_session_id",
    "request_id",
    "operation_type",
    "base_model",
    "lora_rank",
    "backward",
    "model_id",
    "user_id",
)
"""Keys that may be passed without their prefix."""


class Correlation:
    """The result of `correlate`: an optional context manager that removes the keys on exit."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._token = extend.carry(attrs)
        self._entered = current()

    def __enter__(self) -> "Correlation":
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            if current() is self._entered:
                detach(self._token)
        except (ValueError, RuntimeError):  # exited in another context
            pass


def correlate(**keys: Any) -> Correlation:
    """Set keys for this context and those started in it: `correlate(session_id=...)` is sent as `tuft.session_id`.

    They are also set on the current span. They last until the end of the `with` block, else of the current span, else
    of the task or thread. They are not added to metrics, because of their high cardinality. Never raises.
    """
    return Correlation({(PREFIX + key if key in KEYS else key): value for key, value in keys.items()})


def correlation() -> dict[str, Any]:
    """The keys of this context."""
    return extend.carried()


def inject_context(carrier: Any = None) -> dict[str, str]:
    """Write trace, baggage and correlation keys into a dict of strings, to be sent to another process."""
    if carrier is not None and not isinstance(carrier, dict):
        reject("carrier", carrier)
        carrier = None
    return extend.inject(carrier)


def extract_context(carrier: Any) -> Context:
    """Read what `inject_context` wrote; pass the result as `context` to a tracer."""
    if carrier is not None and not isinstance(carrier, Mapping):
        reject("carrier", carrier)
        carrier = None
    return extend.extract(carrier)


@contextmanager
def entered(carrier: Any) -> Iterator[Context]:
    """Use the context of a carrier in a `with` block: its trace, baggage and keys."""
    context = extract_context(carrier)
    token = attach(Context({**current(), **context}))
    try:
        yield context
    finally:
        try:
            detach(token)
        except (ValueError, RuntimeError):
            pass
