"""One record on one line: text for people, JSON for programs."""

import time
from collections.abc import Mapping
from typing import Any

from stepscope.cli import text
from stepscope.model import formatting, names
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, Value, kind
from stepscope.wire.plain import dumps, plain


def line(writer: Writer, record: Record) -> str:
    """Format time, rank, step, kind and content."""
    step = "" if record.step is None else f"{record.axis or 'step'} {record.step}"
    front = f"{clock(record.time)} r{writer.rank} {step:<12} {kind(record):<6}"
    return text.clean(f"{front} {_WHAT[type(record)](record)}")


def json_line(writer: Writer, record: Record) -> str:
    """Write a record and its writer as one line of JSON."""
    who = {"run": writer.run, "writer": writer.id, "rank": writer.rank, "attempt": writer.attempt}
    return dumps({**who, **plain(record)}, indent=None)


def clock(ns: int) -> str:
    """The time of day to the millisecond."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(ns / 1e9)) + f".{ns % 10**9 // 10**6:03d}"
    except (OverflowError, ValueError, OSError):
        return f"{ns}ns"


def pairs(attrs: Mapping[str, Any]) -> str:
    """Format attributes as key=value."""
    return " ".join(f"{key}={_short(value)}" for key, value in attrs.items())


def _short(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else text.cut(str(value), 60)


def _metric(record: Metric) -> str:
    values = " ".join(f"{key}={_value(value)}" for key, value in record.points())
    return f"{values} {pairs(record.attrs)}".rstrip()


def _value(value: Value) -> str:
    if isinstance(value, (int, float)):
        return text.number(value)
    mean = value.total / value.count if value.count and value.total is not None else None
    return f"{formatting.amount(value.count, 'value')}, mean {text.number(mean)}"


def _span(record: Span) -> str:
    took = "open" if record.duration is None else formatting.duration(record.duration / 1e9)
    failed = f" ERROR {record.message}".rstrip() if record.status == 2 else ""
    return f"{record.name} {took}{failed} {pairs(record.attrs)}".rstrip()


def _log(record: Log) -> str:
    if record.scope == names.SCOPE_SAMPLES:
        return f"sample {record.body} {pairs(record.attrs)}".rstrip()
    return f"{names.severity_word(record.severity)} {record.body}"


def _event(record: Event) -> str:
    body = "" if record.body is None else f" {record.body}"
    return f"{names.severity_word(record.severity)} {record.name}{body} {pairs(record.attrs)}".rstrip()


def _alert(record: Alert) -> str:
    message = f"{record.name}: {record.message}" if record.message else record.name
    return f"{names.severity_word(record.severity)} {message} {pairs(record.attrs)}".rstrip()


_WHAT: dict[type, Any] = {Metric: _metric, Span: _span, Log: _log, Event: _event, Alert: _alert}
