"""OTLP/JSON requests, read into raw tuples; a large one as several small ones."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from stepscope.model.names import (
    ATTR_DROPPED,
    ATTR_DROPPED_EVENTS,
    ATTR_DROPPED_LINKS,
    ATTR_FLAGS,
    ATTR_RESOURCE_DROPPED,
    ATTR_RESOURCE_SCHEMA,
    ATTR_TRACE_STATE,
)
from stepscope.model.records import Attrs, Link, SpanEvent
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.decode.json_values import (
    MALFORMED,
    any_value,
    as_count,
    as_flags,
    as_id,
    as_int,
    as_list,
    as_object,
    as_text,
    attributes,
    read_each,
    read_metric,
)
from stepscope.wire.otlp.decode.origin import (
    BAD_LINK,
    LATEST,
    Item,
    RawLog,
    RawMetric,
    RawResource,
    RawSpan,
    Scope,
    is_id,
    note_dropped,
    scope_of,
)
from stepscope.wire.otlp.decode.request_limits import Counts
from stepscope.wire.otlp.replies import BadRequest, Rejections

_SNAKE = re.compile("_([a-z])")
_LEVELS = 16
PART_BYTES = 128 * 1024
_BARE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|NaN|-?Infinity', re.DOTALL)
"""A text, to the end of the body where it is not closed: each byte is read once."""
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|u\w{4}|.)", re.DOTALL)
_decode = msgspec.json.Decoder().decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def parse(data: bytes) -> Any:
    """Parse JSON; bare NaN and Infinity and half surrogate pairs, as Python's json writes them, are tolerated.

    So is snake_case.
    """
    try:
        document = _load(data)
        return _camel(document) if _is_snake(document, _LEVELS) else document
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _load(data: bytes) -> Any:
    try:
        return load_in_parts(data)
    except ValueError:
        if len(data) > PART_BYTES:
            return load_in_parts(_BARE.sub(_quoted, data))
        raise


def load_in_parts(data: bytes | msgspec.Raw, most: int = PART_BYTES) -> Any:
    """Parse JSON in short calls: parsing 10 MB in one call holds Python's lock for a third of a second.

    More than `most` bytes are split first, which costs a tenth of parsing them.
    """
    size = memoryview(data).nbytes
    first = bytes(memoryview(data)[:64]).lstrip()[:1]
    if size > most and first == b"{":
        return _load_fields(_fields(data), size, most)
    if size > most and first == b"[":
        return _load_elements(_elements(data), size, most)
    try:
        return _decode(data)
    except ValueError:
        return _written(json.loads(bytes(data)))


_FEW = 64
"""Fields of an object that are parsed one by one."""


def _load_fields(fields: dict[str, msgspec.Raw], size: int, most: int) -> dict[str, Any]:
    if len(fields) <= _FEW:
        return {key: load_in_parts(part, most) for key, part in fields.items()}
    names, parts = list(fields), list(fields.values())
    fields.clear()
    return dict(zip(names, _load_elements(parts, size, most), strict=True))


_TAKEN = [msgspec.Raw()]


def _load_elements(parts: list[msgspec.Raw], size: int, most: int) -> list[Any]:
    return list(iter_elements(parts, size, most))


def iter_elements(parts: list[msgspec.Raw], size: int, most: int = PART_BYTES) -> Iterator[Any]:
    """Parse the elements of an array, many small ones at a time; `parts` is emptied."""
    together = max(most * len(parts) // size, 1)
    for start in range(0, len(parts), together):
        group = parts[start : start + together]
        parts[start : start + together] = _TAKEN * len(
            group
        )  # frees them: millions of parts take as much as the result
        joined = b"[" + b",".join(group) + b"]"
        if len(joined) > 4 * most:  # some are much larger than others
            yield from (load_in_parts(part, most) for part in group)
        else:
            yield from load_in_parts(joined, len(joined))


def _quoted(found: re.Match[bytes]) -> bytes:
    """Quote bare NaN and Infinity, and replace lone surrogates in texts by U+FFFD."""
    word = found[0]
    if word[:1] != b'"':
        return b'"' + word + b'"'
    return _ESCAPE.sub(_paired, word) if b"\\u" in word else word


def _paired(found: re.Match[bytes]) -> bytes:
    word = found[0]
    is_half = len(word) == 6 and word[2:3] in b"dD" and word[3:4] in b"89abcdefABCDEF"
    return rb"\ufffd" if is_half else word


def _written(node: Any) -> Any:
    """Replace lone surrogates, which json.loads accepts but which cannot be encoded, by U+FFFD."""
    if type(node) is str:
        return node if node.isascii() else node.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(node) is list:
        return [_written(inner) for inner in node]
    if type(node) is dict:
        return {_written(key): _written(inner) for key, inner in node.items()}
    return node


def _is_snake(node: Any, levels: int) -> bool:
    """Look for snake_case in the first element of each array: cheap, and a client is consistent."""
    if levels == 0:
        return False
    if type(node) is list:
        return bool(node) and _is_snake(node[0], levels - 1)
    if type(node) is not dict:
        return False
    return any("_" in key for key in node) or any(_is_snake(inner, levels - 1) for inner in node.values())


def _camel(node: Any) -> Any:
    if type(node) is list:
        return [_camel(inner) for inner in node]
    if type(node) is dict:
        return {_SNAKE.sub(_upper, key): _camel(inner) for key, inner in node.items()}
    return node


def _upper(match: re.Match[str]) -> str:
    return match[1].upper()


def traces(data: bytes, refused: Rejections) -> Iterator[RawResource[RawSpan]]:
    """Read an ExportTraceServiceRequest."""

    def read(span: Any) -> RawSpan:
        return _span(span, refused)

    return _resources("traces", data, "Spans", lambda scope: read_each(scope.get("spans"), read, refused), refused)


def metrics(data: bytes, refused: Rejections) -> Iterator[RawResource[RawMetric]]:
    """Read an ExportMetricsServiceRequest."""

    def read(metric: Any) -> RawMetric:
        return read_metric(metric, refused)

    return _resources("metrics", data, "Metrics", lambda scope: read_each(scope.get("metrics"), read, refused), refused)


def logs(data: bytes, refused: Rejections) -> Iterator[RawResource[RawLog]]:
    """Read an ExportLogsServiceRequest."""
    return _resources("logs", data, "Logs", lambda scope: read_each(scope.get("logRecords"), _log, refused), refused)


def _resources(
    signal: otlp_names.Signal, data: bytes, noun: str, items: Callable[[Any], Iterable[Item]], refused: Rejections
) -> Iterator[RawResource[Item]]:
    """Iterate over resources and scopes; malformed ones make the whole request malformed."""
    document = parse(data)
    _bound(signal, document)
    try:
        for part in as_list(as_object(document).get(f"resource{noun}")):
            yield (
                _resource(part),
                [(_scope(scope, refused), items(scope)) for scope in as_list(part.get(f"scope{noun}"))],
            )
    except MALFORMED as error:
        raise BadRequest(f"the body is not an export request for {noun.lower()}: {error}") from None


def _resource(part: Any) -> Attrs:
    resource = as_object(part.get("resource"))
    attrs = attributes(resource.get("attributes"))
    if schema_url := as_text(part.get("schemaUrl")):
        attrs[ATTR_RESOURCE_SCHEMA] = schema_url
    note_dropped(attrs, (ATTR_RESOURCE_DROPPED, as_count(resource.get("droppedAttributesCount"))))
    return attrs


def _scope(part: Any, refused: Rejections) -> Scope:
    scope = as_object(part.get("scope"))
    name, version = as_text(scope.get("name")), as_text(scope.get("version"))
    attrs, dropped = attributes(scope.get("attributes")), as_count(scope.get("droppedAttributesCount"))
    return scope_of(name, version, as_text(part.get("schemaUrl")), attrs, dropped, refused)


def _span(span: Any, refused: Rejections) -> RawSpan:
    get = span.get
    attrs = attributes(get("attributes"))
    if state := get("traceState"):
        attrs[ATTR_TRACE_STATE] = as_text(state)
    for field, name in _DROPPED:
        if field in span and (dropped := as_count(span[field])):
            attrs[name] = dropped
    status = get("status") or {}
    return (
        as_id(get("traceId")), as_id(get("spanId")), as_id(get("parentSpanId")),
        as_text(get("name")), as_int(get("kind")),
        as_int(get("startTimeUnixNano")), as_int(get("endTimeUnixNano")), attrs,
        tuple(map(_event, as_list(get("events")))), _links(as_list(get("links")), refused),
        as_int(status.get("code")), as_text(status.get("message")), as_flags(get("flags")),
    )  # fmt: skip


_DROPPED = (
    ("droppedAttributesCount", ATTR_DROPPED),
    ("droppedEventsCount", ATTR_DROPPED_EVENTS),
    ("droppedLinksCount", ATTR_DROPPED_LINKS),
)


def _event(event: Any) -> SpanEvent:
    attrs = attributes(event.get("attributes"))
    note_dropped(attrs, (ATTR_DROPPED, as_count(event.get("droppedAttributesCount"))))
    return SpanEvent(min(as_count(event.get("timeUnixNano")), LATEST), as_text(event.get("name")), attrs)


def _link(link: Any) -> Link:
    attrs = attributes(link.get("attributes"))
    if state := as_text(link.get("traceState")):
        attrs[ATTR_TRACE_STATE] = state
    dropped, flags = as_count(link.get("droppedAttributesCount")), as_flags(link.get("flags"))
    note_dropped(attrs, (ATTR_DROPPED, dropped), (ATTR_FLAGS, flags))
    return Link(as_id(link.get("traceId")), as_id(link.get("spanId")), attrs)


def _links(links: list[Any], refused: Rejections) -> tuple[Link, ...]:
    good = tuple(link for link in map(_link, links) if is_id(link.trace_id, 16) and is_id(link.span_id, 8))
    if len(good) < len(links):
        refused.warn(BAD_LINK, count=len(links) - len(good))
    return good


def _log(record: Any) -> RawLog:
    get = record.get
    attrs = attributes(get("attributes"))
    if dropped := as_count(get("droppedAttributesCount")):
        attrs[ATTR_DROPPED] = dropped
    return (
        as_int(get("timeUnixNano")), as_int(get("observedTimeUnixNano")),
        as_int(get("severityNumber")), as_text(get("severityText")), as_text(get("eventName")),
        any_value(get("body")), attrs, as_id(get("traceId")), as_id(get("spanId")), as_flags(get("flags")),
    )  # fmt: skip


_encode = msgspec.json.Encoder().encode


def split_spans(data: bytes, most: int) -> Iterator[bytes]:
    """Split a request of spans into requests of at most `most` spans each; one that cannot be split comes back whole.

    Resource and scope are repeated in each part.
    """
    places = _places(data)
    if places is None:
        yield data
        return
    for resource, scope, spans in places:
        for start in range(0, len(spans), most):
            inner = _with(scope, b"spans", b",".join(spans[start : start + most]))
            yield b'{"resourceSpans":[' + _with(resource, b"scopeSpans", inner) + b"]}"


_Fields = dict[str, msgspec.Raw]
_Place = tuple[_Fields, _Fields, list[msgspec.Raw]]


def _places(data: bytes) -> list[_Place] | None:
    """All scopes of a request with their spans; None when it is not as it should be, and nothing of it is kept."""
    try:
        parts = _elements(_fields(data)["resourceSpans"])
        return [each for part in parts for each in _scopes(_fields(part))]
    except (ValueError, KeyError, RecursionError):
        return None


def _scopes(resource: _Fields) -> Iterator[_Place]:
    """Each scope of a resource with its spans, which are taken out of the fields."""
    for part in _elements(resource.pop("scopeSpans")):
        scope = _fields(part)
        yield resource, scope, _elements(scope.pop("spans"))


def _with(fields: _Fields, name: bytes, elements: bytes) -> bytes:
    """Write an object with its fields and one array more."""
    others = _encode(fields)[1:-1]
    return b"{" + others + (b"," if others else b"") + b'"' + name + b'":[' + elements + b"]}"


_LISTS: dict[otlp_names.Signal, tuple[str, str, str]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_DATA_NAMES = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")


def _bound(signal: otlp_names.Signal, document: Any) -> None:
    """Reject a document with too many messages; the reader reports a wrong shape."""
    counts = Counts()
    for kind, count in _in_json(signal, document):
        counts.add(kind, count)


def _in_json(signal: otlp_names.Signal, document: Any) -> Iterator[tuple[str, int]]:
    resources, scopes, items = _LISTS[signal]
    found = _list(document, resources)
    yield "group", len(found)
    for resource in found:
        inner = _list(resource, scopes)
        yield "group", len(inner)
        for scope in inner:
            yield from _items_in_json(signal, _list(scope, items))


def _items_in_json(signal: otlp_names.Signal, items: list[Any]) -> Iterable[tuple[str, int]]:
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
