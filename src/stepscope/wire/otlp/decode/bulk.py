"""How many messages a request holds, counted before they are made: empty ones grow a hundredfold in memory."""

from collections.abc import Iterable, Iterator
from typing import Any

from stepscope.wire.otlp.fields import scan
from stepscope.wire.otlp.names import Signal
from stepscope.wire.otlp.refusals import BadRequest

MOST = 500_000
"""Resources, scopes, items and data points of one request; our own encoder makes a tenth of it at most."""

_HARMLESS = 2 * MOST
"""A message takes two bytes at least, so a smaller body can not hold too many."""

_LISTS: dict[Signal, tuple[str, str, str]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_DATA_NUMBERS = frozenset({5, 7, 9, 10, 11})
_DATA_NAMES = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


def bound_protobuf(signal: Signal, data: bytes) -> None:
    """Refuse a body of too many messages; one that can not be walked is left to the parser to judge."""
    if len(data) < _HARMLESS:
        return
    try:
        _bound(_in_protobuf(signal, data))
    except BadRequest:
        raise
    except ValueError:
        return


def bound_json(signal: Signal, document: Any) -> None:
    """Refuse a document of too many messages; what has the wrong shape is left to the reader to judge."""
    _bound(_in_json(signal, document))


def _bound(counts: Iterable[int]) -> None:
    total = 0
    for count in counts:
        total += count
        if total > MOST:
            raise BadRequest(f"more than {MOST} items in one request: send smaller batches")


def _in_protobuf(signal: Signal, data: bytes) -> Iterator[int]:
    for resource in _messages(data, 1):
        yield 1
        for scope in _messages(resource, 2):
            yield 1
            for item in _messages(scope, 2):
                yield 1
                if signal == "metrics":
                    yield from _points(item)


def _points(metric: bytes) -> Iterator[int]:
    for number, kind in scan(metric):
        if number in _DATA_NUMBERS and isinstance(kind, bytes):
            yield from (1 for _ in _messages(kind, 1))


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    return (value for field, value in scan(data) if field == number and isinstance(value, bytes))


def _in_json(signal: Signal, document: Any) -> Iterator[int]:
    resources, scopes, items = _LISTS[signal]
    for resource in _list(document, resources):
        yield 1
        for scope in _list(resource, scopes):
            found = _list(scope, items)
            yield 1 + len(found)
            if signal == "metrics":
                for metric in found:
                    yield from (len(_list(_get(metric, kind), "dataPoints")) for kind in _DATA_NAMES)


def _get(node: Any, field: str) -> Any:
    return node.get(field) if type(node) is dict else None


def _list(node: Any, field: str) -> list[Any]:
    found = _get(node, field)
    return found if type(found) is list else []
