"""What `start_as_current_span` returns: entering it starts a span and makes it current."""

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context

from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, attach, current, detach
from stepscope.sdk.spans import Span

F = TypeVar("F", bound=Callable[..., Any])


class Entry:
    """A context manager, or a decorator of a function or coroutine function; each time with a fresh span."""

    __slots__ = ("_arguments", "_ends", "_span", "_start", "_token")

    def __init__(self, start: Callable[..., trace.Span], arguments: tuple[Any, ...], ends: bool) -> None:
        self._start = start
        self._arguments = arguments
        self._ends = ends

    def __enter__(self) -> trace.Span:
        self._span = span = self._start(*self._arguments)
        entered = {**current(), SPAN_KEY: span}
        context = self._arguments[1]
        if isinstance(context, dict) and CARRIED_KEY in context:
            entered[CARRIED_KEY] = context[CARRIED_KEY]
        self._token = attach(Context(entered))
        return span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        span = self._span
        try:
            detach(self._token)
        except Exception:  # left in another context than it was entered in, which is legal
            pass
        if error is not None and isinstance(error, Exception) and isinstance(span, Span):
            span.fail(error)
        if self._ends:
            span.end()

    def __call__(self, function: F) -> F:
        start, arguments, ends = self._start, self._arguments, self._ends
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **kwargs: Any) -> Any:
                with Entry(start, arguments, ends):
                    return await function(*args, **kwargs)

            return later  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Entry(start, arguments, ends):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]
