"""Values and metric points of OTLP/JSON; malformed ones raise one of `MALFORMED`."""

import base64
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Summary, Value
from stepscope.wire.otlp.decode.origin import MAX_PAIRS, NO_ID, Item, RawMetric, RawPoint
from stepscope.wire.otlp.replies import Rejections

MALFORMED = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
"""The exceptions that reading a malformed value raises."""

DEPTH = 32
"""Attributes nested deeper are malformed; protobuf's own limit is about 48."""

_INT64 = 2**63
_BASE64 = str.maketrans("-_", "+/")


def as_int(value: Any) -> int:
    """Read a 64-bit integer, signed or not: a number, or a string as the specification requires."""
    if type(value) is str:
        value = int(value)
    elif type(value) is float:
        if not value.is_integer():
            raise ValueError("not a whole number")
        value = int(value)
    elif value is None:
        return 0
    elif type(value) is not int:
        raise TypeError("not a number")
    if not -_INT64 <= value < 2 * _INT64:
        raise ValueError("does not fit into 64 bits")
    return int(value)


def as_count(value: Any) -> int:
    """Read an unsigned 64-bit integer."""
    number = as_int(value)
    if number < 0:
        raise ValueError("a count must not be negative")
    return number


def as_flags(value: Any) -> int:
    """Read an unsigned 32-bit integer."""
    number = as_int(value)
    if not 0 <= number < 2**32:
        raise ValueError("flags do not fit into 32 bits")
    return number


def as_float(value: Any) -> float:
    """Read a double: a number, or a string, which is how NaN and the infinities come."""
    if type(value) in (int, float, str):
        return float(value)
    raise TypeError("not a number")


def as_float_or_none(value: Any) -> float | None:
    """Read a double that may be unset."""
    return None if value is None else as_float(value)


def as_text(value: Any) -> str:
    """Read a string that may be unset."""
    if value is None:
        return ""
    if type(value) is not str:
        raise TypeError("not a string")
    return value


def as_id(value: Any) -> bytes:
    """Read an id: hex in either case, empty when it is unset, `NO_ID` when it is anything else."""
    try:
        return bytes.fromhex(value) if value else b""
    except MALFORMED:
        return NO_ID


def as_list(value: Any) -> list[Any]:
    """Read a repeated field that may be unset."""
    if value is None:
        return []
    if type(value) is not list:
        raise TypeError("not an array")
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Read a message that may be unset."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise TypeError("not an object")
    return value


def read_each(nodes: Any, read: Callable[[Any], Item], refused: Rejections, name: str = "") -> Iterator[Item]:
    """Read the elements of an array lazily; a malformed one is rejected alone."""
    return _read_each(as_list(nodes), read, refused, name)


def _read_each(nodes: list[Any], read: Callable[[Any], Item], refused: Rejections, name: str) -> Iterator[Item]:
    for node in nodes:
        try:
            item = read(node)
        except MALFORMED as error:
            refused.add("it is malformed", f"{name} {error}".strip())
            continue
        yield item


def attributes(pairs: Any, depth: int = DEPTH) -> Attrs:
    """Read key-values; one without a key is left out, one without a value is None."""
    attrs: Attrs = {}
    for pair in as_list(pairs)[:MAX_PAIRS]:
        if key := as_text(pair.get("key")):
            value = pair.get("value")
            text = value.get("stringValue") if value else None
            attrs[key] = text if type(text) is str else any_value(value, depth)
    return attrs


def any_value(node: Any, depth: int = DEPTH) -> Any:
    """Read an AnyValue of any kind; None when nothing known is set."""
    for kind, value in as_object(node).items():
        if value is None:
            continue
        if kind == "stringValue":
            return as_text(value)
        if kind == "intValue":
            return as_int64(value)
        if kind == "doubleValue":
            return as_float(value)
        if kind == "boolValue":
            return _as_bool(value)
        if kind == "bytesValue":
            return _as_bytes(value)
        if kind in ("arrayValue", "kvlistValue"):
            # A bare array in place of {"values": [...]} is wrong, but in OpenTelemetry's own examples.
            values = value if type(value) is list else as_object(value).get("values")
            return _nested(kind, values, depth - 1)
    return None


def _nested(kind: str, values: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError("attributes nested too deep")
    if kind == "kvlistValue":
        return attributes(values, depth)
    return [any_value(inner, depth) for inner in as_list(values)]


def as_int64(value: Any) -> int:
    """Read a signed 64-bit integer."""
    number = as_int(value)
    if number >= _INT64:
        raise ValueError("does not fit into 64 bits")
    return number


def _as_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("not a bool")
    return value


def _as_bytes(value: Any) -> bytes:
    text = as_text(value).translate(_BASE64).rstrip("=")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def read_metric(metric: Any, refused: Rejections) -> RawMetric:
    """Read a metric; its points are read lazily and rejected one by one."""
    name = as_text(metric.get("name"))
    unit, description = as_text(metric.get("unit")), as_text(metric.get("description"))
    for field, (kind, value) in _DATA.items():
        if data := metric.get(field):
            temporality = as_int(data.get("aggregationTemporality"))
            monotonic = data.get("isMonotonic") is True
            points = read_each(data.get("dataPoints"), partial(_point, value), refused, name)
            return name, kind, unit, description, temporality, monotonic, points
    return name, "gauge", unit, description, 0, False, ()


def _point(value: Callable[[Any], Value | None], point: Any) -> RawPoint:
    get = point.get
    attrs = attributes(get("attributes"))
    if exemplars := get("exemplars"):
        attrs[ATTR_EXEMPLARS] = [_exemplar(exemplar) for exemplar in as_list(exemplars)]
    times = as_int(get("timeUnixNano")), as_int(get("startTimeUnixNano"))
    return *times, value(point), attrs, as_int(get("flags"))


def _exemplar(exemplar: Any) -> Attrs:
    return {
        "value": _number(exemplar),
        "time": as_count(exemplar.get("timeUnixNano")),
        "trace_id": _hex(exemplar.get("traceId")),
        "span_id": _hex(exemplar.get("spanId")),
        "attrs": attributes(exemplar.get("filteredAttributes")),
    }


def _hex(value: Any) -> str:
    found = as_id(value)
    return "" if found == NO_ID else found.hex()


def _number(point: Any) -> int | float | None:
    value = point.get("asDouble")
    if value is not None:
        return as_float(value)
    value = point.get("asInt")
    return None if value is None else as_int64(value)


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(map(as_count, as_list(values)))


def _histogram(point: Any) -> Histogram:
    get = point.get
    return Histogram(
        as_count(get("count")), *_spread(point),
        tuple(map(as_float, as_list(get("explicitBounds")))), _counts(get("bucketCounts")),
    )  # fmt: skip


def _spread(point: Any) -> tuple[float | None, float | None, float | None]:
    get = point.get
    return as_float_or_none(get("sum")), as_float_or_none(get("min")), as_float_or_none(get("max"))


def _exponential(point: Any) -> ExponentialHistogram:
    get = point.get
    positive, negative = as_object(get("positive")), as_object(get("negative"))
    return ExponentialHistogram(
        as_count(get("count")), *_spread(point),
        as_int(get("scale")), as_count(get("zeroCount")), _double(point, "zeroThreshold"),
        as_int(positive.get("offset")), _counts(positive.get("bucketCounts")),
        as_int(negative.get("offset")), _counts(negative.get("bucketCounts")),
    )  # fmt: skip


def _summary(point: Any) -> Summary:
    pairs = as_list(point.get("quantileValues"))
    quantiles = tuple((_double(pair, "quantile"), _double(pair, "value")) for pair in pairs)
    return Summary(as_count(point.get("count")), _double(point, "sum"), quantiles)


def _double(node: Any, field: str) -> float:
    value = node.get(field)
    return 0.0 if value is None else as_float(value)


_DATA: dict[str, tuple[str, Callable[[Any], Value | None]]] = {
    "gauge": ("gauge", _number),
    "sum": ("sum", _number),
    "histogram": ("histogram", _histogram),
    "exponentialHistogram": ("exponential_histogram", _exponential),
    "summary": ("summary", _summary),
}
