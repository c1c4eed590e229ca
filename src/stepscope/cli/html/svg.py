"""One metric as SVG: the band from lowest to highest, the mean, marks at NaN, flags where something went wrong."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from stepscope.model import formatting

WIDE, TALL = 400, 150
LEFT, RIGHT, TOP, BOTTOM = 66, 6, 8, 18
LINES = 8
"""Colours of runs; a ninth has that of the first."""


class Mark(NamedTuple):
    """One mark of a chart: minimum, maximum and mean of the finite values, None where there are none."""

    x: float
    low: float | None
    high: float | None
    mean: float | None
    flags: int = 0
    end: float | None = None
    """Where its interval of x ends, for a bucket."""


def marks(line: dict[str, Any]) -> list[Mark]:
    """The marks of a line as the hub gives it, raw or in buckets."""
    columns = line["columns"]
    if line["shape"] == "buckets":
        names = ("x", "min", "max", "mean", "flags", "x_last")
        return [Mark(*row) for row in zip(*(map(_finite, columns[name]) for name in names), strict=True)]
    points: dict[float, list[Any]] = {}
    for x, value in zip(columns["x"], columns["value"], strict=True):
        points.setdefault(x, []).append(value)
    return [_raw(x, values) for x, values in points.items()]


def _finite(value: Any) -> Any:
    return None if isinstance(value, str) else value


def _raw(x: float, values: Sequence[Any]) -> Mark:
    good = [value for value in values if not isinstance(value, str)]
    flags = 0
    for word in {value for value in values if isinstance(value, str)}:
        flags |= {"NaN": 1, "Infinity": 2}.get(word, 4)
    if not good:
        return Mark(x, None, None, None, flags)
    return Mark(x, min(good), max(good), math.fsum(value / len(good) for value in good), flags)


def chart(drawn: Sequence[Mark], flags: Iterable[int] = (), key: str = "", unit: str = "") -> str:
    """Draw the marks of a metric; `flags` are steps at which something went wrong."""
    good = [mark for mark in drawn if mark.low is not None and mark.high is not None]
    if not drawn:
        return "<p class=soft>no points</p>"
    place = _Place(drawn, good)
    parts = [_axes(place, formatting.bytes_of(key, unit))]
    for run in _runs(drawn):
        parts.append(_band(place, run))
    parts += [_bad(place, mark) for mark in drawn if mark.flags]
    parts += [_flag(place, step) for step in flags if place.first <= step <= place.last]
    return f'<svg viewBox="0 0 {WIDE} {TALL}" role="img">{"".join(parts)}</svg>'


def overlay(drawn: Mapping[int, Sequence[Mark]], key: str = "", unit: str = "") -> str:
    """Draw the means of a metric of several runs, by their place among them."""
    all_marks = [mark for line in drawn.values() for mark in line]
    if not all_marks:
        return "<p class=soft>no points</p>"
    place = _Place(all_marks, [mark for mark in all_marks if mark.low is not None and mark.high is not None])
    parts = [_axes(place, formatting.bytes_of(key, unit))]
    for at, line in drawn.items():
        for run in _runs(line):
            points = [f"{place.x(mark.x)},{place.y(mark.mean)}" for mark in run if mark.mean is not None]
            if len(points) > 1:
                parts.append(f'<polyline class="line s{at % LINES}" points="{" ".join(points)}"/>')
            else:
                cx, _, cy = points[0].partition(",")
                parts.append(f'<circle class="point s{at % LINES}" cx="{cx}" cy="{cy}" r="2"/>')
    return f'<svg viewBox="0 0 {WIDE} {TALL}" role="img">{"".join(parts)}</svg>'


class _Place:
    """Maps values to coordinates."""

    def __init__(self, drawn: Sequence[Mark], good: Sequence[Mark]) -> None:
        self.first = min(mark.x for mark in drawn)
        self.last = max(mark.x if mark.end is None else mark.end for mark in drawn)
        self.low = min((mark.low for mark in good if mark.low is not None), default=0.0)
        self.high = max((mark.high for mark in good if mark.high is not None), default=1.0)

    def x(self, value: float) -> float:
        share = (value - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return round(LEFT + share * (WIDE - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        # Divided first: the range of two floats may be no float. Next to the least float it cannot be divided.
        part = 2.0 if self.high - self.low == math.inf else 1.0
        range_ = self.high / part - self.low / part
        share = (value / part - self.low / part) / range_ if range_ > 0 else 0.5
        return round(TALL - BOTTOM - share * (TALL - TOP - BOTTOM), 1)


def _runs(drawn: Sequence[Mark]) -> Iterable[list[Mark]]:
    """Groups of consecutive marks with values: a line has gaps where there are none."""
    run: list[Mark] = []
    for mark in drawn:
        if mark.low is not None:
            run.append(mark)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _band(place: _Place, run: Sequence[Mark]) -> str:
    if len(run) == 1:
        return f'<circle class=dot cx="{place.x(run[0].x)}" cy="{place.y(run[0].mean or 0.0)}" r="2"/>'
    upper = [f"{place.x(mark.x)},{place.y(mark.high or 0.0)}" for mark in run]
    lower = [f"{place.x(mark.x)},{place.y(mark.low or 0.0)}" for mark in reversed(run)]
    mean = [f"{place.x(mark.x)},{place.y(mark.mean or 0.0)}" for mark in run if mark.mean is not None]
    band = f'<polygon class=band points="{" ".join(upper + lower)}"/>'
    spikes = "".join(
        f'<line class=mean x1="{place.x(mark.x)}" x2="{place.x(mark.x)}" '
        f'y1="{place.y(mark.low or 0.0)}" y2="{place.y(mark.high or 0.0)}"/>'
        for before, mark in pairwise(run)
        if place.y(mark.low or 0.0) - place.y(mark.high or 0.0) > 20 and before is not mark
    )
    return f'{band}<polyline class=mean points="{" ".join(mean)}"/>{spikes}'


def _bad(place: _Place, mark: Mark) -> str:
    words = " ".join(word for flag, word in ((1, "NaN"), (2, "Inf"), (4, "-Inf")) if mark.flags & flag)
    x = place.x(mark.x)
    cross = f'<path class=bad d="M{x - 3} {TOP - 5}l6 6m0 -6l-6 6"/>'
    line = f'<line class=bad x1="{x}" x2="{x}" y1="{TOP}" y2="{TALL - BOTTOM}" stroke-opacity="0.35"/>'
    return f"<g>{cross}{line}<title>{words} at step {formatting.ordinal(int(mark.x))}</title></g>"


def _flag(place: _Place, step: int) -> str:
    x = place.x(step)
    return f'<line class=flag x1="{x}" x2="{x}" y1="{TOP}" y2="{TALL - BOTTOM}"><title>step {step}</title></line>'


def _axes(place: _Place, per: str | None) -> str:
    bottom = TALL - BOTTOM
    lines = f'<path class=axis fill="none" d="M{LEFT} {TOP}V{bottom}H{WIDE - RIGHT}"/>'
    ends = [(place.high, TOP + 8.0), (place.low, float(bottom))]
    values = ends if place.high > place.low else [(place.high, (TOP + bottom) / 2)]
    write = formatting.number if per is None else lambda value, digits: formatting.size(value, digits) + per
    labels = formatting.ticks([value for value, _y in values], write)
    texts = [
        f'<text x="{LEFT - 4}" y="{y}" text-anchor="end">{escape(label)}</text>'
        for label, (_value, y) in zip(labels, values, strict=True)
    ]
    first, last = formatting.step_ticks([place.first, place.last])
    texts.append(f'<text x="{LEFT}" y="{TALL - 5}">{first}</text>')
    texts.append(f'<text x="{WIDE - RIGHT}" y="{TALL - 5}" text-anchor="end">{last}</text>')
    return lines + "".join(texts)
