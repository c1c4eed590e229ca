"""Decorated functions of every sort do what the plain ones do."""

import asyncio
import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Span
from tests.sdk.conftest import Records

DECORATORS: list[Callable[..., Any]] = [stepscope.traced, stepscope.capture_exceptions]
both = pytest.mark.parametrize("decorate", DECORATORS, ids=["traced", "capture_exceptions"])


def ended(records: Records) -> list[Span]:
    """The finished spans, but for the run's."""
    return [span for span in records(Span) if span.duration is not None]


def short(records: Records) -> list[str]:
    """The names of the finished spans, without where they were defined."""
    return [span.name.rpartition(".<locals>.")[2] for span in ended(records)]


def module_level(x: int) -> int:
    """Add one."""
    return x + 1


captured = stepscope.capture_exceptions(module_level)


class Adds:
    """A callable object."""

    def __call__(self, a: int, b: int = 1) -> int:
        return a + b


class AddsLater:
    """One that must be awaited."""

    async def __call__(self, a: int) -> int:
        await asyncio.sleep(0)
        with stepscope.span("inside"):
            return a + 1


@both
def test_partials_and_objects(run: stepscope.Run, records: Records, decorate: Callable[..., Any]) -> None:
    """A partial has the name of its function, an object that of its class; an async one is awaited in its span."""
    part = functools.partial(module_level, 1)
    assert (decorate(part)(), decorate(functools.partial(part))()) == (2, 2)
    assert decorate(Adds())(2, b=3) == 5
    assert decorate(part).__name__ == "module_level"
    assert decorate(Adds()).__name__ == "Adds"
    later = decorate(functools.partial(AddsLater(), 4))
    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later()) == 5
    if decorate is stepscope.traced:
        assert [span.name for span in ended(records)] == [
            "module_level", "module_level", "Adds", "inside", "AddsLater",
        ]  # fmt: skip
        inside, outer = ended(records)[-2:]
        assert inside.parent_id == outer.span_id


@both
def test_methods_of_every_sort(run: stepscope.Run, records: Records, decorate: Any) -> None:
    """A property stays one, with its setter and deleter; static, class and cached ones work from class and object."""

    class Thing:
        value = 1

        @decorate
        @property
        def plain(self) -> int:
            """The value."""
            return self.value

        @plain.setter
        def plain(self, value: int) -> None:
            self.value = value

        @plain.deleter
        def plain(self) -> None:
            self.value = 0

        @decorate
        @functools.cached_property
        def once(self) -> list[int]:
            return [self.value]

        @decorate
        @classmethod
        def of_class(cls, x: int) -> Any:
            return cls, x

        @decorate
        @staticmethod
        def of_none(x: int) -> int:
            return x

    thing = Thing()
    assert isinstance(vars(Thing)["plain"], property)
    assert Thing.plain.__doc__ == "The value."
    assert thing.plain == 1
    thing.plain = 7
    assert thing.plain == 7
    del thing.plain
    assert thing.plain == 0
    assert thing.once is thing.once
    assert Thing.of_class(1) == thing.of_class(1) == (Thing, 1)
    assert Thing.of_none(2) == thing.of_none(2) == 2
    if decorate is stepscope.traced:
        names = ["plain"] * 3 + ["once"] + ["of_class"] * 2 + ["of_none"] * 2
        assert short(records) == [f"Thing.{name}" for name in names]


@both
def test_what_cannot_be_decorated(decorate: Callable[..., Any]) -> None:
    """A class would be none afterwards: that is said at once, with its name and what to do; so for what is no call."""
    with pytest.raises(TypeError, match=r"Adds is a class.*decorate its methods"):
        decorate(Adds)
    for wrong in (3, functools.partialmethod(module_level), property(fset=lambda self, value: None)):
        with pytest.raises(TypeError, match="expected a function or method to decorate, got"):
            decorate(wrong)


def test_captured_functions_are_functions() -> None:
    """A bare decorator leaves what pickle and frameworks take for the function's own sort."""

    @stepscope.capture_exceptions
    async def later() -> None: ...

    assert inspect.iscoroutinefunction(later)
    assert inspect.isfunction(captured)
    captured.__qualname__ = captured.__name__ = "captured"
    assert pickle.loads(pickle.dumps(captured)) is captured


def test_the_name_of_the_span(run: stepscope.Run, records: Records) -> None:
    """It is the first argument or `name=`; beside the first argument `name=` is an attribute, as for `span`."""
    traced = stepscope.traced
    traced(name="a")(module_level)(1)
    traced(name="b", part=1)(module_level)(1)
    traced("c", name="d")(module_level)(1)
    traced(module_level, name="e", part=2)(1)
    traced(name=None)(module_level)(1)
    assert [(span.name, span.attrs) for span in ended(records)] == [
        ("a", {}), ("b", {"part": 1}), ("c", {"name": "d"}), ("e", {"part": 2}), ("module_level", {}),
    ]  # fmt: skip


def test_exceptions_pass_traced_and_captured(run: stepscope.Run, records: Records) -> None:
    """Both decorators on a coroutine: the span has the failure, and there is one event."""

    @stepscope.traced
    @stepscope.capture_exceptions
    async def later() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    with pytest.raises(ValueError, match="later"):
        asyncio.run(later())
    assert [span.status for span in ended(records)] == [2]
    assert len([event for event in records(Event) if event.name == "exception"]) == 1
