"""Metric records to protobuf: numbers, distributions, and the metrics that hold them."""

from collections.abc import Iterable
from struct import Struct

from stepscope.model.records import Attrs, Instrument, Metric
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.encode.distributions import write_distribution
from stepscope.wire.otlp.encode.exemplars import write_exemplars
from stepscope.wire.otlp.encode.scopes import write_scope
from stepscope.wire.otlp.fields import MASK, delimited, text, varint

_TIME = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack
_INT = Struct("<cq").pack
_INT64 = 2**63
_ATTRS = Pairs(b"\x3a")
_ASIDE = (names.ATTR_EXEMPLARS,)

Family = tuple[str, bytes, str, str, bool, bool]
"""What a metric's points share beside its name: type, scope, unit, description, cumulative, monotonic."""

Families = dict[Family, dict[str, list[bytes]]]

_STEP_METRIC = Instrument(cumulative=False)
"""A distribution logged at a step tells of that step alone."""

_STEP_FAMILY: Family = ("gauge", b"", "", "", False, False)

_DATA_TAGS = {
    "gauge": b"\x2a",
    "sum": b"\x3a",
    "histogram": b"\x4a",
    "exponential_histogram": b"\x52",
    "summary": b"\x5a",
}


def write_metrics(records: Iterable[Metric], steps: bool) -> dict[bytes, list[bytes]]:
    """Write Metric messages by scope, one for each name and family, its points in the order they came."""
    families: Families = {}
    for record in records:
        _collect(record, steps, families)
    scopes: dict[bytes, list[bytes]] = {}
    for family, metrics in families.items():
        written = scopes.setdefault(family[1], [])
        written += [_metric(name, family, points) for name, points in metrics.items()]
    return scopes


def _collect(record: Metric, steps: bool, families: Families) -> None:
    """Add the points of a record to their families; its numbers share all bytes but the value's nine."""
    instrument = record.instrument or _STEP_METRIC
    scope, attrs = write_scope(instrument.scope, record.attrs)
    numbers: dict[str, list[bytes]] | None = None
    for key, value in record.points():
        if isinstance(value, (int, float)):
            if numbers is None:
                numbers = families.setdefault(_number_family(instrument, scope), {})
                head, tail = _around(record, instrument, attrs, steps)
            points = numbers.get(key)
            if points is None:
                points = numbers[key] = []
            points.append(head + _number(value) + tail)
        else:
            kind, point = write_distribution(record, value, attrs, instrument.start, steps)
            family = _family(kind, instrument, scope)
            families.setdefault(family, {}).setdefault(key, []).append(point)


def _number(value: int | float) -> bytes:
    if type(value) is float:
        return _DOUBLE(b"\x21", value)
    if -_INT64 <= value < _INT64:
        return _INT(b"\x31", int(value))
    return _DOUBLE(b"\x21", float(value))


def _around(record: Metric, instrument: Instrument, attrs: Attrs, steps: bool) -> tuple[bytes, bytes]:
    """Write what stands before and behind the value of a NumberDataPoint."""
    tail = _ATTRS.write_step(record.step, record.axis) if steps else b""
    if attrs:
        tail += _ATTRS.write(attrs, _ASIDE) + write_exemplars(b"\x2a", attrs)
    times = _TIME(b"\x19", record.time & MASK)
    if instrument.start:
        times += _TIME(b"\x11", instrument.start & MASK)
    return b"\x0a%b%b" % (varint(len(times) + 9 + len(tail)), times), tail


def _number_family(instrument: Instrument, scope: bytes) -> Family:
    if instrument is _STEP_METRIC and not scope:
        return _STEP_FAMILY
    if instrument.type == "sum":
        return _family("sum", instrument, scope)
    return "gauge", scope, instrument.unit, instrument.description, False, False


def _family(kind: str, instrument: Instrument, scope: bytes) -> Family:
    return (
        kind, scope, instrument.unit, instrument.description, instrument.cumulative,
        instrument.monotonic,
    )  # fmt: skip


def _metric(name: str, family: Family, points: list[bytes]) -> bytes:
    kind, _, unit, description, cumulative, monotonic = family
    data = b"".join(points)
    if kind not in ("gauge", "summary"):
        data += b"\x10\x02" if cumulative else b"\x10\x01"
    if kind == "sum" and monotonic:
        data += b"\x18\x01"
    described = text(b"\x0a", name) + text(b"\x12", description) + text(b"\x1a", unit)
    return described + delimited(_DATA_TAGS[kind], data)
