"""DogStatsD lines and bodies of Datadog's HTTP intake."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from stepscope.dialects.datadog.wire.items import Check, Item, LogLine, Notice, Point
from stepscope.wire.plain import plain

UDP_BYTES, UNIX_BYTES = 1432, 8192
"""The size of a network packet, and of the Agent's read buffer."""
LONGEST_LINE = 8192
LATE_SECONDS = 10.0
"""The Agent timestamps gauges on arrival, every ten seconds; older ones carry their own time."""

_PLAIN_TYPES = {"h": "ms", "d": "ms"}


def write_line(item: Item, now: float) -> bytes | None:
    """Convert an item to a DogStatsD line; None for items without one."""
    if isinstance(item, Point):
        return _metric(item, now)
    if isinstance(item, Notice):
        return _event(item)
    return _check(item) if isinstance(item, Check) else None


def write_plain_line(item: Item) -> bytes | None:
    """Convert a point to plain StatsD: without tags and times, each sample a timing."""
    if not isinstance(item, Point):
        return None
    point = item if item.type in ("c", "ms", "h", "d") else item._replace(rate=1.0)
    kind = _PLAIN_TYPES.get(point.type, point.type)
    line = f"{point.name}:{_value(point)}|{kind}{_rate(point)}".encode()
    if kind == "g" and line[len(point.name) + 1 : len(point.name) + 2] == b"-":
        # A sign makes it a change of the gauge; from nothing, the change is the value.
        return f"{point.name}:0|g\n".encode() + line
    return line


def pack(lines: Iterable[bytes], most: int) -> Iterator[tuple[bytes, int]]:
    """Join lines into datagrams of at most this many bytes, a longer line alone; with the number of lines in each."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and size + 1 + len(line) > most:
            yield b"\n".join(held), len(held)
            held, size = [], 0
        size += len(line) + (1 if held else 0)
        held.append(line)
    if held:
        yield b"\n".join(held), len(held)


def _metric(point: Point, now: float) -> bytes:
    if point.type == "g":
        point = point._replace(rate=1.0)
    text = f"{point.name}:{_value(point)}|{point.type}{_rate(point)}{_tags(point.tags)}"
    # Only gauges: two counts of one second with their own times would be one to Datadog.
    if point.type == "g" and now - point.time / 1e9 > LATE_SECONDS:
        text += f"|T{point.time // 1_000_000_000}"
    return text.encode()


def _value(point: Point) -> str:
    if isinstance(point.value, str):
        return point.value.replace("\n", "_").replace("|", "_").replace(":", "_")
    return repr(point.value)


def _rate(point: Point) -> str:
    return "" if point.rate == 1.0 else f"|@{point.rate!r}"


@lru_cache(maxsize=1_000)
def _tags(tags: tuple[str, ...]) -> str:
    return f"|#{','.join(tags)}" if tags else ""


def _event(notice: Notice) -> bytes:
    title = _one_line(notice.title)
    after = f"|d:{notice.time // 1_000_000_000}"
    after += f"|h:{_field(notice.host)}" if notice.host else ""
    after += f"|k:{_field(notice.aggregation_key)}" if notice.aggregation_key else ""
    after += f"|p:{notice.priority}" if notice.priority else ""
    after += f"|s:{_field(notice.source)}" if notice.source else ""
    after += f"|t:{notice.alert_type}{_tags(notice.tags)}"
    room = LONGEST_LINE - len(title) - len(after.encode()) - 40
    text = _one_line(notice.text)
    if len(text) > room > 3:
        text = text[: room - 3].decode("utf-8", "ignore").encode() + "…".encode()
    return b"_e{%d,%d}:%b|%b%b" % (len(title), len(text), title, text, after.encode())


def _check(check: Check) -> bytes:
    text = f"_sc|{_field(check.name)}|{check.status}|d:{check.time // 1_000_000_000}"
    text += f"|h:{_field(check.host)}" if check.host else ""
    text += _tags(check.tags)
    if check.message:
        text += "|m:" + check.message.replace("\n", "\\n").replace("m:", "m\\:")
    return text.encode()


def _one_line(text: str) -> bytes:
    return text.replace("\r", "").replace("\n", "\\n").encode()


def _field(text: str) -> str:
    return text.replace("|", "_").replace("\n", "_")


_encode = msgspec.json.Encoder().encode
_COUNT, _GAUGE = 1, 3
_MAX_WEIGHT = 1000
LONGEST_LOG = 900_000
"""Bytes of a log's message; Datadog cuts a log at 1 MB."""
SETS = "a set: only an Agent counts its members"

Decoded = Any


class Route(NamedTuple):
    """One path of the intake and its limits per request."""

    path: str
    encode: Callable[[Sequence[Any]], Decoded]
    most_items: int
    most_bytes: int = 4_800_000
    most_compressed: int = 480_000
    """0 if this path accepts no compressed bodies."""


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
    """Samples for /api/v1/distribution_points, grouped by second and weighted by their rate."""
    found: dict[tuple[Any, ...], dict[int, list[float]]] = {}
    for point in points:
        times = found.setdefault((point.name, point.tags, point.host), {})
        assert not isinstance(point.value, str), "sets do not come here"
        weight = min(round(1 / point.rate), _MAX_WEIGHT)
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
"""Routes by item type, in the order in which they are sent."""


def route_of(item: Item) -> str | None:
    """The route of an item; None for a set."""
    if isinstance(item, Point):
        return None if item.type == "s" else "series" if item.type in ("g", "c") else "distributions"
    return "event" if isinstance(item, Notice) else "checks" if isinstance(item, Check) else "logs"


class Body(NamedTuple):
    """The body of a request, and how many of the first items are in it."""

    held: int
    content: bytes
    compressed: bool


def next_body(route: Route, items: Sequence[Item]) -> Body:
    """Write as many of the first items as fit into one request; a single one is written whatever its size."""
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
