"""Metric records as OTLP metrics, with cumulative or delta temporality."""

from collections.abc import Iterable
from struct import Struct
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.ports import Writer
from stepscope.model.records import Attrs, Instrument, Metric, Value
from stepscope.wire.otlp.encode.histogram_points import add, subtract, write_distribution, write_exemplars
from stepscope.wire.otlp.protobuf_writing import MASK, Pairs, delimited, text, varint, write_scope

_pack = msgspec.msgpack.Encoder(order="sorted").encode


class _Series(NamedTuple):
    values: dict[str, Value]
    start: int
    time: int


class Temporality:
    """Converts series between temporalities; its state is kept only after `commit`.

    A batch that is offered again after a failure is converted to the same again: `encode` rewinds first,
    and the sink commits when the destination has taken everything. The series used longest ago are forgotten
    beyond `most`, which the destination sees as a reset.
    """

    def __init__(self, wanted: Literal["cumulative", "delta"], most: int = 100_000) -> None:
        self.wanted = wanted
        self._most = most
        self._known: dict[bytes, _Series] = {}
        self._fresh: dict[bytes, _Series] = {}

    def rewind(self) -> None:
        """Discard the state since the last commit."""
        self._fresh.clear()

    def commit(self) -> None:
        """Keep the state: the destination has accepted the points."""
        for key, series in self._fresh.items():
            self._known.pop(key, None)
            self._known[key] = series
        self._fresh.clear()
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def convert(self, writer: Writer, record: Metric) -> Metric | None:
        """Convert one record; None for the first of a series, which has no predecessor."""
        instrument = record.instrument
        if instrument is None or instrument.type in ("gauge", "summary"):
            return record
        if instrument.cumulative == (self.wanted == "cumulative"):
            return record
        key = _key(writer, record, instrument)
        last = self._fresh.get(key) or self._known.get(key)
        if self.wanted == "cumulative":
            return self._accumulate(key, last, record, instrument)
        # OpenTelemetry keeps up-down counters cumulative even where deltas are preferred.
        if instrument.type == "sum" and not instrument.monotonic:
            return record
        return self._difference(key, last, record, instrument)

    def _accumulate(self, key: bytes, last: _Series | None, record: Metric, instrument: Instrument) -> Metric:
        values, start = record.values, instrument.start or record.time
        if last is not None:
            summed = {name: add(last.values[name], value) for name, value in values.items()}
            if (known := _all_known(summed)) is not None:
                values, start = known, last.start
        self._fresh[key] = _Series(values, start, record.time)
        return structs.replace(
            record, values=values, instrument=structs.replace(instrument, cumulative=True, start=start)
        )

    def _difference(self, key: bytes, last: _Series | None, record: Metric, instrument: Instrument) -> Metric | None:
        self._fresh[key] = _Series(record.values, instrument.start, record.time)
        values, start = record.values, instrument.start
        if last is not None and last.start == start:
            passed = {name: subtract(value, last.values[name]) for name, value in values.items()}
            if (known := _all_known(passed)) is not None:
                values, start = known, last.time
        elif not start:
            return None
        return structs.replace(
            record, values=values, instrument=structs.replace(instrument, cumulative=False, start=start)
        )


def _all_known(values: dict[str, Value | None]) -> dict[str, Value] | None:
    known = {name: value for name, value in values.items() if value is not None}
    return known if len(known) == len(values) else None


def _key(writer: Writer, record: Metric, instrument: Instrument) -> bytes:
    attrs = {name: value for name, value in record.attrs.items() if name != ATTR_EXEMPLARS}
    return _pack(
        (
            writer.id,
            record.category,
            sorted(record.values),
            instrument.type,
            instrument.unit,
            instrument.scope,
            attrs,
        )
    )


_TIME = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack
_INT = Struct("<cq").pack
_INT64 = 2**63
_ATTRS = Pairs(b"\x3a")
_ASIDE = (ATTR_EXEMPLARS,)

Family = tuple[str, bytes, str, str, bool, bool]
"""What a metric's points share beside its name: type, scope, unit, description, cumulative, monotonic."""

Families = dict[Family, dict[str, list[bytes]]]

_STEP_METRIC = Instrument(cumulative=False)
"""A distribution logged at a step is of that step only."""

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
    """Write the bytes before and after the value of a NumberDataPoint."""
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
