"""The HTTP intake: items as the JSON bodies of its five paths, each within its limits."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from stepscope.wire.datadog.items import Check, Item, LogLine, Notice, Point
from stepscope.wire.plain import plain

_encode = msgspec.json.Encoder().encode
_COUNT, _GAUGE = 1, 3
_MOST_WEIGHT = 1000
LONGEST_LOG = 900_000
"""Bytes of a log's message; Datadog cuts a log at 1 MB."""
SETS = "a set: only an Agent counts its members"

Decoded = Any


class Route(NamedTuple):
    """One path of the intake: what it takes at once."""

    path: str
    encode: Callable[[Sequence[Any]], Decoded]
    most_items: int
    most_bytes: int = 4_800_000
    most_compressed: int = 480_000
    """Zero: this path reads no compressed bodies."""


def series(points: Sequence[Point]) -> Decoded:
    """Gauges and counts for /api/v2/series, the points of one series together."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points:
        key = (point.name, point.type, point.tags, point.host)
        one = found.get(key)
        if one is None:
            kind = _COUNT if point.type == "c" else _GAUGE
            one = found[key] = {"metric": point.name, "type": kind, "points": [], "tags": list(point.tags)}
            if point.host:
                one["resources"] = [{"name": point.host, "type": "host"}]
        value = point.value
        assert not isinstance(value, str), "sets do not come here"
        if point.type == "c" and point.rate != 1.0:
            value /= point.rate
        one["points"].append({"timestamp": point.time // 1_000_000_000, "value": float(value)})
    return {"series": list(found.values())}


def distributions(points: Sequence[Point]) -> Decoded:
    """Samples for /api/v1/distribution_points, those of one second together, weighed by their rate."""
    found: dict[tuple[Any, ...], dict[int, list[float]]] = {}
    for point in points:
        times = found.setdefault((point.name, point.tags, point.host), {})
        assert not isinstance(point.value, str), "sets do not come here"
        weight = min(round(1 / point.rate), _MOST_WEIGHT)
        times.setdefault(point.time // 1_000_000_000, []).extend([float(point.value)] * weight)
    return {
        "series": [
            {"metric": name, "points": [[time, values] for time, values in times.items()], "tags": list(tags)}
            | ({"host": host} if host else {})
            for (name, tags, host), times in found.items()
        ]
    }


def event(notices: Sequence[Notice]) -> Decoded:
    """One event for /api/v1/events."""
    (notice,) = notices
    made: dict[str, Any] = {
        "title": notice.title,
        "text": notice.text,
        "alert_type": notice.alert_type,
        "date_happened": notice.time // 1_000_000_000,
        "priority": notice.priority or "normal",
        "tags": list(notice.tags),
    }
    further = (("host", notice.host), ("aggregation_key", notice.aggregation_key), ("source_type_name", notice.source))
    return made | {key: value for key, value in further if value}


def checks(found: Sequence[Check]) -> Decoded:
    """Service checks for /api/v1/check_run."""
    return [
        {
            "check": check.name,
            "host_name": check.host,
            "status": check.status,
            "tags": list(check.tags),
            "message": check.message,
            "timestamp": check.time // 1_000_000_000,
        }
        for check in found
    ]


def logs(lines: Sequence[LogLine]) -> Decoded:
    """Log lines for /api/v2/logs; an attribute never takes the place of a field."""
    return [
        {
            **plain(line.attrs),
            "message": _cut(line.message),
            "status": line.status,
            "timestamp": line.time // 1_000_000,
            "ddsource": "stepscope",
            "ddtags": ",".join(line.tags),
            "hostname": line.host,
            "service": line.service,
        }
        for line in lines
    ]


ROUTES = {
    "series": Route("/api/v2/series", series, 20_000),
    "distributions": Route("/api/v1/distribution_points", distributions, 20_000),
    "event": Route("/api/v1/events", event, 1, most_compressed=0),
    "checks": Route("/api/v1/check_run", checks, 500, most_compressed=0),
    "logs": Route("/api/v2/logs", logs, 1000),
}
"""By what is sent there, in the order in which it is sent."""


def route_of(item: Item) -> str | None:
    """Name the route of an item; None for a set."""
    if isinstance(item, Point):
        return None if item.type == "s" else "series" if item.type in ("g", "c") else "distributions"
    return "event" if isinstance(item, Notice) else "checks" if isinstance(item, Check) else "logs"


class Body(NamedTuple):
    """A request's body, and how many items from the front are in it."""

    held: int
    content: bytes
    compressed: bool


def next_body(route: Route, items: Sequence[Item]) -> Body:
    """Write as many items from the front as one request may hold; one alone is written whatever its size."""
    count = min(len(items), route.most_items)
    while True:
        raw = _encode(route.encode(items[:count]))
        content = zlib.compress(raw, 1) if route.most_compressed else raw
        fits = len(raw) <= route.most_bytes and (not route.most_compressed or len(content) <= route.most_compressed)
        if fits or count == 1:
            return Body(count, content, bool(route.most_compressed))
        count = max(count // 2, 1)


def _cut(message: str) -> str:
    data = message.encode("utf-8", "replace")
    if len(data) <= LONGEST_LOG:
        return message
    return data[:LONGEST_LOG].decode("utf-8", "ignore") + "…"
