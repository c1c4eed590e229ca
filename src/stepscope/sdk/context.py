"""The current step and span, new span and trace ids, and the encoder of records."""

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

from stepscope.sdk import core
from stepscope.sdk.interrupts import pass_on


class Mark(NamedTuple):
    """A step and the name of its axis (None for plain `step`)."""

    step: int | None
    axis: str | None


NO_MARK = Mark(None, None)
current_mark: ContextVar[Mark | None] = ContextVar("stepscope_step", default=None)

SPAN_KEY: str = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""The key of the current span in OpenTelemetry's context."""
CARRIED_KEY = "stepscope-carried"
"""The context key of attributes that every span, log and event made in the context gets."""


class ContextAccess(NamedTuple):
    """Functions that read, attach and detach the OpenTelemetry context."""

    variable: Any
    """The ContextVar that holds the context; None when it is stored elsewhere."""
    current: Callable[[], Mapping[str, Any]]
    attach: Callable[[Mapping[str, Any]], Any]
    detach: Callable[[Any], None]


def context_access(module: Any = _otel) -> ContextAccess:
    """Find the fastest access to OpenTelemetry's context.

    Its ContextVar and its runtime object are private names of the API. Using the variable directly saves a tenth of the
    time of a span; a release without them, or another kind of runtime, is used through public calls.
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
"""`current` returns the OpenTelemetry context, `attach` sets it, and `detach` resets it by its token.

`detach` raises ValueError when the context was attached elsewhere.
"""


def current_span() -> trace.Span | None:
    """Return the current span, also one of another library; None when there is none."""
    span: trace.Span | None = settled(current().get(SPAN_KEY))
    return span


def settled(span: Any) -> Any:
    """Remove spans from this context that were exited in another context or out of order; return the current span."""
    while (token := getattr(span, "left", None)) is not None:
        try:
            detach(token)
        except (ValueError, RuntimeError):  # a context that inherited the span keeps it
            break
        span = current().get(SPAN_KEY)
    return span


def current_ids() -> tuple[bytes | None, bytes | None]:
    """Return the ids of the current span as bytes."""
    span = current().get(SPAN_KEY)
    if getattr(span, "left", None) is not None:
        span = settled(span)
    packed = getattr(span, "packed_ids", None)
    if type(packed) is tuple:  # a span of ours
        return packed
    if span is None or not (context := span.get_span_context()).is_valid:
        return None, None
    return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")


_random = random.Random()
"""A private generator, independent of a program that seeds `random`."""
draw_bits = _random.getrandbits
span_ids = itertools.count(_random.getrandbits(62) + 1)
"""Starts at a random number; counting is twice as fast as drawing random ids."""
core.seed(_random.randbytes(32), _random.getrandbits(62) + 1)


def new_span_id() -> bytes:
    """Return a unique span id."""
    return next(span_ids).to_bytes(8)


def new_trace_id() -> bytes:
    """Return a unique trace id."""
    return draw_bits(128).to_bytes(16)


_pid = os.getpid()
"""The process that draws these ids."""


def own_ids() -> None:
    """Make ids unique to this process, also when it was forked before there was a run."""
    if os.getpid() != _pid:
        after_fork()


def after_fork() -> None:
    """Make ids that differ from the parent's."""
    global _pid, span_ids
    _pid = os.getpid()
    _random.seed()
    span_ids = itertools.count(_random.getrandbits(62) + 1)
    core.seed(_random.randbytes(32), _random.getrandbits(62) + 1)


def text_of(value: object) -> str:
    """Return the text of any object, even one whose `__str__` raises."""
    try:
        return str(value)
    except BaseException as raised:
        pass_on(raised)
        return f"<{type(value).__name__}>"


pack = msgpack.Encoder(enc_hook=text_of).encode
"""Encode attributes and records; UnicodeEncodeError or OverflowError for strings and integers msgpack cannot represent.
"""


def pack_any(record: tuple[Any, ...]) -> bytes:
    """Encode a record of any content; values that msgpack cannot represent become strings."""
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
"""Encode a record of plain numbers; TypeError for any other value."""
