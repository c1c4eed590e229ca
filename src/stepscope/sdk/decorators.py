"""Decorators: a span around a function, coroutine or generator, and exceptions recorded on their way out."""

import contextvars
import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Any, TypeVar, overload

from stepscope.sdk import api, exception_records
from stepscope.sdk.context import current_mark, otel_variable

Variables = dict[contextvars.ContextVar[Any], contextvars.Token[Any]]
_NEVER = object()


class SeparateContext:
    """A context in which a generator's span is current but not for its consumer; other variables are shared."""

    def __init__(self) -> None:
        self._undo_inner: Variables = {}
        self._undo_outer: Variables = {}
        self._outer_seen = contextvars.copy_context()
        self._context = contextvars.Context()  # and not a copy: of that nothing could be undone
        self._context.run(_repeat, self._context.copy(), self._outer_seen, self._undo_inner)
        self._undo_inner.pop(otel_variable, None)
        self._inner_seen = self._context.copy()

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call in this context; variables set outside meanwhile are copied in, those set by the call are copied out."""
        context, outer = self._context, contextvars.copy_context()
        if _differ(self._outer_seen, outer):
            context.run(_repeat, self._outer_seen, outer, self._undo_inner, otel_variable)
            self._inner_seen, self._outer_seen = context.copy(), outer
        try:
            return context.run(call, *args)
        finally:
            del call, args  # so that a thrown error is not kept alive by its own stack; same below
            if _differ(self._inner_seen, context):
                # Its step is the run's anyway, and would stay outside when the generator is closed elsewhere.
                _repeat(self._inner_seen, context, self._undo_outer, otel_variable, current_mark)
                self._inner_seen, self._outer_seen = context.copy(), contextvars.copy_context()


def _differ(old: contextvars.Context, new: contextvars.Context) -> bool:
    """Return whether a context changed since it was copied; usually it did not, and this is the only cost."""
    for variable, value in new.items():
        if old.get(variable, _NEVER) is not value:
            return True
    return len(old) != len(new)


def _repeat(old: contextvars.Context, new: contextvars.Context, undo: Variables, *apart: Any) -> None:
    """Apply the changes of another context to the current one, except for some variables."""
    for variable, value in new.items():
        if old.get(variable, _NEVER) is not value and variable not in apart:
            undo.setdefault(variable, variable.set(value))
    for variable in undo.keys() - new.keys():
        try:
            variable.reset(undo.pop(variable))
        except (ValueError, RuntimeError):  # it was set where the generator was before
            pass


class Entered:
    """A scope that is entered and exited in a separate context."""

    def __init__(self, context: SeparateContext, scope: Any) -> None:
        self._context = context
        self._scope = scope

    def __enter__(self) -> None:
        self._context.run(self._scope.__enter__)

    def __exit__(self, *problem: Any) -> Any:
        return self._context.run(self._scope.__exit__, *problem)


def resumed(context: SeparateContext, generator: Any) -> Generator[Any, Any, Any]:
    """Run a generator in a separate context, so that its span is not current for the consumer."""
    resume: Callable[[Any], Any] = generator.send
    value: Any = None
    while True:
        try:
            item = context.run(resume, value)
        except StopIteration as end:
            return end.value
        except BaseException:
            del generator, resume, value
            raise
        try:
            resume, value = generator.send, (yield item)
        except GeneratorExit:
            context.run(generator.close)
            raise
        except BaseException as error:
            resume, value = generator.throw, error


class Awaited:
    """One step of an async generator, awaited in a separate context."""

    def __init__(self, context: SeparateContext, turn: Any) -> None:
        self._context = context
        self._turn = turn

    def __await__(self) -> Generator[Any, Any, Any]:
        return resumed(self._context, self._turn.__await__())


def first(inner: AsyncGenerator[Any, Any]) -> Any:
    """Start an async generator without registering it with the event loop, which would close it twice at shutdown."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


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

    `fatal=True` records it with severity FATAL and flushes it before it propagates. An exception that passes several
    of these is recorded by the innermost.
    """

    def __new__(cls, function: Any = None, /, *, fatal: bool = False) -> Any:
        """Return a scope, or the decorated function."""
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
        if exception_records.is_first_sight(error, run.id):
            run.exception(error, severity="FATAL" if self._fatal else "ERROR")
        if self._fatal:
            run.flush()


def name_of(function: Any) -> str:
    """Return the name of any kind of function: of the target of a partial, of the class of a callable object."""
    if isinstance(function, (functools.partial, functools.cached_property)):
        return name_of(function.func)
    if isinstance(function, property):
        return name_of(function.fget)
    for name in (getattr(function, "__qualname__", None), getattr(function, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(function).__qualname__


def wrap(function: Any, scope: Callable[..., Any]) -> Any:
    """Run each call of a function, of any kind, inside a new scope.

    The scope is created from the call's positional arguments; if it suppresses an exception, the call returns None.
    Raises TypeError for a class and for objects that are not callable.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(wrap(function.__func__, scope))
    if isinstance(function, property):
        return function.getter(wrap(function.fget, scope))
    if isinstance(function, functools.cached_property):
        return type(function)(wrap(function.func, scope))
    if isinstance(function, type):
        raise TypeError(f"{function.__qualname__} is a class: decorate its methods instead")
    if not callable(function):
        raise TypeError(f"expected a function or method to decorate, got {type(function).__qualname__}")
    make = next((each for test, each in _SORTS if _is(test, function)), _call)
    wrapper = make(function, scope)
    wrapper.__qualname__ = name_of(function)
    wrapper.__name__ = wrapper.__qualname__.rpartition(".")[2]
    return functools.update_wrapper(wrapper, function)


def _is(test: Callable[[Any], bool], function: Any) -> bool:
    """Return whether a function, or the target of a partial or callable object, passes a test."""
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
        context = SeparateContext()
        with Entered(context, scope(*args)):
            return (yield from resumed(context, function(*args, **kwargs)))

    return items


def _stream(function: Any, scope: Callable[..., Any]) -> Any:
    async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        context = SeparateContext()
        with Entered(context, scope(*args)):
            inner = function(*args, **kwargs)
            turn = first(inner)
            while True:
                try:
                    item = await Awaited(context, turn)
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
