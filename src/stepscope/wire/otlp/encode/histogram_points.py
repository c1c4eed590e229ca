"""Histograms, exponential histograms and summaries as OTLP data points."""

from collections import Counter
from struct import Struct, pack
from typing import Any

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Metric, Summary, Value
from stepscope.wire.otlp.protobuf_writing import MASK, Pairs, delimited, varint, zigzag

_WIDEST = 20_000
"""Histograms further apart than this are not merged: the buckets between them would use up the memory."""


def add(earlier: Value, later: Value) -> Value | None:
    """Merge the counts of two intervals; None when their buckets differ."""
    if isinstance(earlier, (int, float)) and isinstance(later, (int, float)):
        return earlier + later
    if isinstance(earlier, Histogram) and isinstance(later, Histogram):
        if earlier.bounds != later.bounds or len(earlier.counts) != len(later.counts):
            return None
        counts = tuple(a + b for a, b in zip(earlier.counts, later.counts, strict=True))
        return Histogram(earlier.count + later.count, *_together(earlier, later), later.bounds, counts)
    if isinstance(earlier, ExponentialHistogram) and isinstance(later, ExponentialHistogram):
        return _add_exponential(earlier, later)
    return None


def subtract(later: Value, earlier: Value) -> Value | None:
    """Return the increase since an earlier histogram; None after a reset."""
    if isinstance(earlier, (int, float)) and isinstance(later, (int, float)):
        return None if later < earlier else later - earlier
    if isinstance(earlier, Histogram) and isinstance(later, Histogram):
        if earlier.bounds != later.bounds or len(earlier.counts) != len(later.counts):
            return None
        counts = tuple(a - b for a, b in zip(later.counts, earlier.counts, strict=True))
        if later.count < earlier.count or min(counts, default=0) < 0:
            return None
        return Histogram(later.count - earlier.count, _passed(later, earlier), None, None, later.bounds, counts)
    if isinstance(earlier, ExponentialHistogram) and isinstance(later, ExponentialHistogram):
        return _subtract_exponential(later, earlier)
    return None


_Any = Histogram | ExponentialHistogram


def _together(earlier: _Any, later: _Any) -> tuple[float | None, float | None, float | None]:
    """Sum, minimum and maximum of both; unknown where either is."""
    total = None if earlier.total is None or later.total is None else earlier.total + later.total
    low = None if earlier.low is None or later.low is None else min(earlier.low, later.low)
    high = None if earlier.high is None or later.high is None else max(earlier.high, later.high)
    return total, low, high


def _passed(later: _Any, earlier: _Any) -> float | None:
    return None if later.total is None or earlier.total is None else later.total - earlier.total


def _add_exponential(earlier: ExponentialHistogram, later: ExponentialHistogram) -> ExponentialHistogram | None:
    scale = min(earlier.scale, later.scale)
    positive = _indexed(earlier, scale, False) + _indexed(later, scale, False)
    negative = _indexed(earlier, scale, True) + _indexed(later, scale, True)
    if _width(positive) > _WIDEST or _width(negative) > _WIDEST:
        return None
    return ExponentialHistogram(
        earlier.count + later.count, *_together(earlier, later), scale, earlier.zeros + later.zeros,
        max(earlier.zero_threshold, later.zero_threshold), *_listed(positive), *_listed(negative),
    )  # fmt: skip


def _subtract_exponential(later: ExponentialHistogram, earlier: ExponentialHistogram) -> ExponentialHistogram | None:
    if later.scale > earlier.scale or later.count < earlier.count or later.zeros < earlier.zeros:
        return None
    positive, negative = _indexed(later, later.scale, False), _indexed(later, later.scale, True)
    positive.subtract(_indexed(earlier, later.scale, False))
    negative.subtract(_indexed(earlier, later.scale, True))
    if min(positive.values(), default=0) < 0 or min(negative.values(), default=0) < 0:
        return None
    return ExponentialHistogram(
        later.count - earlier.count, _passed(later, earlier), None, None, later.scale,
        later.zeros - earlier.zeros, later.zero_threshold, *_listed(positive), *_listed(negative),
    )  # fmt: skip


def _indexed(value: ExponentialHistogram, scale: int, negative: bool) -> Counter[int]:
    """Count by bucket index at a coarser scale, where 2**(difference) neighbours become one."""
    offset, counts = (value.negative_offset, value.negative) if negative else (value.positive_offset, value.positive)
    indexed: Counter[int] = Counter()
    for index, count in enumerate(counts, offset):
        if count:
            indexed[index >> (value.scale - scale)] += count
    return indexed


def _width(indexed: Counter[int]) -> int:
    return max(indexed) - min(indexed) if indexed else 0


def _listed(indexed: Counter[int]) -> tuple[int, tuple[int, ...]]:
    if not indexed:
        return 0, ()
    first, last = min(indexed), max(indexed)
    return first, tuple(indexed[index] for index in range(first, last + 1))


_EXEMPLAR_ATTRS = Pairs(b"\x3a")
_EXEMPLAR_FIXED = Struct("<cQ").pack
_EXEMPLAR_DOUBLE = Struct("<cd").pack


def write_exemplars(tag: bytes, attrs: Attrs) -> bytes:
    """Write the exemplars among a point's attributes; malformed ones are left out."""
    exemplars = attrs.get(ATTR_EXEMPLARS)
    if type(exemplars) is not list:
        return b""
    return b"".join([delimited(tag, _exemplar(exemplar)) for exemplar in exemplars if type(exemplar) is dict])


def _exemplar(exemplar: dict[str, Any]) -> bytes:
    value, time, attrs = exemplar.get("value"), exemplar.get("time"), exemplar.get("attrs")
    out = b""
    if type(time) is int:
        out += _EXEMPLAR_FIXED(b"\x11", time & MASK)
    if type(value) is float:
        out += _EXEMPLAR_DOUBLE(b"\x19", value)
    elif type(value) is int:
        out += _EXEMPLAR_FIXED(b"\x31", value & MASK)
    for tag, field in ((b"\x22", "span_id"), (b"\x2a", "trace_id")):
        if data := _from_hex(exemplar.get(field)):
            out += delimited(tag, data)
    return out + (_EXEMPLAR_ATTRS.write(attrs) if type(attrs) is dict else b"")


def _from_hex(value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        return b""


_FIXED = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack
_ASIDE = (ATTR_EXEMPLARS,)
_ATTRS = {"histogram": Pairs(b"\x4a"), "exponential_histogram": Pairs(b"\x0a"), "summary": Pairs(b"\x3a")}
_EXEMPLAR_TAGS = {"histogram": b"\x42", "exponential_histogram": b"\x5a"}


def write_distribution(
    record: Metric, value: Histogram | ExponentialHistogram | Summary, attrs: Attrs, start: int, steps: bool
) -> tuple[str, bytes]:
    """Write one data point of a metric, and return its type.

    `attrs` are those of the record that are not its scope's.
    """
    if isinstance(value, Histogram):
        kind, written = "histogram", _histogram(value)
    elif isinstance(value, ExponentialHistogram):
        kind, written = "exponential_histogram", _exponential(value)
    else:
        kind, written = "summary", _summary(value)
    pairs = _ATTRS[kind]
    parts = [
        _FIXED(b"\x19", record.time & MASK),
        _FIXED(b"\x11", start & MASK) if start else b"",
        written,
        pairs.write_step(record.step, record.axis) if steps else b"",
        pairs.write(attrs, _ASIDE),
    ]
    if kind in _EXEMPLAR_TAGS:
        parts.append(write_exemplars(_EXEMPLAR_TAGS[kind], attrs))
    return kind, delimited(b"\x0a", b"".join(parts))


def _optional(tag: bytes, value: float | None) -> bytes:
    return b"" if value is None else _DOUBLE(tag, value)


def _histogram(value: Histogram) -> bytes:
    counts, bounds = value.counts, value.bounds
    return b"".join(
        (
            _FIXED(b"\x21", value.count & MASK),
            _optional(b"\x29", value.total),
            delimited(b"\x32", pack(f"<{len(counts)}Q", *(count & MASK for count in counts))) if counts else b"",
            delimited(b"\x3a", pack(f"<{len(bounds)}d", *bounds)) if bounds else b"",
            _optional(b"\x59", value.low),
            _optional(b"\x61", value.high),
        )
    )


def _exponential(value: ExponentialHistogram) -> bytes:
    return b"".join(
        (
            _FIXED(b"\x21", value.count & MASK),
            _optional(b"\x29", value.total),
            b"\x30" + zigzag(value.scale),
            _FIXED(b"\x39", value.zeros & MASK),
            _buckets(b"\x42", value.positive_offset, value.positive),
            _buckets(b"\x4a", value.negative_offset, value.negative),
            _optional(b"\x61", value.low),
            _optional(b"\x69", value.high),
            _optional(b"\x71", value.zero_threshold or None),
        )
    )


def _buckets(tag: bytes, offset: int, counts: tuple[int, ...]) -> bytes:
    if not counts and not offset:
        return b""
    packed = b"".join(varint(count & MASK) for count in counts)
    return delimited(tag, b"\x08" + zigzag(offset) + delimited(b"\x12", packed))


def _summary(value: Summary) -> bytes:
    quantiles = b"".join(
        delimited(b"\x32", _DOUBLE(b"\x09", quantile) + _DOUBLE(b"\x11", at)) for quantile, at in value.quantiles
    )
    return _FIXED(b"\x21", value.count & MASK) + _DOUBLE(b"\x29", value.total) + quantiles
