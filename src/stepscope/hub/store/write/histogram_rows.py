"""Histograms, exponential histograms and summaries as columns and back, and their exemplars."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, Lists, Numbers, ends_of, fixed, numbers, remainders
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.catalog import Catalog, Source, label
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Attrs, ExponentialHistogram, Histogram, Metric, Summary

Distribution = Histogram | ExponentialHistogram | Summary

HISTOGRAM, EXPONENTIAL, SUMMARY = range(3)
_TOTAL, _LOW, _HIGH = 1, 2, 4
"""Bits of `given`: which fields were not None."""
_LISTS = (("bounds", "Float64"), ("counts", "UInt64"), ("negative", "UInt64"))


class Distributions:
    """The distributions of a commit."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._rows: list[tuple[int, int, Metric, dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, source: Source, metric: Metric) -> None:
        """Add the distributions of a record; its plain numbers are not included."""
        labels = label(metric.attrs)
        for key, value in metric.values.items():
            if isinstance(value, (int, float)):
                continue
            (slot,) = self._catalog.slots(source, metric.category, (key,), metric.axis, labels, metric.instrument)
            series = self._catalog.slot_series[slot]
            self._rows.append((series, source.writer.attempt, metric, _columns(value)))

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `histograms`."""
        if not self._rows:
            return {}
        metrics = [metric for _, _, metric, _ in self._rows]
        rows = [row for _, _, _, row in self._rows]
        steps = [NO_STEP if metric.step is None else metric.step for metric in metrics]
        block: Block = {
            "series": numbers("UInt64", [series for series, _, _, _ in self._rows]),
            "step": numbers("Int64", steps),
            "time": numbers("Int64", [metric.time for metric in metrics]),
            "attempt": numbers("UInt16", [attempt for _, attempt, _, _ in self._rows]),
            "start": numbers("Int64", [metric.instrument.start if metric.instrument else 0 for metric in metrics]),
            "commit": numbers("UInt32", [commit] * len(rows)),
        }
        for name, kind in _NUMBERS.items():
            block[name] = numbers(kind, [row.get(name, 0) for row in rows])
        for name, kind in _LISTS:
            block[name] = _lists(kind, [row.get(name, ()) for row in rows])
        return {"histograms": block}


_NUMBERS = {
    "kind": "UInt8",
    "given": "UInt8",
    "count": "UInt64",
    "total": "Float64",
    "low": "Float64",
    "high": "Float64",
    "scale": "Int32",
    "zeros": "UInt64",
    "zero_threshold": "Float64",
    "positive_offset": "Int32",
    "negative_offset": "Int32",
}


def _lists(kind: str, values: Sequence[Sequence[float]]) -> Lists:
    flat = [value for each in values for value in each]
    return Lists(ends_of(map(len, values)), numbers(kind, flat))


def _columns(value: Distribution) -> dict[str, Any]:
    if isinstance(value, Summary):
        return {
            "kind": SUMMARY,
            "given": _TOTAL,
            "count": value.count,
            "total": value.total,
            "bounds": [item for pair in value.quantiles for item in pair],
        }
    parts = {"total": (_TOTAL, value.total), "low": (_LOW, value.low), "high": (_HIGH, value.high)}
    row: dict[str, Any] = {"count": value.count}
    row["given"] = sum(bit for bit, number in parts.values() if number is not None)
    row.update((name, number) for name, (_, number) in parts.items() if number is not None)
    if isinstance(value, Histogram):
        return {**row, "kind": HISTOGRAM, "bounds": value.bounds, "counts": value.counts}
    return {
        **row,
        "kind": EXPONENTIAL,
        "scale": value.scale,
        "zeros": value.zeros,
        "zero_threshold": value.zero_threshold,
        "positive_offset": value.positive_offset,
        "counts": value.positive,
        "negative_offset": value.negative_offset,
        "negative": value.negative,
    }


FIELDS = (*_NUMBERS, *(name for name, _ in _LISTS))
"""The columns `restore` needs."""


def restore(row: dict[str, Any]) -> Distribution:
    """Convert a row of `histograms` to the distribution it was made from."""
    total, low, high = (
        row[name] if row["given"] & bit else None for name, bit in (("total", _TOTAL), ("low", _LOW), ("high", _HIGH))
    )
    if row["kind"] == SUMMARY:
        pairs = tuple(zip(row["bounds"][::2], row["bounds"][1::2], strict=True))
        return Summary(row["count"], row["total"], pairs)
    if row["kind"] == HISTOGRAM:
        return Histogram(row["count"], total, low, high, tuple(row["bounds"]), tuple(row["counts"]))
    return ExponentialHistogram(
        row["count"],
        total,
        low,
        high,
        row["scale"],
        row["zeros"],
        row["zero_threshold"],
        row["positive_offset"],
        tuple(row["counts"]),
        row["negative_offset"],
        tuple(row["negative"]),
    )


MOST = 64
"""The most exemplars of one point. OpenTelemetry's SDKs keep one for each bucket at most."""
_LATEST = 2**63


class _Exemplar(NamedTuple):
    value: int | float
    time: int
    trace_id: bytes | None
    span_id: bytes | None
    attrs: Attrs


class Exemplars:
    """The exemplars of a commit."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._rows: list[tuple[int, int, int, _Exemplar]] = []

    def add(self, source: Source, metric: Metric) -> None:
        """Add the exemplars of a point; malformed ones are dropped and the point is kept."""
        found = list(_read(metric.attrs[ATTR_EXEMPLARS], metric.time))
        if not found:
            return
        slots = self._catalog.slots(
            source, metric.category, metric.values, metric.axis, label(metric.attrs), metric.instrument
        )
        step = NO_STEP if metric.step is None else metric.step
        for slot in slots:
            series = self._catalog.slot_series[slot]
            self._rows += [(series, step, source.writer.attempt, exemplar) for exemplar in found]

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `exemplars`."""
        if not self._rows:
            return {}
        series, steps, attempts, found = zip(*self._rows, strict=True)
        values = numbers("Float64", [each.value for each in found])
        block: Block = {
            "series": numbers("UInt64", series),
            "step": numbers("Int64", steps),
            "time": numbers("Int64", [each.time for each in found]),
            "attempt": numbers("UInt16", attempts),
            "value": values,
            "trace_id": fixed(16, [each.trace_id for each in found]),
            "span_id": fixed(8, [each.span_id for each in found]),
            **attrs.block([each.attrs for each in found]),
            "commit": numbers("UInt32", [commit] * len(found)),
        }
        if (rest := remainders([each.value for each in found], values.data)) is not None:
            block["rest"] = Numbers("Int16", rest)
        return {"exemplars": block}


def _read(given: Any, time: int) -> Iterator[_Exemplar]:
    """Read exemplars from a record's attributes; one without a time gets that of its point."""
    for each in given[:MOST] if isinstance(given, list) else ():
        if not isinstance(each, dict) or not isinstance(value := each.get("value"), (int, float)):
            continue
        at, attrs = each.get("time"), each.get("attrs")
        yield _Exemplar(
            value,
            at if type(at) is int and 0 < at < _LATEST else time,
            _id(each.get("trace_id"), 16),
            _id(each.get("span_id"), 8),
            {key: value for key, value in attrs.items() if isinstance(key, str)} if isinstance(attrs, dict) else {},
        )


def _id(text: Any, width: int) -> bytes | None:
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return found if len(found) == width else None
