"""What Datadog knows: points, events, service checks and log lines, each with the index of its record."""

from typing import Any, Literal, NamedTuple

PointType = Literal["g", "c", "h", "d", "ms", "s"]
"""Gauge, count, histogram, distribution, timing, set: as DogStatsD writes them."""

HOUR = 3600.0


class Point(NamedTuple):
    """One value of one metric; `rate` is the share of such values that was recorded."""

    where: int
    type: PointType
    name: str
    value: float | str
    tags: tuple[str, ...]
    time: int
    host: str = ""
    rate: float = 1.0


class Notice(NamedTuple):
    """An event in Datadog's sense: a title and a text on the event stream."""

    where: int
    title: str
    text: str
    alert_type: str
    tags: tuple[str, ...]
    time: int
    host: str = ""
    aggregation_key: str = ""
    priority: str = ""
    source: str = ""


class Check(NamedTuple):
    """A service check: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

    where: int
    name: str
    status: int
    message: str
    tags: tuple[str, ...]
    time: int
    host: str = ""


class LogLine(NamedTuple):
    """A line of a log, with attributes beside it."""

    where: int
    message: str
    status: str
    attrs: dict[str, Any]
    tags: tuple[str, ...]
    time: int
    host: str = ""
    service: str = ""


Item = Point | Notice | Check | LogLine

OLDEST: dict[type[Item], float] = {Point: HOUR, Notice: 18 * HOUR, Check: HOUR / 6, LogLine: 18 * HOUR}
"""Seconds after which Datadog takes an item no more."""
FUTURE = HOUR / 6
"""Seconds by which a time may be ahead."""


def is_timely(item: Item, now: float) -> bool:
    """Tell whether Datadog would take an item now; what is too old or too far ahead it drops without a word."""
    age = now - item.time / 1e9
    return -FUTURE <= age <= OLDEST[type(item)]
