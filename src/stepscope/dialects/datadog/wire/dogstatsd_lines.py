"""Lines of DogStatsD, protocol 1.0 to 1.6, as a server reads them: metrics, events and service checks."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from stepscope.dialects.datadog.wire.items import ALERT_TYPES, LONGEST, Check, Notice, PointType

NO_VALUE = "a metric without a value"
NO_TYPE = "a metric without a type"
NO_NAME = "a metric without a name"
LONG_NAME = f"a metric whose name is longer than {LONGEST} characters"
BAD_TYPE = "an unknown metric type"
BAD_NUMBER = "a value that is not a number"
BAD_COUNT = "a count that is not finite"
BAD_RATE = "an invalid sample rate"
BAD_TIME = "an invalid timestamp"
BAD_EVENT = "a malformed event"
BAD_CHECK = "a malformed service check"
BAD_TEXT = "a line that is not UTF-8"
MAX_TAGS = 500
"""Different tags of one item: every record of a series has all of them."""
TOO_MANY_TAGS = f"more than {MAX_TAGS} different tags on one item"

EVENT, CHECK = "_e{", "_sc|"
SECOND = 1_000_000_000
_LATEST = 2**63 // SECOND - 1
_TYPES: dict[str, PointType] = {"g": "g", "c": "c", "ms": "ms", "h": "h", "d": "d", "s": "s"}
_LENGTHS = re.compile(r"_e\{(\d{1,7}),(\d{1,7})\}:")
_STATUSES = {"0": 0, "1": 1, "2": 2, "3": 3}
_AFTER_MESSAGE = ("c:", "e:", "card:")
"""The official client puts these behind the message of a check, which the protocol wants to be the last field."""


class Malformed(ValueError):
    """A line that is not in the protocol; its text is one of a few reasons, so that it can be counted by it."""


class Fields(NamedTuple):
    """What follows the value of a metric."""

    type: PointType
    rate: float = 1.0
    tags: tuple[str, ...] = ()
    container: str = ""
    external: str = ""


def split_time(fields: str) -> tuple[str, int | None]:
    """Take the timestamp out of the fields of a metric; in nanoseconds, None when there is none."""
    if "|T" not in fields:
        return fields, None
    parts = fields.split("|")
    times = [part for part in parts if part[:1] == "T"]
    return "|".join(part for part in parts if part[:1] != "T"), read_time(times[-1][1:])


def read_time(text: str) -> int:
    """Read seconds since 1970 as nanoseconds."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 12) or not 0 < int(text) <= _LATEST:
        raise Malformed(BAD_TIME)
    return int(text) * SECOND


def read_fields(text: str) -> Fields:
    """Read what follows the value of a metric, in any order; fields that are not known are ignored."""
    kind, *others = text.split("|")
    if not kind:
        raise Malformed(NO_TYPE)
    if kind not in _TYPES:
        raise Malformed(BAD_TYPE)
    found = _by_sign(others)
    rate = _rate(found["@"]) if "@" in found else 1.0
    return Fields(_TYPES[kind], rate, split_tags(found.get("#", "")), found.get("c:", ""), found.get("e:", ""))


def _by_sign(fields: Iterable[str]) -> dict[str, str]:
    """The fields of a line by what they begin with: `#`, `@`, or a letter and a colon."""
    lengths = ((field, 1 if field[:1] in ("#", "@") else 2) for field in fields)
    return {field[:length]: field[length:] for field, length in lengths}


def _moment(found: dict[str, str], now: int) -> int:
    return read_time(found["d:"]) if "d:" in found else now


def split_tags(text: str) -> tuple[str, ...]:
    """Split tags at commas, without the empty ones and repetitions."""
    return distinct(text.split(","))


def distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """Each tag once, as Datadog has them, in order; Malformed when there are too many."""
    found = dict.fromkeys(tag for each in tags if (tag := each.strip()))
    if len(found) > MAX_TAGS:
        raise Malformed(TOO_MANY_TAGS)
    return tuple(found)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 1:
        raise Malformed(BAD_RATE)
    return rate


def read_number(text: str) -> float:
    """Read a value; NaN and infinities are numbers, digits with underscores are not."""
    try:
        if "_" not in text:
            return int(text) if len(text) > 15 and text.isdigit() and len(text) < 19 else float(text)
    except ValueError:
        pass
    raise Malformed(BAD_NUMBER if text else NO_VALUE)


def read_count(text: str) -> float:
    """Read a value that is added to others."""
    number = read_number(text)
    if not math.isfinite(number):
        raise Malformed(BAD_COUNT)
    return number


def read_event(line: str, now: int) -> Notice:
    """Read an event; the lengths in front count bytes, and a client that counts characters is understood."""
    found = _LENGTHS.match(line)
    if found is None:
        raise Malformed(BAD_EVENT)
    rest = line[found.end() :]
    title, text, fields = _parts(rest.encode("utf-8", "surrogatepass"), rest, int(found[1]), int(found[2]))
    given = _by_sign(fields.split("|")[1:])
    kind = given["t:"] if given.get("t:") in ALERT_TYPES else "info"
    about = (given.get(sign, "") for sign in ("h:", "k:", "p:", "s:", "c:", "e:"))
    tags = split_tags(given.get("#", ""))
    return Notice(0, _lines(title), _lines(text), kind, tags, _moment(given, now), *about)


def _parts(data: bytes, text: str, title: int, body: int) -> tuple[str, str, str]:
    end = title + 1 + body
    if len(data) >= end and data[title : title + 1] == b"|" and data[end : end + 1] in (b"|", b""):
        try:
            return data[:title].decode(), data[title + 1 : end].decode(), data[end:].decode()
        except UnicodeDecodeError:
            pass
    if len(text) >= end and text[title] == "|" and text[end : end + 1] in ("|", ""):
        return text[:title], text[title + 1 : end], text[end:]
    raise Malformed(BAD_EVENT)


def read_check(line: str, now: int) -> Check:
    """Read a service check: the message is the last field and may hold bars."""
    head, _, message = line.partition("|m:")
    parts = head.split("|")
    fields = message.split("|")
    while len(fields) > 1 and fields[-1].startswith(_AFTER_MESSAGE):
        parts.append(fields.pop())
    message = "|".join(fields)
    if len(parts) < 3 or not parts[1] or parts[2] not in _STATUSES:
        raise Malformed(BAD_CHECK)
    given = _by_sign(parts[3:])
    about = (given.get(sign, "") for sign in ("h:", "c:", "e:"))
    text, tags = _lines(message.replace("m\\:", "m:")), split_tags(given.get("#", ""))
    return Check(0, parts[1][:LONGEST], _STATUSES[parts[2]], text, tags, _moment(given, now), *about)


def _lines(text: str) -> str:
    return text.replace("\\n", "\n")
