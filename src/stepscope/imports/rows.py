"""A row of named values, as most tools store them, made into a metric."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.imports.source import Skip
from stepscope.model.records import Histogram, Metric

_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
_pack = msgspec.msgpack.Encoder().encode


def add_row(
    records: list[bytes], time: int, step: int | None, category: str | None, row: Mapping[str, Any], skip: Skip
) -> int:
    """Append a metric with the numbers of a row, nested ones under joined keys, and return how many they are."""
    values: dict[str, Any] = {}
    _flatten("", row, values, skip)
    if values:
        records.append(_pack(Metric(time, step, None, category, values)))
    return len(values)


def _flatten(prefix: str, row: Mapping[str, Any], into: dict[str, Any], skip: Skip) -> None:
    for key, value in row.items():
        name = f"{prefix}{key}"
        found = number(value)
        if found is not None:
            into[name] = found
        elif isinstance(value, Mapping):
            histogram = _histogram(value)
            if histogram is not None:
                into[name] = histogram
            elif "_type" in value:
                skip(f"values of type {value['_type']}", 1)
            else:
                _flatten(f"{name}/", value, into, skip)
        elif value is not None:
            skip("values that are no numbers", 1)


def number(value: Any) -> int | float | None:
    """Return a number, also one that is spelled; None for anything else."""
    if isinstance(value, (bool, int, float)):
        return +value if -(2**63) <= value < 2**64 or value != value or math.isinf(value) else float(value)
    return _WORDS.get(value.lower()) if isinstance(value, str) else None


def _histogram(value: Mapping[str, Any]) -> Histogram | None:
    """Read a histogram as Weights & Biases stores it: edges of bins and the counts between them."""
    bins, counts, packed = value.get("bins"), value.get("values"), value.get("packedBins")
    if isinstance(packed, Mapping):
        size, low, count = (packed.get(part) for part in ("size", "min", "count"))
        if isinstance(size, (int, float)) and isinstance(low, (int, float)) and isinstance(count, int):
            bins = [low + size * index for index in range(min(count, 10_000) + 1)]
    if value.get("_type") != "histogram" or not isinstance(bins, list) or not isinstance(counts, list):
        return None
    if len(bins) != len(counts) + 1 or not all(isinstance(each, (int, float)) for each in (*bins, *counts)):
        return None
    whole = tuple(int(count) for count in counts)
    edges = tuple(float(edge) for edge in bins)
    return Histogram(sum(whole), None, edges[0], edges[-1], edges[1:-1], whole)
