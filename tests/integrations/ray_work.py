"""Tasks and actors that workers import."""

import logging
from collections.abc import Iterator
from typing import Any

import stepscope
from stepscope.integrations.ray import carried


@carried
def decorated(number: int, *, fail: bool = False) -> int:
    """A task with the decorator."""
    with stepscope.span("inside"):
        logging.getLogger("work").warning("in a task")
    if fail:
        raise ValueError("asked to fail")
    return number + 1


def plain(number: int) -> int:
    """A task without it."""
    with stepscope.span("plain.inside"):
        return number + 1


@carried(name="renamed")
def numbers(count: int) -> Iterator[int]:
    """A task that gives one number after the other."""
    for number in range(count):  # noqa: UP028 (Ray sends into it, which a range does not take)
        yield number


@carried
class Actor:
    """An actor with the decorator."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int, *more: int, **named: int) -> int:
        """Add numbers up."""
        self.value += amount + sum(more) + sum(named.values())
        return self.value

    def call_other(self, other: Any) -> int:
        """Call another actor from inside."""
        import ray

        return int(ray.get(other.add.remote(5)))

    @staticmethod
    def nothing() -> None:
        """Is left as it is."""


@carried
class Later:
    """An actor of coroutines."""

    async def add(self, amount: int) -> int:
        """Add one."""
        with stepscope.span("later.inside"):
            return amount + 1
