"""Stand-ins for unsupported wandb features: placeholders that do nothing, exception classes, argument parsing."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from stepscope.extend import text_of


class Error(Exception):
    """The parent of wandb's errors."""


class CommError(Error):
    """The server cannot be reached."""


class AuthenticationError(CommError):
    """The user is not authenticated."""


class UsageError(Error):
    """An API was used incorrectly."""


class UnsupportedError(UsageError):
    """The server is too old for the request."""


class WandbCoreNotAvailableError(Error):
    """The service is not installed."""


class WandbServiceNotOwnedError(Error):
    """The service belongs to another process."""


class WandbServiceConnectionError(Error):
    """The service cannot be reached."""


class WandbAttachFailedError(Error):
    """A run cannot be joined."""


report: Callable[[str], object] = str
"""Called with the name of each unsupported feature that a script uses; set by `stepscope.compat.wandb`."""


def missing(name: str) -> "Absent":
    """Return a placeholder for an unsupported wandb feature; it is counted, and named in one warning."""
    report(name)
    return Absent(name)


class Absent:
    """A placeholder for an unsupported feature: it can be called, indexed and iterated over, and is empty."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        decorates = len(arguments) == 1 and not named and isinstance(arguments[0], FunctionType)
        return arguments[0] if decorates else self

    def __enter__(self) -> "Absent":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def __getitem__(self, key: Any) -> "Absent":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __contains__(self, key: Any) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __fspath__(self) -> str:
        """A path that does not exist."""
        return f"no-{self._name}"

    def __repr__(self) -> str:
        return f"<no {self._name}>"


class PartialModule(Absent):
    """A partly supported module; every other attribute is a placeholder, and counted."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        return missing(f"{self._name}.{name}")

    def __bool__(self) -> bool:
        return True


def text(given: Any) -> str | None:
    """The argument as a string; None if it is blank or missing."""
    found = "" if given is None or isinstance(given, Absent) else text_of(given)
    return found if found.strip() else None


def safe(given: Any) -> str | None:
    """The argument converted to a run id that is a valid folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text(given) or "").strip("-._")[:128] or None


def tags_of(given: Any) -> tuple[str, ...]:
    """Tags as strings; a single tag needs no list."""
    if given is None:
        return ()
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    return tuple(text_of(each) for each in (given if several else (given,)))
