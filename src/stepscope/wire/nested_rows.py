"""Rows as Weights & Biases has them: numbers and histograms under joined keys, metric definitions, machine metrics."""

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.model.records import Histogram, Value

_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
_LONGEST_WORD = max(map(len, _WORDS))
DEEPEST = 40
"""The depth to which nested dicts are flattened; deeper ones are kept."""


def split_row(row: Mapping[str, Any]) -> tuple[dict[str, Value], dict[str, Any]]:
    """Split the values of a row into numbers and histograms, nested ones under joined keys, and everything else."""
    values: dict[str, Value] = {}
    others: dict[str, Any] = {}
    _split("", row, values, others, 0)
    return values, others


def _split(prefix: str, row: Mapping[str, Any], values: dict[str, Value], others: dict[str, Any], depth: int) -> None:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if type(value) is float:
            values[name] = value
            continue
        found = number(value)
        if found is not None:
            values[name] = found
        elif isinstance(value, Mapping) and "_type" not in value and depth < DEEPEST:
            _split(f"{name}/", value, values, others, depth + 1)
        elif isinstance(value, Mapping) and (histogram := read_histogram(value)) is not None:
            values[name] = histogram
        elif value is not None:
            others[name] = value


def number(value: Any) -> int | float | None:
    """Return a number, also one given as text; None for anything else."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return +value
        return float(value) if value.bit_length() < 1024 else math.copysign(math.inf, value > 0 or -1)
    return _WORDS.get(value.lower()) if isinstance(value, str) and len(value) <= _LONGEST_WORD else None


def read_histogram(value: Mapping[str, Any]) -> Histogram | None:
    """Read a histogram: edges of bins and the counts between them; None when it is something else."""
    bins, counts, packed = value.get("bins"), value.get("values"), value.get("packedBins")
    if isinstance(packed, Mapping):
        size, low, count = (packed.get(part) for part in ("size", "min", "count"))
        if isinstance(size, (int, float)) and isinstance(low, (int, float)) and isinstance(count, int):
            bins = [low + size * index for index in range(min(count, 10_000) + 1)]
    if value.get("_type") != "histogram" or not isinstance(bins, list) or not isinstance(counts, list):
        return None
    if len(bins) != len(counts) + 1 or not all(isinstance(each, (int, float)) for each in (*bins, *counts)):
        return None
    if not all(0 <= count < 2**63 for count in counts):
        return None
    as_step = tuple(int(count) for count in counts)
    edges = tuple(float(edge) for edge in bins)
    return Histogram(sum(as_step), None, edges[0], edges[-1], edges[1:-1], as_step)


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition by `define_metric`, for the metrics whose name matches."""

    pattern: str
    step_metric: str

    def matches(self, key: str) -> bool:
        """Return whether a key matches."""
        return self.pattern == key or ("*" in self.pattern and fnmatch.fnmatchcase(key, self.pattern))


def read_definitions(given: Any) -> tuple[Definition, ...]:
    """Read the definitions of metrics in a configuration: names under 1, patterns under 2, 5 counts to the axis."""
    listed = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    found: list[Definition] = []
    for each in listed:
        axis, pattern = each.get("5"), each.get("1") or each.get("2")
        if isinstance(axis, int) and 0 < axis <= len(listed) and isinstance(pattern, str):
            step = listed[axis - 1].get("1")
            if isinstance(step, str) and step != pattern:
                found.append(Definition(pattern, step))
        elif isinstance(each.get("4"), str) and isinstance(pattern, str) and each["4"] != pattern:
            found.append(Definition(pattern, each["4"]))
    return tuple(found)


def parts_by_axis(
    values: Mapping[str, Value], definitions: Sequence[Definition]
) -> Iterable[tuple[str | None, int | None, dict[str, Value]]]:
    """Split the values of one row by the metric that is their axis, each with the axis value in the row.

    Without a definition, or without a whole number for it in the same row, the axis and the number are None.
    """
    found: dict[str | None, dict[str, Value]] = {}
    for key, value in values.items():
        axis = next((each.step_metric for each in reversed(definitions) if each.matches(key)), None)
        at = as_step(values.get(axis)) if axis is not None and axis != key else None
        found.setdefault(axis if at is not None else None, {})[key] = value
    return [(axis, None if axis is None else as_step(values[axis]), part) for axis, part in found.items()]


def as_step(value: Any) -> int | None:
    """Convert a value to an integer step; None if it is not one."""
    if isinstance(value, (int, float)) and math.isfinite(value) and value == int(value) and abs(value) < 2**62:
        return int(value)
    return None


def nanoseconds(seconds: float) -> int:
    """The time of a stamp in seconds; dividing by 10**9 gives the very stamp again."""
    full = math.floor(seconds)
    return full * 10**9 + round((seconds - full) * 1e9)


def _share(percent: float) -> float:
    return percent / 100


def _mebibytes(count: float) -> float:
    return count * 1024 * 1024


_MACHINE: tuple[tuple[re.Pattern[str], str, Callable[[float], float]], ...] = (
    (re.compile(r"cpu"), "cpu/utilization", _share),
    (re.compile(r"memory(?:_percent)?"), "memory/utilization", _share),
    (re.compile(r"proc\.memory\.rssMB"), "process/rss_bytes", _mebibytes),
    (re.compile(r"proc\.cpu\.threads"), "process/threads", float),
    (re.compile(r"disk\./\.usagePercent"), "disk/utilization", _share),
    (re.compile(r"gpu\.(\d+)\.gpu"), r"gpu/\1/utilization", _share),
    (re.compile(r"gpu\.(\d+)\.memoryAllocated"), r"gpu/\1/memory_utilization", _share),
    (re.compile(r"gpu\.(\d+)\.memoryAllocatedBytes"), r"gpu/\1/memory_used_bytes", float),
    (re.compile(r"gpu\.(\d+)\.temp"), r"gpu/\1/temperature_celsius", float),
    (re.compile(r"gpu\.(\d+)\.powerWatts"), r"gpu/\1/power_watts", float),
)
"""Metrics of the machine that our own probes have too: their names, and how a value becomes one of ours."""


def machine_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Name the metrics of the machine as our probes do where they have the same; the category is not in the names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = key.removeprefix("system.")
        for pattern, ours, convert in _MACHINE:
            matched = pattern.fullmatch(name)
            if matched is not None and isinstance(value, (int, float)):
                name, value = matched.expand(ours), convert(value)
                break
        found[name] = value
    return found
