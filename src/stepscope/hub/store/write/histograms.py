"""Distributions as columns: histograms, exponential histograms and summaries in one table, and back."""

from collections.abc import Sequence
from typing import Any

from stepscope.hub.store.columns import Block, Lists, ends_of, numbers
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.catalog import Catalog, Source, label
from stepscope.model.records import ExponentialHistogram, Histogram, Metric, Summary

Distribution = Histogram | ExponentialHistogram | Summary

HISTOGRAM, EXPONENTIAL, SUMMARY = range(3)
_TOTAL, _LOW, _HIGH = 1, 2, 4
"""Bits of `given`: what was not None."""
_LISTS = (("bounds", "Float64"), ("counts", "UInt64"), ("negative", "UInt64"))


class Distributions:
    """The distributions of a commit."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._rows: list[tuple[int, int, Metric, dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, source: Source, metric: Metric) -> None:
        """Take the distributions of a record; its numbers are left to others."""
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
    """Make the distribution of a row of `histograms` again."""
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
