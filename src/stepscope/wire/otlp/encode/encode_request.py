"""Records of one writer as OTLP requests, and spans and logs in them, written without a protobuf library."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from struct import Struct
from typing import Any, NamedTuple

from stepscope.model.names import (
    ATTR_DROPPED,
    ATTR_DROPPED_EVENTS,
    ATTR_DROPPED_LINKS,
    ATTR_FLAGS,
    ATTR_SEVERITY_TEXT,
    ATTR_TRACE_STATE,
    severity_word,
)
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Attrs, Event, Link, Log, Metric, Record, Span, SpanEvent
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.encode.metric_points import Temporality, write_metrics
from stepscope.wire.otlp.names import SIGNALS, Signal
from stepscope.wire.otlp.protobuf_writing import (
    MASK,
    Pairs,
    delimited,
    name,
    resource_of,
    text,
    varint,
    write_resource,
    write_scope,
    write_value,
)

LIMIT = 4 * 1024 * 1024
"""The largest request, unless a single record is larger: the default limit of gRPC servers."""

OPEN_SPAN = "the span is still open"
BAD_IDS = "the span's ids are not 16 and 8 bytes"
BASELINE = "the first value of a cumulative series has no start to count from"


@dataclass(frozen=True, slots=True)
class Request:
    """A request body; `where` are the indices of its records in the sequence of all that were given."""

    signal: Signal
    body: bytes
    count: int
    """Spans, data points or log records inside."""
    where: list[int]


class Encoded(NamedTuple):
    """The requests of some records, and counts of records that OTLP cannot represent, by reason."""

    requests: list[Request]
    skipped: dict[str, int]


_SIGNALS: dict[type[Record], Signal] = {
    Metric: "metrics",
    Span: "traces",
    Log: "logs",
    Event: "logs",
    Alert: "logs",
}

_Entry = tuple[int, bytes, Record]
"""Index among all records, resource, record."""


def encode(
    batches: Iterable[tuple[Writer, Sequence[Record]]],
    *,
    temporality: Temporality | None = None,
    steps: bool = True,
    limit: int = LIMIT,
) -> Encoded:
    """Encode records as uncompressed protobuf requests, one resource for each writer.

    Without `steps` the points of metrics carry no `train.step`, for backends that make a series of every
    attribute value. A `temporality` converts sums and histograms; commit it once the requests are safe.
    """
    if temporality is not None:
        temporality.rewind()
    entries: dict[Signal, list[_Entry]] = {signal: [] for signal in SIGNALS}
    skipped: dict[str, int] = {}
    indices = count()
    for writer, records in batches:
        resource = write_resource(resource_of(writer))
        for given, index in zip(records, indices, strict=False):
            signal = _SIGNALS[type(given)]
            record, problem = _fit(writer, given, temporality)
            if record is None:
                skipped[problem] = skipped.get(problem, 0) + 1
            else:
                entries[signal].append((index, resource, record))
    requests = [
        request for signal in SIGNALS if entries[signal] for request in _requests(signal, entries[signal], steps, limit)
    ]
    return Encoded(requests, skipped)


def _fit(writer: Writer, record: Record, temporality: Temporality | None) -> tuple[Record | None, str]:
    """Convert a record to one that OTLP can represent, or return why that is impossible."""
    if isinstance(record, Span):
        if record.duration is None:
            return None, OPEN_SPAN
        if len(record.trace_id) != 16 or len(record.span_id) != 8:
            return None, BAD_IDS
    elif isinstance(record, Metric) and temporality is not None:
        return temporality.convert(writer, record), BASELINE
    return record, ""


def _requests(signal: Signal, entries: list[_Entry], steps: bool, limit: int) -> Iterator[Request]:
    """Write one request; when it is too large, write its parts instead."""
    body = _body(signal, entries, steps)
    if len(body) > limit and len(entries) > 1:
        parts = min(len(body) // limit + 1, len(entries))
        size = -(-len(entries) // parts)
        for start in range(0, len(entries), size):
            yield from _requests(signal, entries[start : start + size], steps, limit)
        return
    held = sum(len(record.values) if isinstance(record, Metric) else 1 for _, _, record in entries)
    yield Request(signal, body, held, [index for index, _, _ in entries])


def _body(signal: Signal, entries: list[_Entry], steps: bool) -> bytes:
    resources: dict[bytes, list[Record]] = {}
    for _, resource, record in entries:
        resources.setdefault(resource, []).append(record)
    return b"".join(
        delimited(b"\x0a", resource + _scopes(_items(signal, records, steps)))
        for resource, records in resources.items()
    )


def _scopes(items: dict[bytes, list[bytes]]) -> bytes:
    return b"".join(
        delimited(b"\x12", scope + b"".join([delimited(b"\x12", item) for item in written]))
        for scope, written in items.items()
    )


def _items(signal: Signal, records: list[Record], steps: bool) -> dict[bytes, list[bytes]]:
    """Write the items of one resource, by scope."""
    if signal == "metrics":
        return write_metrics([record for record in records if isinstance(record, Metric)], steps)
    scopes: dict[bytes, list[bytes]] = {}
    for record in records:
        if isinstance(record, Span):
            scope, attrs = write_scope(record.scope, record.attrs)
            scopes.setdefault(scope, []).append(write_span(record, record.duration or 0, attrs))
        elif not isinstance(record, Metric):
            scope, attrs = write_scope(record.scope if isinstance(record, Log) else "", record.attrs)
            scopes.setdefault(scope, []).append(write_log(record, attrs))
    return scopes


_TIMES = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_UINT32 = 2**32 - 1
_ATTRS, _EVENT_ATTRS, _LINK_ATTRS = Pairs(b"\x4a"), Pairs(b"\x1a"), Pairs(b"\x22")
_FLAGS = Struct("<I").pack
_DROPPED = (
    (ATTR_DROPPED, b"\x50"),
    (ATTR_DROPPED_EVENTS, b"\x60"),
    (ATTR_DROPPED_LINKS, b"\x70"),
)
_ASIDE = frozenset((ATTR_TRACE_STATE, *(name for name, _ in _DROPPED)))
_EVENT_ASIDE = frozenset((ATTR_DROPPED,))
_LINK_ASIDE = frozenset((ATTR_TRACE_STATE, ATTR_DROPPED, ATTR_FLAGS))


def write_span(span: Span, duration: int, attrs: Attrs) -> bytes:
    """Write a span that has ended, with those of its attributes that are its own and not its scope's."""
    plain = attrs is span.attrs or _ASIDE.isdisjoint(attrs)
    parts = [
        b"\x0a\x10%b\x12\x08%b" % (span.trace_id, span.span_id),
        delimited(b"\x22", span.parent_id) if span.parent_id else b"",
        name(b"\x2a", span.name),
        b"\x30%b" % varint(span.span_kind & MASK) if span.span_kind else b"",
        _TIMES(b"\x39", span.time & MASK, b"\x41", span.time + duration & MASK),
        _ATTRS.write_step(span.step, span.axis),
        _ATTRS.write(attrs if plain else {key: value for key, value in attrs.items() if key not in _ASIDE}),
    ]
    if not plain:
        parts += [_state(attrs), *(_count(tag, attrs.get(name)) for name, tag in _DROPPED)]
    if span.events:
        parts += [delimited(b"\x5a", _event(event)) for event in span.events]
    if span.links:
        parts += [delimited(b"\x6a", _link(link)) for link in span.links]
    if span.status or span.message:
        parts.append(delimited(b"\x7a", text(b"\x12", span.message) + b"\x18" + varint(span.status & MASK)))
    if span.flags:
        parts.append(b"\x85\x01" + _FLAGS(span.flags & _UINT32))
    return b"".join(parts)


def _event(event: SpanEvent) -> bytes:
    attrs = _EVENT_ATTRS.write(event.attrs, _EVENT_ASIDE)
    dropped = _count(b"\x20", event.attrs.get(ATTR_DROPPED))
    return _TIME(b"\x09", event.time & MASK) + text(b"\x12", event.name) + attrs + dropped


def _link(link: Link) -> bytes:
    attrs = link.attrs
    written = delimited(b"\x0a", link.trace_id) + delimited(b"\x12", link.span_id)
    written += _LINK_ATTRS.write(attrs, _LINK_ASIDE)
    if _LINK_ASIDE.isdisjoint(attrs):
        return written
    written += _state(attrs) + _count(b"\x28", attrs.get(ATTR_DROPPED))
    flags = attrs.get(ATTR_FLAGS)
    return written + b"\x35" + _FLAGS(flags & _UINT32) if type(flags) is int else written


def _state(attrs: Attrs) -> bytes:
    state = attrs.get(ATTR_TRACE_STATE)
    return text(b"\x1a", state) if type(state) is str else b""


def _count(tag: bytes, value: object) -> bytes:
    return tag + varint(value & _UINT32) if type(value) is int else b""


_LOG_ATTRS = Pairs(b"\x32")
_LOG_FLAGS = Struct("<cI").pack
_LOG_ASIDE = frozenset((ATTR_SEVERITY_TEXT, ATTR_DROPPED))


def write_log(record: Log | Event | Alert, attrs: Attrs) -> bytes:
    """Write a log record with those of its attributes that are its own and not its scope's.

    An event has a name, and an alert is the event `alert.firing`.
    """
    word = attrs.get(ATTR_SEVERITY_TEXT)
    if type(word) is not str:
        word = severity_word(record.severity) if record.severity else ""
    parts = [
        _times(record),
        b"\x10%b" % varint(record.severity) if record.severity > 0 else b"",
        name(b"\x1a", word),
        _LOG_ATTRS.write(attrs, _LOG_ASIDE),
        _LOG_ATTRS.write_step(record.step, record.axis),
        delimited(b"\x4a", record.trace_id) if record.trace_id else b"",
        delimited(b"\x52", record.span_id) if record.span_id else b"",
    ]
    if type(dropped := attrs.get(ATTR_DROPPED)) is int:
        parts.append(b"\x38" + varint(dropped & _UINT32))
    if record.flags:
        parts.append(_LOG_FLAGS(b"\x45", record.flags & _UINT32))
    body: Any = None
    if isinstance(record, Alert):
        body = record.message or None
        parts += [
            name(b"\x62", otlp_names.EVENT_ALERT),
            _LOG_ATTRS.write({otlp_names.ATTR_ALERT: record.name}),
        ]
    else:
        body = record.body
        if isinstance(record, Event):
            parts.append(name(b"\x62", record.name))
    if body is not None:
        parts.append(delimited(b"\x2a", write_value(body)))
    return b"".join(parts)


def _times(record: Log | Event | Alert) -> bytes:
    """Write the time and the observed time; where only the latter was given, the former stays unset."""
    time = record.time & MASK
    if record.observed == record.time:
        return _TIME(b"\x59", time)
    return _TIMES(b"\x09", time, b"\x59", record.observed & MASK or time)
