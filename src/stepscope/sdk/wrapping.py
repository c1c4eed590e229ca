"""Decorators: a span around a function, and exceptions recorded on their way out."""

import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from types import TracebackType
from typing import Any, TypeVar, overload

from stepscope.sdk import api

F = TypeVar("F", bound=Callable[..., Any])


@overload
def traced(function: F, /) -> F: ...
@overload
def traced(name: str | None = None, /, **attrs: Any) -> Callable[[F], F]: ...
def traced(target: Any = None, /, **attrs: Any) -> Any:
    """Put a span around every call of a function, coroutine or generator; bare, or with a name and attributes."""
    if callable(target) or isinstance(target, classmethod):
        return wrap(target, lambda *args: api.span(target.__qualname__))
    return lambda function: wrap(function, lambda *args: api.span(target or function.__qualname__, **attrs))


class capture_exceptions:
    """Record an exception that passes through, then let it go on; a decorator (sync or async) or a `with` block.

    `fatal=True` records it with severity FATAL and writes it out before it goes on.
    """

    def __init__(self, function: Callable[..., Any] | None = None, /, *, fatal: bool = False) -> None:
        self._fatal = fatal
        self._function = function
        if function is not None:
            self._wrapped = wrap(function, lambda *args: capture_exceptions(fatal=fatal))
            functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            return self._wrapped(*args, **kwargs)
        (function,) = args
        return wrap(function, lambda *args: capture_exceptions(fatal=self._fatal))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if self._function is None else self._wrapped.__get__(instance, owner)

    def __enter__(self) -> "capture_exceptions":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        run = api.current_run()
        if run is not None and isinstance(error, Exception):
            run.exception(error, severity="FATAL" if self._fatal else "ERROR")
            if self._fatal:
                run.flush()


class _Within:
    """A scope that is entered and left in a given context."""

    def __init__(self, context: contextvars.Context, scope: Any) -> None:
        self._context = context
        self._scope = scope

    def __enter__(self) -> None:
        self._context.run(self._scope.__enter__)

    def __exit__(self, *problem: Any) -> Any:
        return self._context.run(self._scope.__exit__, *problem)


def _resumed(context: contextvars.Context, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator in a context of its own: what it is in the middle of is not current for who iterates."""
    resume: Callable[[Any], Any] = generator.send
    value: Any = None
    while True:
        try:
            item = context.run(resume, value)
        except StopIteration as end:
            return end.value
        try:
            resume, value = generator.send, (yield item)
        except GeneratorExit:
            context.run(generator.close)
            raise
        except BaseException as error:
            resume, value = generator.throw, error


def wrap(function: Any, scope: Callable[..., Any]) -> Any:
    """Run each call of a function inside a fresh scope, whatever sort of function it is.

    The scope is made of the call's positional arguments; where it holds an exception back, the call gives None.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(wrap(function.__func__, scope))
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            with scope(*args):
                async for item in function(*args, **kwargs):
                    yield item

        return stream
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            with scope(*args):
                return await function(*args, **kwargs)

        return later
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def items(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            own = contextvars.copy_context()
            with _Within(own, scope(*args)):
                return (yield from _resumed(own, function(*args, **kwargs)))

        return items

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with scope(*args):
            return function(*args, **kwargs)

    return call
