"""DogStatsD: items as lines, lines packed into datagrams counted in bytes."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from stepscope.wire.datadog.items import Check, Item, Notice, Point

UDP_BYTES, UNIX_BYTES = 1432, 8192
"""What fits a network packet, and what the Agent reads at once."""
LONGEST_LINE = 8192
LATE_SECONDS = 10.0
"""The Agent stamps a gauge when it comes, every ten seconds; one that is later carries its own time."""

_PLAIN_TYPES = {"h": "ms", "d": "ms"}


def write_line(item: Item, now: float) -> bytes | None:
    """Write an item as DogStatsD has it; None for what it has no place for."""
    if isinstance(item, Point):
        return _metric(item, now)
    if isinstance(item, Notice):
        return _event(item)
    return _check(item) if isinstance(item, Check) else None


def write_plain_line(item: Item) -> bytes | None:
    """Write a point as every StatsD daemon reads it: without tags and times, each sample a timing."""
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
    """Join lines to datagrams of at most so many bytes, a longer line alone; with how many lines are in each."""
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
