"""What the tests of several files share: made for the first that asks, closed after the last of their world."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar, cast

T = TypeVar("T")
_made: dict[str, object] = {}
_open = ExitStack()


def shared(name: str, make: Callable[[], AbstractContextManager[T]]) -> T:
    """Return what has this name, opened by `make` unless a test before has done so."""
    if name not in _made:
        _made[name] = _open.enter_context(make())
    return cast(T, _made[name])


def close_shared() -> None:
    """Close everything; idle servers would cost the rest of the tests a tenth of a core."""
    _made.clear()
    _open.close()
