"""Sums and histograms turned to the temporality a destination wants."""

from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from stepscope.model.records import Instrument, Metric, Value
from stepscope.model.writer import Writer
from stepscope.wire.otlp.encode.buckets import add, subtract
from stepscope.wire.otlp.names import ATTR_EXEMPLARS

_pack = msgspec.msgpack.Encoder(order="sorted").encode


class _Series(NamedTuple):
    values: dict[str, Value]
    start: int
    time: int


class Temporality:
    """Converts the series that pass through it; what it learnt counts only once it is committed.

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
        """Forget what was converted since the last commit."""
        self._fresh.clear()

    def commit(self) -> None:
        """Keep what was converted: the destination has it."""
        for key, series in self._fresh.items():
            self._known.pop(key, None)
            self._known[key] = series
        self._fresh.clear()
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def convert(self, writer: Writer, record: Metric) -> Metric | None:
        """Turn one record; None when it is the first of a series that cannot be told apart from its past."""
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
