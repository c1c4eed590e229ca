"""Requests of users to a running program: to stop, or to change settings that it declared as live."""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct

LONGEST_SETTING, LONGEST_VALUE, MAX_SETTINGS = 256, 1024, 100
"""Characters in the name and in the text of a live setting, and the most of them in one run."""
LONGEST_NAME = 256
"""Characters in the id of a request and in the name of its user."""
LARGEST_NUMBER = 2**53
"""The largest live setting; beyond it JSON parsers differ."""

SettingName = Annotated[str, Meta(min_length=1, max_length=LONGEST_SETTING)]
SettingValue = (
    bool
    | Annotated[int, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
    | Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
    | Annotated[str, Meta(max_length=LONGEST_VALUE)]
)
Settings = Annotated[dict[SettingName, SettingValue], Meta(max_length=MAX_SETTINGS)]


class Request(Struct, frozen=True, kw_only=True):
    """One request of a user; attempts that start after it was made do not follow it."""

    attempt: int
    """The newest attempt when it was made."""
    stop: bool = False
    settings: Settings = {}


class Asked(Struct, frozen=True, kw_only=True):
    """A request as a program gets it: to stop, or the value that one setting is to have."""

    id: Annotated[str, Meta(max_length=LONGEST_NAME)]
    time: int
    who: Annotated[str, Meta(max_length=LONGEST_NAME)]
    attempt: int
    value: SettingValue | None = None

    @property
    def order(self) -> tuple[int, str]:
        """Sorts requests so that the last one counts."""
        return self.time, self.id


class Requests(Struct, frozen=True, kw_only=True):
    """What is asked of a run: the last request to stop, and the last one for each setting."""

    stop: Asked | None = None
    settings: Annotated[dict[SettingName, Asked], Meta(max_length=MAX_SETTINGS)] = {}

    def __bool__(self) -> bool:
        return self.stop is not None or bool(self.settings)


def merged(one: Requests, other: Requests) -> Requests:
    """Merge requests: of two to stop, and of two for the same setting, the later one counts."""
    stops = [each for each in (one.stop, other.stop) if each is not None]
    settings = dict(one.settings)
    for name, asked in other.settings.items():
        if name in settings:
            settings[name] = max(settings[name], asked, key=_order)
        elif len(settings) < MAX_SETTINGS:
            settings[name] = asked
    return Requests(stop=max(stops, key=_order, default=None), settings=settings)


def _order(asked: Asked) -> tuple[int, str]:
    return asked.order


def asked_of(id: str, time: int, who: str, request: Request) -> Requests:
    """Return one request as a program gets it."""
    who = who[:LONGEST_NAME]
    stop = Asked(id=id, time=time, who=who, attempt=request.attempt)
    settings = {
        name: Asked(id=id, time=time, who=who, attempt=request.attempt, value=value)
        for name, value in request.settings.items()
    }
    return Requests(stop=stop if request.stop else None, settings=settings)


def merged_all(several: Iterable[Requests]) -> Requests:
    """Merge any number of requests."""
    found = Requests()
    for each in several:
        found = merged(found, each)
    return found


_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


def kind_of(value: Any) -> str | None:
    """Describe the values that a live setting may have, given one; None when it cannot be one."""
    kind = type(value)
    if kind in (int, float):
        return _KINDS[kind] if -LARGEST_NUMBER <= value <= LARGEST_NUMBER else None
    return _KINDS.get(kind) if kind is not str or len(value) <= LONGEST_VALUE else None


def fitting(declared: Any, value: Any) -> Any:
    """Return a value as the type of the declared one; ValueError when it does not fit."""
    kind, given = kind_of(declared), kind_of(value)
    if kind == _KINDS[float] and given == _KINDS[int]:
        return float(value)
    if kind is None or given != kind:
        raise ValueError(f"must be {kind or 'what the program declared'}, got {str(value)[:50]!r}")
    return value
