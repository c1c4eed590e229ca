"""Quantiles of recorded histograms: what was counted between two records, joined over stretches of x."""

import math
from collections.abc import Sequence

from stepscope.hub.questions.quantile_rows import Extent, Recorded, Stretches
from stepscope.model.records import ExponentialHistogram, Histogram

Counts = dict[tuple[float, float], float]
"""How many values lie between two bounds."""


def of_histograms(records: Sequence[Recorded], extent: Extent, levels: Sequence[float]) -> Stretches:
    """Quantiles by straight interpolation inside a bucket, as well as buckets tell."""
    joined: dict[int, tuple[int, int, Counts]] = {}
    before: dict[tuple[int, int, int], Counts] = {}
    for record in records:
        counted = buckets(record.value)
        if counted is None or not extent.low <= record.at <= extent.high:
            continue
        if record.cumulative:
            place = (record.series, record.attempt, record.start)
            counted, before[place] = _less(counted, before.get(place, {})), counted
        if sum(counted.values()) <= 0:
            continue
        stretch = (record.at - extent.low) // extent.width
        first, last, known = joined.get(stretch, (record.at, record.at, {}))
        for bounds, count in counted.items():
            known[bounds] = known.get(bounds, 0.0) + count
        joined[stretch] = (min(first, record.at), max(last, record.at), known)
    found = [joined[stretch] for stretch in sorted(joined)]
    return Stretches(
        first=[first for first, _, _ in found],
        last=[last for _, last, _ in found],
        count=[round(sum(counted.values())) for _, _, counted in found],
        values=[[quantile(counted, level) for _, _, counted in found] for level in levels],
    )


def buckets(value: object) -> Counts | None:
    """The buckets of a histogram that hold something; None for a summary, whose quantiles cannot be joined."""
    if isinstance(value, Histogram):
        return _explicit(value)
    if isinstance(value, ExponentialHistogram):
        return _exponential(value)
    return None


def _explicit(value: Histogram) -> Counts:
    if not value.bounds:
        return {}
    low = value.low if value.low is not None else min(0.0, value.bounds[0])
    high = value.high if value.high is not None else value.bounds[-1]
    edges = [min(low, value.bounds[0]), *value.bounds, max(high, value.bounds[-1])]
    return {(edges[at], edges[at + 1]): float(count) for at, count in enumerate(value.counts) if count}


def _exponential(value: ExponentialHistogram) -> Counts:
    grows = math.log(2) * 2.0**-value.scale

    def bound(index: int) -> float:
        return math.exp(min(index * grows, 700.0))

    found: Counts = {(0.0, 0.0): float(value.zeros)} if value.zeros else {}
    for at, count in enumerate(value.positive):
        if count:
            index = value.positive_offset + at
            found[bound(index), bound(index + 1)] = float(count)
    for at, count in enumerate(value.negative):
        if count:
            index = value.negative_offset + at
            found[-bound(index + 1), -bound(index)] = float(count)
    return found


def _less(now: Counts, before: Counts) -> Counts:
    """What was counted since; where anything went back the series began anew, and all of it is new."""
    made = {bounds: count - before.get(bounds, 0.0) for bounds, count in now.items()}
    return now if any(count < 0 for count in made.values()) else made


def quantile(counted: Counts, level: float) -> float:
    """The value below which a share of the counted ones lies."""
    ordered = sorted(counted.items())
    wanted = level * sum(counted.values())
    seen = 0.0
    for (low, high), count in ordered:
        if count > 0 and seen + count >= wanted:
            return low + (high - low) * max(wanted - seen, 0.0) / count
        seen += count
    return ordered[-1][0][1]
