"""Generators that run in a context of their own: what they are in the middle of is not current for who iterates."""

import contextvars
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from stepscope.sdk.context import current_mark, otel_variable

Variables = dict[contextvars.ContextVar[Any], contextvars.Token[Any]]
_NEVER = object()


class Own:
    """A context in which a generator's span is current, and not for who iterates; else the two see what both set."""

    def __init__(self) -> None:
        self._undo_own: Variables = {}
        self._undo_outer: Variables = {}
        self._outer_seen = contextvars.copy_context()
        self._own = contextvars.Context()  # and not a copy: of that nothing could be undone
        self._own.run(_repeat, self._own.copy(), self._outer_seen, self._undo_own)
        self._undo_own.pop(otel_variable, None)
        self._own_seen = self._own.copy()

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call in this context, with what was set outside since the last call; what the call sets is set outside."""
        own, outer = self._own, contextvars.copy_context()
        if _differ(self._outer_seen, outer):
            own.run(_repeat, self._outer_seen, outer, self._undo_own, otel_variable)
            self._own_seen, self._outer_seen = own.copy(), outer
        try:
            return own.run(call, *args)
        finally:
            del call, args  # lest an error that was thrown in is held by its own stack; so below
            if _differ(self._own_seen, own):
                # Its step is the run's anyway, and would stay outside when the generator is closed elsewhere.
                _repeat(self._own_seen, own, self._undo_outer, otel_variable, current_mark)
                self._own_seen, self._outer_seen = own.copy(), contextvars.copy_context()


def _differ(old: contextvars.Context, new: contextvars.Context) -> bool:
    """Whether a context changed between two looks at it; most did not, and this is all they cost."""
    for variable, value in new.items():
        if old.get(variable, _NEVER) is not value:
            return True
    return len(old) != len(new)


def _repeat(old: contextvars.Context, new: contextvars.Context, undo: Variables, *apart: Any) -> None:
    """Set in the current context, but for some variables, what changed in another between two looks at it."""
    for variable, value in new.items():
        if old.get(variable, _NEVER) is not value and variable not in apart:
            undo.setdefault(variable, variable.set(value))
    for variable in undo.keys() - new.keys():
        try:
            variable.reset(undo.pop(variable))
        except (ValueError, RuntimeError):  # it was set where the generator was before
            pass


class Within:
    """A scope that is entered and left in a context of its own."""

    def __init__(self, own: Own, scope: Any) -> None:
        self._own = own
        self._scope = scope

    def __enter__(self) -> None:
        self._own.run(self._scope.__enter__)

    def __exit__(self, *problem: Any) -> Any:
        return self._own.run(self._scope.__exit__, *problem)


def resumed(own: Own, generator: Any) -> Generator[Any, Any, Any]:
    """Run a generator in a context of its own: what it is in the middle of is not current for who iterates."""
    resume: Callable[[Any], Any] = generator.send
    value: Any = None
    while True:
        try:
            item = own.run(resume, value)
        except StopIteration as end:
            return end.value
        except BaseException:
            del generator, resume, value
            raise
        try:
            resume, value = generator.send, (yield item)
        except GeneratorExit:
            own.run(generator.close)
            raise
        except BaseException as error:
            resume, value = generator.throw, error


class Awaited:
    """One turn of an async generator, awaited in a context of its own."""

    def __init__(self, own: Own, turn: Any) -> None:
        self._own = own
        self._turn = turn

    def __await__(self) -> Generator[Any, Any, Any]:
        return resumed(self._own, self._turn.__await__())


def first(inner: AsyncGenerator[Any, Any]) -> Any:
    """Begin an async generator unknown to the event loop, which at its end would close it beside the one around it."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
