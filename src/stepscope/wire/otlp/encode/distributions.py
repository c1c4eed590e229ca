"""Histograms, exponential histograms and summaries to protobuf."""

from struct import Struct, pack

from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Metric, Summary
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.encode.exemplars import write_exemplars
from stepscope.wire.otlp.fields import MASK, delimited, varint, zigzag

_FIXED = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack
_ASIDE = (names.ATTR_EXEMPLARS,)
_ATTRS = {"histogram": Pairs(b"\x4a"), "exponential_histogram": Pairs(b"\x0a"), "summary": Pairs(b"\x3a")}
_EXEMPLAR_TAGS = {"histogram": b"\x42", "exponential_histogram": b"\x5a"}


def write_distribution(
    record: Metric, value: Histogram | ExponentialHistogram | Summary, attrs: Attrs, start: int, steps: bool
) -> tuple[str, bytes]:
    """Write one point, ready to stand among the data points of its metric, and name its type.

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
