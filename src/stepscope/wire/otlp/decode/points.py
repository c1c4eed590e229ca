"""Raw metric points of every type to records."""

from collections.abc import Iterable
from itertools import pairwise
from math import isnan

from msgspec import structs

from stepscope.model.names import ATTR_STEP
from stepscope.model.records import ExponentialHistogram, Histogram, Instrument, Metric, Value
from stepscope.wire.otlp.decode.origin import MARKS, Place
from stepscope.wire.otlp.decode.raw import LATEST, RawMetric, RawPoint, Scope
from stepscope.wire.otlp.refusals import Rejections

NO_NAME = "the metric has no name"
NO_TIME = "the time is unset or out of range"
NO_VALUE = "the point has no value"
BAD_TEMPORALITY = "the temporality is neither delta nor cumulative"
BAD_BUCKETS = "the buckets do not fit their bounds or scale"

DELTA, CUMULATIVE = 1, 2
_NO_RECORDED_VALUE = 1
_STEP_TYPES = ("gauge", "summary")
_SCALES = range(-10, 33)
_OFFSETS = range(-(2**31), 2**31)


def take_points(raws: Iterable[RawMetric], scope: Scope, place: Place, refused: Rejections) -> int:
    """Put points where they belong, one record each; return how many said that nothing was recorded."""
    gaps = 0
    for name, kind, unit, description, temporality, monotonic, points in raws:
        trouble = ""
        if not name:
            trouble = NO_NAME
        elif kind not in _STEP_TYPES and temporality not in (DELTA, CUMULATIVE):
            trouble = BAD_TEMPORALITY
        if trouble:
            refused.add(trouble, name, count=sum(1 for _ in points))
            continue
        instrument = Instrument(kind, unit, description, temporality != DELTA, monotonic, 0, scope[0])
        gaps += _take(name, instrument, points, scope[1], place, refused)
    return gaps


def _take(
    name: str, instrument: Instrument, points: Iterable[RawPoint], said: dict[str, object], place: Place,
    refused: Rejections,
) -> int:  # fmt: skip
    home, gaps, last = place.home, 0, 0
    is_gauge, is_number = instrument.type == "gauge", instrument.type in ("gauge", "sum")
    made = _started(instrument, 0)
    for time, start, value, attrs, flags in points:
        if flags & _NO_RECORDED_VALUE:
            gaps += 1
            continue
        if value is None:
            refused.add(NO_VALUE, name)
            continue
        if not 0 < time <= LATEST:
            refused.add(NO_TIME, name)
            continue
        if not is_number and not _fits(value):
            refused.add(BAD_BUCKETS, name)
            continue
        if start != last and not is_gauge:
            made, last = _started(instrument, start), start
        records, step, axis = home, None, None
        if len(attrs) == 1 and type(only := attrs.get(ATTR_STEP)) is int:
            step, attrs = only, {}  # what our own sinks send, the short way
        elif not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        if said:
            attrs = {**said, **attrs}
        records.append(Metric(time, step, axis, None, {name: value}, attrs, made))
    return gaps


def _started(instrument: Instrument, start: int) -> Instrument | None:
    """Give the instrument its start; None for a step metric, of which nothing is said but name and value."""
    silent = not (start or instrument.unit or instrument.description or instrument.scope)
    if silent and (instrument.type in _STEP_TYPES or (instrument.type != "sum" and not instrument.cumulative)):
        return None
    return structs.replace(instrument, start=start if 0 < start <= LATEST else 0)


def _fits(value: Value) -> bool:
    """Tell whether the buckets of a histogram make sense."""
    if isinstance(value, Histogram):
        bounds, counts = value.bounds, value.counts
        ordered = not any(map(isnan, bounds)) and all(low < high for low, high in pairwise(bounds))
        return ordered and len(counts) == (len(bounds) + 1 if counts or bounds else 0)
    if isinstance(value, ExponentialHistogram):
        return value.scale in _SCALES and value.positive_offset in _OFFSETS and value.negative_offset in _OFFSETS
    return True
