"""The two cores of the calls in a training loop: the compiled one where it was built, and the Python one everywhere.

The calls are written in Python. `compiled` gives each its form in C (`compiled/loop_calls.c`), which does what most
calls do and leaves the rest to the Python function. What both read and write is in structs then, else in plain classes.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

F = TypeVar("F", bound=Callable[..., Any])
FORCE_PYTHON = "STEPSCOPE_PURE_PYTHON"


def is_forced() -> bool:
    """Return whether the environment asks for the Python core."""
    return os.environ.get(FORCE_PYTHON, "").strip().lower() not in ("", "0", "false")


def _load() -> Any:
    try:
        from stepscope.sdk import loop_calls  # type: ignore[attr-defined]
    except ImportError:  # there was no compiler, or this interpreter has no GIL
        return None
    return loop_calls


_in_c = None if is_forced() else _load()


class RecorderState:
    """What the calls use of a recorder."""

    buffer: list[bytes]
    limit: int


class RunState:
    """What the calls use of a run; `Run` says more of the types."""

    recorder: Any
    active_mark: Any = None
    open_steps: Any
    left_steps: Any
    open_spans: Any
    above: "Span | None" = None
    """The span of the parent process, if the environment has one."""
    link: Any
    last_mark: Any = None
    """The step that was entered last, for `log` between steps."""
    _given: int | None = None
    """The step that `log` was given last, for the next one without, where no step was ever entered."""
    _counter = 0
    """The step of the next `log` where neither is known."""


class SpanState:
    """What the calls use of a span; `Span` says more of the types."""

    _run: Any
    name: str
    _attrs: dict[str, Any]
    id: bytes
    trace: bytes
    parent: bytes | None = None
    mark: Any
    start: int
    _began: int
    duration: int | None = None
    announced = False
    """Whether a record of the open span was written."""
    joins = True
    """Whether entering makes this the current span."""
    _links: Sequence[Any] = ()
    usual = True
    """Whether kind, status, message, events and scope have their defaults, and nothing is unmasked."""
    unmasked = False
    """Whether a text of the span may hold a secret, so that the flusher must look."""
    _token: Any = None
    _step_token: Any = None
    left: Any = None
    """The token that removes this exited span from the context in which it is still current."""
    _origin: "SpanContext | None" = None
    """The remote parent whose trace flags and state are propagated; None for the defaults."""
    special = False
    """Whether the span has limits, or a parent in another process or with other flags than usual."""


def compiled(function: F) -> F:
    """Return the compiled form of a call, else the call itself."""
    return function


def seed(random: bytes, first_span: int) -> None:
    """Set what the compiled core makes ids from."""


def use(**given: Any) -> bool:
    """Give the compiled core what it needs of other modules; return whether it is used."""
    return False


def chosen() -> str:
    """Return which core the calls of this process have, `compiled` or `Python`, once a run was imported."""
    return "compiled" if _in_c is not None and _in_c.in_use() else "Python"


if not TYPE_CHECKING and _in_c is not None:
    RecorderState, RunState, SpanState = _in_c.RecorderState, _in_c.RunState, _in_c.SpanState
    compiled, seed, use = _in_c.compiled, _in_c.seed, _in_c.use
