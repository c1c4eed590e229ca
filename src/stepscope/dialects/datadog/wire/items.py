"""Datadog's items: points, service checks, events and logs, and the spelling of names and tags."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from stepscope.model import names
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Attrs, Event, Log, Record
from stepscope.model.redaction import redact
from stepscope.wire import foreign_names
from stepscope.wire import foreign_names as foreign
from stepscope.wire.otlp.names import PLAIN_STEPS, STEPS
from stepscope.wire.plain import dumps, plain

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
    container: str = ""
    external: str = ""


class Check(NamedTuple):
    """A service check: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

    where: int
    name: str
    status: int
    message: str
    tags: tuple[str, ...]
    time: int
    host: str = ""
    container: str = ""
    external: str = ""


class LogLine(NamedTuple):
    """A log line with attributes."""

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
"""Age in seconds beyond which Datadog drops an item."""
MAX_CLOCK_SKEW_SECONDS = HOUR / 6
"""How many seconds a time may be in the future."""


def is_timely(item: Item, now: float) -> bool:
    """Return whether Datadog would accept an item now; it silently drops what is too old or too far in the future."""
    age = now - item.time / 1e9
    return -MAX_CLOCK_SKEW_SECONDS <= age <= OLDEST[type(item)]


LONGEST = 200
"""The most characters of a metric's name and of a tag; Datadog truncates or rejects longer ones."""

WRITER_TAGS = frozenset(("project", "rank", "run_id"))
"""Tags that identify the writer of a record; each occurs once."""
_ODD = re.compile(r"[^A-Za-z0-9_.]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_DOTS = re.compile(r"\.{2,}")
_ODD_IN_TAG = re.compile(r"[^\w\-:/.]")
_STEPS = frozenset((*STEPS, *PLAIN_STEPS))
_OURS = frozenset(
    (
        names.ATTR_SAMPLE_RATE,
        names.ATTR_SET_MEMBER,
        ATTR_EXEMPLARS,
        foreign.ATTR_EVENT_ID,
        foreign.ATTR_EVENT_INDEX,
    )
)
_OUR_PREFIXES = ("datadog.", "statsd.")


@lru_cache(maxsize=10_000)
def metric_name(key: str, namespace: str = "") -> str:
    """Convert a key to a metric name: `trainer/loss` is `ns.trainer.loss`; an existing namespace is not repeated."""
    # An underscore for each foreign letter would make one metric of many.
    name = _FOREIGN.sub(lambda found: f"u{ord(found[0]):04x}", key.replace("/", "."))
    name = _DOTS.sub(".", _ODD.sub("_", name)).strip(".")
    if namespace and name != namespace and not name.startswith(namespace + "."):
        name = f"{namespace}.{name}"
    if not name[:1].isalpha():
        name = "x" + name
    return name[:LONGEST]


def tag(key: str, value: Any = None) -> str:
    """Convert a key and a value to a tag; letters of any language stay, separators become underscores."""
    if isinstance(value, bool):
        value = str(value).lower()
    bare = value is None or value == ""
    return _ODD_IN_TAG.sub("_", key if bare else f"{key}:{value}")[:LONGEST]


def joined(tags: tuple[str, ...], record_tags: Iterable[str]) -> tuple[str, ...]:
    """Add a record's tags to those of its writer; its own project, rank and run replace the writer's."""
    record_tags = tuple(record_tags)
    replaced = {key for each in record_tags if (key := each.partition(":")[0]) in WRITER_TAGS}
    kept = tags if not replaced else [each for each in tags if each.partition(":")[0] not in replaced]
    return tuple(dict.fromkeys((*kept, *record_tags)))


def tags_of(attrs: Attrs) -> Iterator[str]:
    """Convert attributes to tags, but never the step; a list becomes one tag per element."""
    for key, value in attrs.items():
        if key in _STEPS or key in _OURS or key.startswith(_OUR_PREFIXES):
            continue
        if isinstance(value, (list, tuple)):
            yield from (tag(key, _text(each)) for each in value)
        else:
            yield tag(key, _text(value))


def _text(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, bytes)):
        return dumps(value, indent=None)
    return value


LONGEST_TITLE, LONGEST_TEXT, LONGEST_KEY, LONGEST_MESSAGE = 100, 4000, 100, 500
"""The most characters of an event's title, text and aggregation key, and of a check's message."""
STATUSES = {"OK": 0, "WARNING": 1, "WARN": 1, "CRITICAL": 2, "UNKNOWN": 3}
ALERT_TYPES = ("error", "warning", "info", "success")
ATTR_ALERT_TYPE = "datadog.alert_type"
ATTR_AGGREGATION = "datadog.aggregation_key"
ATTR_PRIORITY = "datadog.priority"
ATTR_SOURCE = "datadog.source_type_name"

_TEXTS = ("text", "message", "exception.message")
_UNKNOWN = 3


def notice_of(writer: Writer, where: int, record: Record, tags: tuple[str, ...]) -> Notice | None:
    """Write an event or an alert as an event of Datadog, its text unchanged; None for other kinds."""
    if not isinstance(record, (Event, Alert)):
        return None
    given = record.attrs.get(ATTR_ALERT_TYPE)
    return Notice(
        where,
        cut(record.name or "event", LONGEST_TITLE),
        cut(_word_text(writer, record), LONGEST_TEXT),
        given if given in ALERT_TYPES else _alert_type(record.severity),
        _notice_tags(writer, tags, record),
        record.time,
        writer.host,
        cut(str(record.attrs.get(ATTR_AGGREGATION, "")), LONGEST_KEY),
        "low" if record.attrs.get(ATTR_PRIORITY) == "low" else "normal",
        str(record.attrs.get(ATTR_SOURCE, ""))[:LONGEST_KEY],
    )


def check_of(writer: Writer, where: int, event: Event, tags: tuple[str, ...]) -> Check:
    """Convert an event with a check's status to a service check; an unknown status is UNKNOWN.

    Its message is `datadog.message`, or else the body or the attribute `message`; all other attributes are tags.
    """
    given = event.attrs[foreign_names.ATTR_CHECK_STATUS]
    status = STATUSES.get(given.upper(), _UNKNOWN) if isinstance(given, str) else given
    if status not in (0, 1, 2, _UNKNOWN):
        status = _UNKNOWN
    texts: tuple[str, ...] = ()
    given = event.attrs.get(foreign_names.ATTR_CHECK_MESSAGE, event.body)
    if given is None:
        given, texts = event.attrs.get("message", ""), ("message",)
    message = given if isinstance(given, str) else dumps(redact(given), indent=None)
    name = cut(event.name or "check", LONGEST)
    all_tags = _tags(tags, event, texts)
    return Check(where, name, int(status), cut(message, LONGEST_MESSAGE), all_tags, event.time, writer.host)


def log_of(writer: Writer, where: int, record: Record, tags: tuple[str, ...], service: str) -> LogLine | None:
    """Convert a log line; run, rank and step are attributes, which cost nothing. None for other kinds."""
    if not isinstance(record, Log):
        return None
    message = record.body if isinstance(record.body, str) else dumps(redact(record.body), indent=None)
    attrs: dict[str, Any] = {**plain(redact(record.attrs)), names.ATTR_RUN_ID: writer.run, names.ATTR_RANK: writer.rank}
    if record.step is not None:
        attrs[names.ATTR_STEP] = record.step
    if record.trace_id and record.span_id:
        attrs |= {"trace_id": record.trace_id.hex(), "span_id": record.span_id.hex()}
    if record.scope:
        attrs["logger.name"] = record.scope
    status = names.severity_word(record.severity).lower()
    return LogLine(where, message, status, attrs, tags, record.time, writer.host, service or writer.project)


def cut(text: str, longest: int) -> str:
    """Truncate a text, with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _tags(tags: tuple[str, ...], record: Event | Alert, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Add the attributes that are short enough for a tag and are not among the texts."""
    short = {key: value for key, value in record.attrs.items() if key not in texts and len(str(value)) <= LONGEST}
    return joined(tags, tags_of(redact(short)))


def _notice_tags(writer: Writer, tags: tuple[str, ...], record: Event | Alert) -> tuple[str, ...]:
    """The tags of an event on the event stream, where tags are free: run and step are always included."""
    texts = ("text", "exception.message") if isinstance(record.attrs.get("text"), str) else _TEXTS
    found = _tags(joined(tags, (tag("run_id", writer.run),)), record, texts)
    return found if record.step is None else (*found, tag("step", record.step))


def _word_text(writer: Writer, record: Event | Alert) -> str:
    if isinstance(record, Alert):
        given = record.message
    elif isinstance(record.body, str):
        given = record.body
    else:
        given = _event_text(record)
    return given or f"run {writer.run}, rank {writer.rank}"  # an event needs a text


def _event_text(event: Event) -> str:
    for key in _TEXTS:
        if isinstance(event.attrs.get(key), str):
            stack = event.attrs.get("exception.stacktrace")
            return f"{event.attrs[key]}\n{stack}" if isinstance(stack, str) else str(event.attrs[key])
    if event.body is not None:
        return dumps(redact(event.body), indent=None)
    return dumps(redact(event.attrs), indent=None) if event.attrs else ""


def _alert_type(severity: int) -> str:
    return "error" if severity >= 17 else "warning" if severity >= 13 else "info"
