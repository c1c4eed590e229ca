"""Datadog's events, service checks and logs as records."""

from stepscope.dialects.datadog.wire.items import (
    ATTR_AGGREGATION,
    ATTR_ALERT_TYPE,
    ATTR_PRIORITY,
    ATTR_SOURCE,
    STATUSES,
    Check,
    LogLine,
    Notice,
)
from stepscope.model import names
from stepscope.model.records import Attrs, Event, Log
from stepscope.wire import foreign_names
from stepscope.wire.otlp.decode.origin import read_id

_ALERT_SEVERITIES = {"error": 17, "warning": 13, "info": 9, "success": 9}
_CHECK_SEVERITIES = (9, 13, 17, 13)
_STATUS_WORDS = {number: word for word, number in reversed(STATUSES.items())}
_SEVERITIES = {
    **{word.lower(): number for word, number in names.SEVERITIES.items()},
    **dict.fromkeys(("emerg", "emergency", "alert"), 21),
    **dict.fromkeys(("ok", "success"), 9),
    "err": 17,
    "notice": 10,
}
Step = tuple[int | None, str | None]
"""A step and the name of its axis."""


def event_record(notice: Notice, attrs: Attrs, step: Step) -> Event:
    """Make the record of an event: the title is its name, the text its body."""
    record_attrs: Attrs = {ATTR_ALERT_TYPE: notice.alert_type, **attrs}
    further = {ATTR_AGGREGATION: notice.aggregation_key, ATTR_PRIORITY: notice.priority, ATTR_SOURCE: notice.source}
    record_attrs |= {key: value for key, value in further.items() if value}
    severity = _ALERT_SEVERITIES.get(notice.alert_type, 9)
    return Event(notice.time, *step, None, None, severity, notice.title, record_attrs, notice.text or None)


def check_record(check: Check, attrs: Attrs, step: Step) -> Event:
    """Make the record of a service check: an event with the check's name and status."""
    record_attrs: Attrs = {foreign_names.ATTR_CHECK_STATUS: _STATUS_WORDS[check.status], **attrs}
    severity = _CHECK_SEVERITIES[check.status]
    return Event(check.time, *step, None, None, severity, check.name, record_attrs, check.message or None)


def log_record(line: LogLine, attrs: Attrs, step: Step) -> Log:
    """Make the record of a log line; a trace and a span are taken where they are ids of OpenTelemetry."""
    record_attrs: Attrs = {**attrs, **line.attrs}
    trace, span = read_id(record_attrs.get("trace_id"), 16), read_id(record_attrs.get("span_id"), 8)
    if trace is not None and span is not None:
        del record_attrs["trace_id"], record_attrs["span_id"]
    else:
        trace = span = None
    scope = record_attrs.pop("logger.name", "")
    severity = _SEVERITIES.get(line.status.lower(), 0)
    return Log(
        line.time, *step, trace, span, severity, line.message, record_attrs, scope if isinstance(scope, str) else ""
    )
