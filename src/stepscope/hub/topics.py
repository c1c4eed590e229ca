"""Topics: what one part of the hub announces, and the parts that subscribed to it."""

from collections.abc import Callable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Topic(Generic[Thing]):
    """Calls its subscribers in the order in which they subscribed, on the thread that announces; they must be quick.

    Parts subscribe when they are constructed, before anything is announced.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Thing], object]] = []

    def subscribe(self, subscriber: Callable[[Thing], object]) -> None:
        """Call a function with whatever is announced from now on."""
        self._subscribers.append(subscriber)

    def announce(self, thing: Thing, on_error: Callable[[Exception], object]) -> None:
        """Call every subscriber; one that raises is reported to `on_error` and costs the others nothing."""
        for subscriber in self._subscribers:
            try:
                subscriber(thing)
            except Exception as error:
                on_error(error)
