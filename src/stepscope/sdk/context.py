"""What the code is in the middle of: the current step and span, and ids nobody else makes."""

import itertools
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from msgspec import msgpack
from opentelemetry import context as _otel
from opentelemetry import trace
from opentelemetry.trace.propagation import _SPAN_KEY


class Mark(NamedTuple):
    """A step and the name of its axis (None for plain `step`)."""

    step: int | None
    axis: str | None


NOWHERE = Mark(None, None)
current_mark: ContextVar[Mark | None] = ContextVar("stepscope_step", default=None)

SPAN_KEY = _SPAN_KEY
"""Where OpenTelemetry keeps the current span in its context."""
CARRIED_KEY = "stepscope-carried"
"""Where the context keeps attributes that every span, log and event made in it carries."""
_runtime: Any = _otel._RUNTIME_CONTEXT
otel_variable: Any = getattr(_runtime, "_current_context", None)
"""Where OpenTelemetry keeps its context, unless it was told to keep it elsewhere."""
_direct = isinstance(otel_variable, ContextVar)
# OpenTelemetry keeps its context in a ContextVar unless told otherwise; using that one without its wrappers
# takes a tenth of a span's time off.
current: Callable[[], Mapping[str, Any]] = otel_variable.get if _direct else _runtime.get_current
"""The OpenTelemetry context the code is in."""
attach: Callable[[Mapping[str, Any]], Any] = otel_variable.set if _direct else _runtime.attach
"""Enter an OpenTelemetry context; the token leaves it."""
detach: Callable[[Any], None] = otel_variable.reset if _direct else _runtime.detach
"""Leave an OpenTelemetry context; ValueError when it was entered elsewhere."""


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
_span_ids = itertools.count(_random.getrandbits(62) + 1)
"""From a place nobody else starts at; counting is twice as fast as drawing."""


def new_span_id() -> bytes:
    """An id no other span has."""
    return next(_span_ids).to_bytes(8, "big")


def new_trace_id() -> bytes:
    """An id no other trace has."""
    return _random.getrandbits(128).to_bytes(16, "big")


def after_fork() -> None:
    """Make ids the parent will not make."""
    global _span_ids
    _random.seed()
    _span_ids = itertools.count(_random.getrandbits(62) + 1)


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
