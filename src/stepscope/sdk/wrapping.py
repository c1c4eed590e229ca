"""Decorators: a span around a function, and exceptions recorded on their way out."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Any, TypeVar, overload

from stepscope.sdk import api, seen_exceptions
from stepscope.sdk.resuming import Awaited, Own, Within, first, resumed

F = TypeVar("F", bound=Callable[..., Any])


@overload
def traced(function: F, /, *, name: str | None = None, **attrs: Any) -> F: ...
@overload
def traced(name: str | None = None, /, **attrs: Any) -> Callable[[F], F]: ...
def traced(target: Any = None, /, **attrs: Any) -> Any:
    """Put a span around every call of a function, coroutine or generator; bare, or with a name and attributes.

    Methods of every sort, properties (their getter), partials and callable objects are functions too; a class is not,
    and raises TypeError. The name is the first argument or `name=`; after a name as first argument `name=` is an
    attribute, as it is for `span`. A traced generator does what the plain one would; spans that its consumer opens
    meanwhile are no children of its span.
    """
    if target is None or isinstance(target, str):
        name = target or attrs.pop("name", None)
        return lambda function: _traced(function, name, attrs)
    return _traced(target, attrs.pop("name", None), attrs)


def _traced(function: Any, name: str | None, attrs: dict[str, Any]) -> Any:
    chosen = name or name_of(function)
    if attrs:
        return wrap(function, lambda *args: api.span(chosen, **attrs))
    return wrap(function, lambda *args: api.span(chosen))


class capture_exceptions:
    """Record an exception that passes through, then let it go on; a decorator (sync or async) or a `with` block.

    `fatal=True` records it with severity FATAL and writes it out before it goes on. An exception that passes several
    of these is recorded by the innermost.
    """

    def __new__(cls, function: Any = None, /, *, fatal: bool = False) -> Any:
        """Give a scope, or the function with one around each call."""
        return super().__new__(cls) if function is None else cls(fatal=fatal)(function)

    def __init__(self, function: Any = None, /, *, fatal: bool = False) -> None:
        self._fatal = fatal

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Put the scope around each call of a function; for type checkers this is also the call of one decorated."""
        (function,) = args
        return wrap(function, lambda *args: self)

    def __enter__(self) -> "capture_exceptions":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or (run := api.current_run()) is None:
            return
        if seen_exceptions.first(error, run.id):
            run.exception(error, severity="FATAL" if self._fatal else "ERROR")
        if self._fatal:
            run.flush()


def name_of(function: Any) -> str:
    """What to call a function of any sort: a partial as what it calls, an object by its class."""
    if isinstance(function, (functools.partial, functools.cached_property)):
        return name_of(function.func)
    if isinstance(function, property):
        return name_of(function.fget)
    for name in (getattr(function, "__qualname__", None), getattr(function, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(function).__qualname__


def wrap(function: Any, scope: Callable[..., Any]) -> Any:
    """Run each call of a function inside a fresh scope, whatever sort of function it is.

    The scope is made of the call's positional arguments; where it holds an exception back, the call gives None.
    Raises TypeError for a class, which would be none afterwards, and for what cannot be called.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(wrap(function.__func__, scope))
    if isinstance(function, property):
        return function.getter(wrap(function.fget, scope))
    if isinstance(function, functools.cached_property):
        return type(function)(wrap(function.func, scope))
    if isinstance(function, type):
        raise TypeError(f"{function.__qualname__} is a class, and decorated would be none: decorate its methods")
    if not callable(function):
        raise TypeError(f"a {type(function).__qualname__} cannot be called: decorate a function or a method")
    make = next((each for test, each in _SORTS if _is(test, function)), _call)
    wrapper = make(function, scope)
    wrapper.__qualname__ = name_of(function)
    wrapper.__name__ = wrapper.__qualname__.rpartition(".")[2]
    return functools.update_wrapper(wrapper, function)


def _is(test: Callable[[Any], bool], function: Any) -> bool:
    """Whether a function, or what a partial or an object with `__call__` calls, is of a sort."""
    while isinstance(function, functools.partial):
        function = function.func
    return test(function) or (not inspect.isroutine(function) and test(type(function).__call__))


def _call(function: Any, scope: Callable[..., Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        with scope(*args):
            return function(*args, **kwargs)

    return call


def _later(function: Any, scope: Callable[..., Any]) -> Any:
    async def later(*args: Any, **kwargs: Any) -> Any:
        with scope(*args):
            return await function(*args, **kwargs)

    return later


def _items(function: Any, scope: Callable[..., Any]) -> Any:
    def items(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        own = Own()
        with Within(own, scope(*args)):
            return (yield from resumed(own, function(*args, **kwargs)))

    return items


def _stream(function: Any, scope: Callable[..., Any]) -> Any:
    async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        own = Own()
        with Within(own, scope(*args)):
            inner = function(*args, **kwargs)
            turn = first(inner)
            while True:
                try:
                    item = await Awaited(own, turn)
                except StopAsyncIteration:
                    return
                finally:
                    turn = None
                try:
                    turn = inner.asend((yield item))
                except BaseException as error:  # GeneratorExit too: what the inner one makes of it counts
                    turn = inner.athrow(error)

    return stream


_SORTS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (inspect.isasyncgenfunction, _stream),
    (inspect.iscoroutinefunction, _later),
    (inspect.isgeneratorfunction, _items),
)
