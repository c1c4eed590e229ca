"""Events, alerts and logs as Datadog's events, service checks and log lines."""

from typing import Any

from stepscope.model import names
from stepscope.model.records import Alert, Event, Log, Record
from stepscope.model.redaction import redact
from stepscope.model.writer import Writer
from stepscope.wire.datadog.items import Check, LogLine, Notice
from stepscope.wire.datadog.spelling import LONGEST, joined, tag, tags_of
from stepscope.wire.plain import dumps, plain

LONGEST_TITLE, LONGEST_TEXT, LONGEST_KEY, LONGEST_MESSAGE = 100, 4000, 100, 500
"""Characters that Datadog takes of an event's title and text, its aggregation key, a check's message."""
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
    said = record.attrs.get(ATTR_ALERT_TYPE)
    return Notice(
        where,
        cut(record.name or "event", LONGEST_TITLE),
        cut(_text(writer, record), LONGEST_TEXT),
        said if said in ALERT_TYPES else _alert_type(record.severity),
        _notice_tags(writer, tags, record),
        record.time,
        writer.host,
        cut(str(record.attrs.get(ATTR_AGGREGATION, "")), LONGEST_KEY),
        "low" if record.attrs.get(ATTR_PRIORITY) == "low" else "normal",
        str(record.attrs.get(ATTR_SOURCE, ""))[:LONGEST_KEY],
    )


def check_of(writer: Writer, where: int, event: Event, tags: tuple[str, ...], run_tag: bool) -> Check:
    """Write an event with a check's status as a service check; a status nobody knows is UNKNOWN."""
    said = event.attrs[names.ATTR_CHECK_STATUS]
    status = STATUSES.get(said.upper(), _UNKNOWN) if isinstance(said, str) else said
    if status not in (0, 1, 2, _UNKNOWN):
        status = _UNKNOWN
    message = event.body if isinstance(event.body, str) else _said(event)
    name = cut(event.name or "check", LONGEST)
    return Check(
        where, name, int(status), cut(message, LONGEST_MESSAGE), _tags(tags, event, run_tag), event.time, writer.host
    )


def log_of(writer: Writer, where: int, record: Record, tags: tuple[str, ...], service: str) -> LogLine | None:
    """Write a log line; run, rank and step are attributes, which cost nothing. None for other kinds."""
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
    """Cut a text to so many characters, and show that it was."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _tags(tags: tuple[str, ...], record: Event | Alert, run_tag: bool) -> tuple[str, ...]:
    """Add the attributes that are short enough for a tag."""
    short = {key: value for key, value in record.attrs.items() if key not in _TEXTS and len(str(value)) <= LONGEST}
    return joined(tags, tags_of(redact(short), run_tag=run_tag))


def _notice_tags(writer: Writer, tags: tuple[str, ...], record: Event | Alert) -> tuple[str, ...]:
    """The tags of an event on the stream, which cost nothing: the run and the step are always among them."""
    found = _tags(joined(tags, (tag("run_id", writer.run),)), record, run_tag=True)
    return found if record.step is None else (*found, tag("step", record.step))


def _text(writer: Writer, record: Event | Alert) -> str:
    if isinstance(record, Alert):
        said = record.message
    elif isinstance(record.body, str):
        said = record.body
    else:
        said = _said(record)
    return said or f"run {writer.run}, rank {writer.rank}"  # an event needs a text


def _said(event: Event) -> str:
    for key in _TEXTS:
        if isinstance(event.attrs.get(key), str):
            stack = event.attrs.get("exception.stacktrace")
            return f"{event.attrs[key]}\n{stack}" if isinstance(stack, str) else str(event.attrs[key])
    if event.body is not None:
        return dumps(redact(event.body), indent=None)
    return dumps(redact(event.attrs), indent=None) if event.attrs else ""


def _alert_type(severity: int) -> str:
    return "error" if severity >= 17 else "warning" if severity >= 13 else "info"
