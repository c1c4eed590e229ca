"""Records of one writer as OTLP requests, written without a protobuf library."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.wire.otlp.encode.metric_points import Temporality, write_metrics
from stepscope.wire.otlp.encode.scope_messages import resource_of, write_resource, write_scope
from stepscope.wire.otlp.encode.span_log_messages import write_log, write_span
from stepscope.wire.otlp.names import SIGNALS, Signal
from stepscope.wire.otlp.protobuf_writing import delimited

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
