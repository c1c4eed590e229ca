"""Limits on the content of a request, checked before it is parsed: empty messages grow thirtyfold in memory."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from stepscope.wire.otlp.names import Signal
from stepscope.wire.otlp.replies import BadRequest

MAX_GROUPS = 20_000
"""Resources and scopes of one request; each costs as much time as ten items."""
MOST = 500_000
"""Resources, scopes, items and data points of one request; our own encoder makes a tenth of it at most."""
MAX_ATTRIBUTES = 1_000_000
"""Attributes of one request, those of events, links and exemplars and the values inside others included."""
MAX_VALUES = 2_500_000
"""Values of a JSON document, in whatever place."""

_SMALLEST = 2
"""The fewest bytes of a message, so that a small body cannot hold too many."""
_DEEPEST = 100
"""The deepest nesting of messages; protobuf's parser refuses more."""

_LAST_TAG = 32 << 3
"""The highest field number of OTLP; fields beyond are skipped, as many as there may be items."""
_FEW_NUMBERS = 1000
"""Numbers in one message that are not counted: no message of ours has as many, unless bounds are not packed."""
_NUMBER = 11
"""The most bytes of a numeric value."""

_LISTS: dict[Signal, tuple[str, str, str]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_DATA_NAMES = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


class _Shape(NamedTuple):
    """A message: what it counts as, and those of its fields that are messages, by number."""

    kind: str
    fields: "dict[int, _Shape]"


_VALUE = _Shape("", {})
_PAIR = _Shape("attribute", {2: _VALUE})
_VALUE.fields.update({5: _Shape("", {1: _Shape("attribute", _VALUE.fields)}), 6: _Shape("", {1: _PAIR})})
_ITEM = _Shape("item", {})
_EXEMPLAR = _Shape("item", {7: _PAIR})
_POINTS = {
    5: _Shape("", {1: _Shape("item", {7: _PAIR, 5: _EXEMPLAR})}),
    7: _Shape("", {1: _Shape("item", {7: _PAIR, 5: _EXEMPLAR})}),
    9: _Shape("", {1: _Shape("item", {9: _PAIR, 8: _EXEMPLAR})}),
    10: _Shape("", {1: _Shape("item", {1: _PAIR, 11: _EXEMPLAR})}),
    11: _Shape("", {1: _Shape("item", {7: _PAIR, 6: _ITEM})}),
    12: _PAIR,
}
_ITEMS: dict[Signal, _Shape] = {
    "traces": _Shape("item", {9: _PAIR, 11: _Shape("item", {3: _PAIR}), 13: _Shape("item", {4: _PAIR})}),
    "metrics": _Shape("item", _POINTS),
    "logs": _Shape("item", {5: _VALUE, 6: _PAIR}),
}


def _request(item: _Shape | None) -> _Shape:
    """A request of items; without them, of resources and scopes alone."""
    scope: dict[int, _Shape] = {1: _Shape("", {3: _PAIR}), 2: item} if item is not None else {}
    resource = {1: _Shape("", {1: _PAIR, 3: _ITEM})} if item is not None else {}
    return _Shape("", {1: _Shape("group", {**resource, 2: _Shape("group", scope)})})


_GROUPS = _request(None)
_BARE = {
    signal: _request(_Shape("item", {number: _Shape("", {1: _ITEM}) for number in (5, 7, 9, 10, 11)}))
    if signal == "metrics"
    else _request(_ITEM)
    for signal in _ITEMS
}
"""Items without their content, which is faster to scan."""
_ALL = {signal: _request(item) for signal, item in _ITEMS.items()}


class _Counts:
    """What was found so far; BadRequest when it is too much."""

    def __init__(self) -> None:
        self._left = {"group": MAX_GROUPS, "item": MOST, "attribute": MAX_ATTRIBUTES}

    def add(self, kind: str, count: int = 1) -> None:
        left = self._left[kind] = self._left[kind] - count
        if left < 0:
            most = {"group": MAX_GROUPS, "item": MOST, "attribute": MAX_ATTRIBUTES}[kind]
            words = {"group": "resources and scopes", "item": "items", "attribute": "attributes"}[kind]
            raise BadRequest(f"more than {most} {words} in one request: send smaller batches")


def bound_protobuf(signal: Signal, data: bytes) -> None:
    """Reject a body with too many messages; the parser reports one that cannot be scanned."""
    if len(data) <= MAX_GROUPS * _SMALLEST:
        return
    shape = _GROUPS
    if len(data) > MOST * _SMALLEST:
        shape = _ALL[signal] if len(data) > 2 * MAX_ATTRIBUTES * _SMALLEST else _BARE[signal]
    try:
        _count(data, 0, len(data), shape.fields, _Counts(), _DEEPEST)
    except BadRequest:
        raise
    except (ValueError, IndexError):
        return


def _count(data: bytes, at: int, end: int, fields: dict[int, _Shape], counts: _Counts, depth: int) -> None:
    """Count the messages between two offsets; ValueError or IndexError for invalid protobuf."""
    if depth == 0:
        return
    numbers = 0
    while at < end:
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        wire = tag & 7
        if wire == 2:
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            inner = fields.get(tag >> 3)
            if inner is not None:
                if inner.kind:
                    counts.add(inner.kind)
                if size and inner.fields and not (inner is _PAIR and _is_plain(data, at, at + size)):
                    _count(data, at, min(at + size, end), inner.fields, counts, depth - 1)
            elif tag > _LAST_TAG:
                counts.add("item")
            at += size
        elif wire == 0:
            while data[at] > 127:
                at += 1
            at += 1
            numbers += 1
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            numbers += 1
        else:
            raise ValueError("unknown protobuf wire type")
        if numbers > _FEW_NUMBERS:
            counts.add("item", numbers)
            numbers = 0


def _is_plain(data: bytes, at: int, end: int) -> bool:
    """Return whether a pair is one key with one text or number, as most are; a fast check."""
    value = at + 2 + data[at + 1]
    if data[at] != 0x0A or data[at + 1] > 127 or value + 2 > end or data[value] != 0x12:
        return False
    size = data[value + 1]
    if size > 127 or value + 2 + size != end:
        return False
    return size <= _NUMBER or (data[value + 2] == 0x0A and data[value + 3] + 2 == size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = data[at]
        number |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number is too long")
    return number, at + 1


def bound_values(data: bytes, most: int = MAX_VALUES) -> None:
    """Reject JSON with too many values before it is parsed; commas and braces inside texts count, too."""
    if len(data) > most and data.count(b",") + data.count(b"{") + data.count(b"[") > most:
        raise BadRequest(f"more than {most} values in one document: send smaller requests")


def bound_json(signal: Signal, document: Any) -> None:
    """Reject a document with too many messages; the reader reports a wrong shape."""
    counts = _Counts()
    for kind, count in _in_json(signal, document):
        counts.add(kind, count)


def _in_json(signal: Signal, document: Any) -> Iterator[tuple[str, int]]:
    resources, scopes, items = _LISTS[signal]
    found = _list(document, resources)
    yield "group", len(found)
    for resource in found:
        inner = _list(resource, scopes)
        yield "group", len(inner)
        for scope in inner:
            yield from _items_in_json(signal, _list(scope, items))


def _items_in_json(signal: Signal, items: list[Any]) -> Iterable[tuple[str, int]]:
    yield "item", len(items)
    if signal == "metrics":
        for metric in items:
            for kind in _DATA_NAMES:
                yield "item", len(_list(_get(metric, kind), "dataPoints"))


def _get(node: Any, field: str) -> Any:
    return node.get(field) if type(node) is dict else None


def _list(node: Any, field: str) -> list[Any]:
    found = _get(node, field)
    return found if type(found) is list else []
