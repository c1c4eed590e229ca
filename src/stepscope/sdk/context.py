"""What the code is in the middle of: the current step and span, and ids nobody else makes."""

import itertools
import os
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from msgspec import msgpack
from opentelemetry import context as _otel
from opentelemetry import trace
from opentelemetry.context import Context


class Mark(NamedTuple):
    """A step and the name of its axis (None for plain `step`)."""

    step: int | None
    axis: str | None


NOWHERE = Mark(None, None)
current_mark: ContextVar[Mark | None] = ContextVar("stepscope_step", default=None)

SPAN_KEY: str = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""Where OpenTelemetry keeps the current span in its context."""
CARRIED_KEY = "stepscope-carried"
"""Where the context keeps attributes that every span, log and event made in it carries."""


class ContextAccess(NamedTuple):
    """How the OpenTelemetry context is read, entered and left."""

    variable: Any
    """The ContextVar that holds it; None when it is kept elsewhere."""
    current: Callable[[], Mapping[str, Any]]
    attach: Callable[[Mapping[str, Any]], Any]
    detach: Callable[[Any], None]


def context_access(module: Any = _otel) -> ContextAccess:
    """Find the fastest access to OpenTelemetry's context.

    Its ContextVar and its runtime object are private names of the API. Using the variable without its wrappers takes
    a tenth of a span's time off; a release without them, or a runtime of another kind, is used through public calls.
    """
    runtime = getattr(module, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if isinstance(variable, ContextVar):
        return ContextAccess(variable, variable.get, variable.set, variable.reset)
    if all(callable(getattr(runtime, name, None)) for name in ("get_current", "attach", "detach")):
        found: Any = runtime
        return ContextAccess(None, found.get_current, found.attach, found.detach)
    return ContextAccess(None, module.get_current, module.attach, module.detach)


otel_variable, current, attach, detach = context_access()
"""`current` gives the OpenTelemetry context the code is in, `attach` enters one, and `detach` leaves it by its token;
ValueError when it was entered elsewhere."""


def current_span() -> trace.Span | None:
    """The span the code is in, ours or another library's; None when there is none."""
    span: trace.Span | None = settled(current().get(SPAN_KEY))
    return span


def settled(span: Any) -> Any:
    """Take spans out of this context that were left elsewhere or out of turn; what is current then."""
    while (token := getattr(span, "left", None)) is not None:
        try:
            detach(token)
        except (ValueError, RuntimeError):  # a context that inherited the span keeps it
            break
        span = current().get(SPAN_KEY)
    return span


def current_ids() -> tuple[bytes | None, bytes | None]:
    """The ids of the span the code is in, packed."""
    span = current_span()
    if span is None or not (context := span.get_span_context()).is_valid:
        return None, None
    return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")


_random = random.Random()
"""Ours alone: neither disturbs nor is disturbed by a program that seeds `random`."""
draw_bits = _random.getrandbits
span_ids = itertools.count(_random.getrandbits(62) + 1)
"""From a place nobody else starts at; counting is twice as fast as drawing."""


def new_span_id() -> bytes:
    """An id no other span has."""
    return next(span_ids).to_bytes(8)


def new_trace_id() -> bytes:
    """An id no other trace has."""
    return draw_bits(128).to_bytes(16)


_pid = os.getpid()
"""The process whose ids these are."""


def own_ids() -> None:
    """Make ids that no other process makes, also when this one was forked before there was a run."""
    if os.getpid() != _pid:
        after_fork()


def after_fork() -> None:
    """Make ids the parent will not make."""
    global _pid, span_ids
    _pid = os.getpid()
    _random.seed()
    span_ids = itertools.count(_random.getrandbits(62) + 1)


def text_of(value: object) -> str:
    """The text of anything; not all objects can say theirs."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


pack = msgpack.Encoder(enc_hook=text_of).encode
"""Pack attributes and records; UnicodeEncodeError or OverflowError for texts and integers that cannot be written."""


def pack_any(record: tuple[Any, ...]) -> bytes:
    """Pack a record of any content: what cannot be written as it is becomes a text that can."""
    try:
        return pack(record)
    except (UnicodeEncodeError, OverflowError):
        return pack(_writable(record))


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, Mapping):
        return {_writable(key): _writable(inner) for key, inner in value.items()}
    return [_writable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


pack_numbers = msgpack.Encoder().encode
"""Pack a record of plain numbers; TypeError when there is anything else in it."""
