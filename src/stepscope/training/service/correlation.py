"""Correlation keys: set once in a context, they are on every span, log and event made in it and below it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
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
"""Keys that may be given without their prefix."""


class Correlation:
    """The result of `correlate`: a context manager that removes the keys at its end; using it is optional."""

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._token = extend.carry(attrs)
        self._entered = current()

    def __enter__(self) -> "Correlation":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            if current() is self._entered:
                detach(self._token)
        except (ValueError, RuntimeError):  # left in another context than it was entered in
            pass


def correlate(**keys: Any) -> Correlation:
    """Set keys for this context and all below it: `correlate(session_id=...)` is `tuft.session_id` on the wire.

    They are also set on the current span. Inside a span they last as long as the span, elsewhere as long as the task or
    thread, or the `with` block. They do not become attributes of metrics: there are too many of them. Never raises.
    """
    return Correlation({(PREFIX + key if key in KEYS else key): value for key, value in keys.items()})


def correlation() -> dict[str, Any]:
    """The keys of this context."""
    return extend.carried()


def inject_context(carrier: Any = None) -> dict[str, str]:
    """Write trace, baggage and correlation keys into a dict of texts that can go anywhere."""
    if carrier is not None and not isinstance(carrier, dict):
        reject("carrier", carrier)
        carrier = None
    return extend.inject(carrier)


def extract_context(carrier: Any) -> Context:
    """Read what `inject_context` wrote; pass it as `context` to a tracer, or enter it with `entered`."""
    if carrier is not None and not isinstance(carrier, Mapping):
        reject("carrier", carrier)
        carrier = None
    return extend.extract(carrier)


@contextmanager
def entered(carrier: Any) -> Iterator[Context]:
    """Enter the context of a carrier for a block: its trace, baggage and keys."""
    context = extract_context(carrier)
    token = attach(Context({**current(), **context}))
    try:
        yield context
    finally:
        try:
            detach(token)
        except (ValueError, RuntimeError):
            pass
