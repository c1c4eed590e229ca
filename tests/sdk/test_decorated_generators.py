"""Decorated generators, sync and async, do what the plain ones do."""

import asyncio
import contextlib
import contextvars
import gc
import inspect
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Metric, Span
from tests.sdk.conftest import Records

DECORATORS: list[Callable[..., Any]] = [stepscope.traced, stepscope.capture_exceptions]
both = pytest.mark.parametrize("decorate", DECORATORS, ids=["traced", "capture_exceptions"])
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
other: contextvars.ContextVar[int] = contextvars.ContextVar("other")


async def echo(seen: list[Any]) -> AsyncGenerator[Any, Any]:
    """Give back what is sent or thrown in; when closed, take a while."""
    try:
        got: Any = "first"
        while True:
            try:
                got = yield got
            except (KeyError, StopAsyncIteration) as error:
                got = repr(error)
            seen.append(got)
            await asyncio.sleep(0)
            if got == "return":
                return
            if got == "raise":
                raise OSError("raised")
    finally:
        await asyncio.sleep(0.001)
        seen.append("finally")


async def stubborn(seen: list[Any]) -> AsyncGenerator[Any, Any]:
    """Refuse to be closed, once."""
    try:
        yield 1
    except GeneratorExit:
        seen.append("refused")
        yield 2


async def script(function: Callable[..., Any], *moves: tuple[str, Any]) -> list[Any]:
    """Drive an async generator by its methods, and write down all that happens."""
    seen: list[Any] = []
    generator = function(seen)
    for method, argument in moves:
        try:
            call = getattr(generator, method)
            seen.append((method, await (call() if argument is None else call(argument))))
        except BaseException as error:
            seen.append((method, repr(error), repr(error.__cause__)))
    return seen


NEXT, CLOSE = ("__anext__", None), ("aclose", None)


@both
@pytest.mark.parametrize(
    ("function", "moves"),
    [
        (echo, [NEXT, ("asend", "a"), NEXT, ("athrow", KeyError("k")), ("asend", "b"), CLOSE, NEXT, CLOSE]),
        (echo, [NEXT, ("asend", "return"), NEXT, ("asend", "late")]),
        (echo, [NEXT, ("asend", "raise"), NEXT]),
        (echo, [NEXT, ("athrow", ValueError("not caught")), NEXT]),
        (echo, [NEXT, ("athrow", StopAsyncIteration("caught")), ("athrow", StopIteration("not"))]),
        (echo, [NEXT, ("athrow", GeneratorExit()), NEXT]),
        (echo, [("asend", "too early"), NEXT]),
        (echo, [CLOSE, NEXT]),
        (echo, [("athrow", ValueError("before")), NEXT]),
        (stubborn, [NEXT, CLOSE, NEXT]),
        (stubborn, [NEXT, ("athrow", GeneratorExit()), NEXT]),
    ],
)
def test_async_generators_move_as_plain_ones(
    run: stepscope.Run, decorate: Callable[..., Any], function: Any, moves: list[tuple[str, Any]]
) -> None:
    """What is sent, thrown and closed arrives inside, and all that comes back is the same."""
    wrapped = decorate(function)
    assert inspect.isasyncgenfunction(wrapped)
    assert asyncio.run(script(wrapped, *moves)) == asyncio.run(script(function, *moves))


@both
@pytest.mark.parametrize("dropped", [False, True])
def test_an_async_generator_left_open_is_closed_by_the_loop(
    run: stepscope.Run, decorate: Callable[..., Any], dropped: bool
) -> None:
    """At the end of the loop, or when dropped, the generator's `finally` runs once, without warnings."""
    complaints: list[Any] = []
    seen: list[Any] = []
    kept: list[Any] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        kept.append(decorate(echo)(seen))
        assert await anext(kept[0]) == "first"
        if dropped:
            kept.clear()
            while not seen:
                await asyncio.sleep(0)

    asyncio.run(leave())
    assert (seen, complaints) == (["finally"], [])


def test_cancellation_reaches_an_async_generator(run: stepscope.Run, records: Records) -> None:
    """A task that is cancelled while it waits for an item is cancelled inside, where it waits."""
    seen: list[str] = []

    @stepscope.traced
    async def waits() -> AsyncIterator[int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        yield 1

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(waits())

    asyncio.run(main())
    assert seen == ["cancelled"]


def test_spans_beside_an_async_generator(run: stepscope.Run, records: Records) -> None:
    """Spans the consumer opens between items are not below the generator's; those inside are, from whatever task."""

    @stepscope.traced("items")
    async def items() -> AsyncIterator[int]:
        for number in range(2):
            with run.span(f"inside {number}"):
                await asyncio.sleep(0)
                yield number

    async def main() -> None:
        with run.span("loop"):
            async for number in items():
                with run.span(f"body {number}"):
                    await asyncio.sleep(0)
            other = items()
            while await asyncio.create_task(anext(other, None)) is not None:
                pass
            with run.span("after"):
                pass

    asyncio.run(main())
    spans = [span for span in records(Span) if span.duration is not None]
    (loop,) = [span for span in spans if span.name == "loop"]
    above = [span.span_id for span in spans if span.name == "items"]
    assert {span.parent_id for span in spans if span.name[:4] in ("item", "body", "afte")} == {loop.span_id}
    inside = {span.parent_id for span in spans if span.name.startswith("inside")}
    assert (len(above), inside) == (2, set(above))


@both
def test_variables_are_shared_with_the_consumer(run: stepscope.Run, decorate: Any) -> None:
    """A context variable that a generator sets is set for its consumer, and the other way round, until it is reset."""

    @contextlib.contextmanager
    @decorate
    def scoped(value: str) -> Iterator[Callable[[], str]]:
        token = variable.set(value)
        try:
            yield variable.get
        finally:
            variable.reset(token)

    @decorate
    async def reads() -> AsyncIterator[str]:
        while True:
            yield variable.get()

    async def main() -> list[str]:
        found, generator = [], reads()
        for value in ("a", "b"):
            with scoped(value):
                found += [variable.get(), await anext(generator)]
            found += [variable.get(), await anext(generator)]
        await generator.aclose()
        return found

    assert " ".join(asyncio.run(main())) == "a a unset unset b b unset unset"


@both
def test_variables_of_one_task_stay_out_of_another(run: stepscope.Run, decorate: Any) -> None:
    """A generator begun in one task and gone on with in another brings nothing along."""

    @decorate
    async def numbers() -> AsyncIterator[int]:
        variable.set("inside")
        for number in range(3):
            other.set(number)
            yield number

    async def take(generator: Any) -> tuple[int, str, int]:
        return await anext(generator), variable.get(), other.get()

    async def main() -> list[tuple[int, str, int]]:
        generator = numbers()
        return [await asyncio.create_task(take(generator)) for _ in range(3)]

    assert asyncio.run(main()) == [(0, "inside", 0), (1, "unset", 1), (2, "unset", 2)]


def test_records_inside_have_the_consumer_s_step(run: stepscope.Run, records: Records) -> None:
    """A traced generator that outlives a step records at the step it is asked in."""

    @stepscope.traced
    def batches() -> Iterator[int]:
        for number in range(3):
            run.log({"batch": number})
            yield number

    generator = batches()
    for step in (5, 6, 7):
        with run.step(step):
            next(generator)
    assert [metric.step for metric in records(Metric) if "batch" in metric.values] == [5, 6, 7]


@both
def test_a_thrown_error_is_not_held(run: stepscope.Run, decorate: Any) -> None:
    """An error thrown into a generator goes away with its last user, and with it what its stack holds."""

    class Big(Exception):
        pass

    @decorate
    def one() -> Iterator[None]:
        yield

    @decorate
    async def one_later() -> AsyncIterator[None]:
        yield

    def once() -> Any:
        generator = one()
        next(generator)
        try:
            generator.throw(Big())
        except Big as error:
            return weakref.ref(error)

    async def later() -> Any:
        generator = one_later()
        await anext(generator)
        try:
            await generator.athrow(Big())
        except Big as error:
            return weakref.ref(error)

    gc.collect()
    gc.disable()
    try:
        assert once()() is None
        assert asyncio.run(later())() is None
    finally:
        gc.enable()
