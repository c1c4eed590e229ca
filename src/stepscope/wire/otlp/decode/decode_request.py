"""Decode an OTLP request into records grouped by origin, and count what is rejected."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import isnan
from time import time_ns
from typing import Any, NamedTuple

from msgspec import structs

from stepscope.model.names import ATTR_EVENT_NAME, ATTR_SCOPE_NAME, ATTR_SEVERITY_TEXT, ATTR_STEP, SEVERITIES
from stepscope.model.records import (
    FIRST_STEP,
    Alert,
    Attrs,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Log,
    Metric,
    Record,
    Span,
    Value,
)
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.decode import json_request, protobuf_request
from stepscope.wire.otlp.decode.origin import (
    LATEST,
    MARKS,
    NO_SPAN,
    NO_TRACE,
    Group,
    Origins,
    Place,
    RawLog,
    RawMetric,
    RawPoint,
    RawSpan,
    Scope,
    is_id,
)
from stepscope.wire.otlp.names import Encoding, Signal
from stepscope.wire.otlp.replies import Rejections

BAD_TRACE_ID = "the trace id is not 16 bytes (32 hex digits in JSON) or all zero"
BAD_SPAN_ID = "the span id is not 8 bytes (16 hex digits in JSON) or all zero"
BAD_TIME = "the start time is unset or out of range"
BAD_PARENT = "a parent span id that is not 8 bytes (16 hex digits in JSON)"
BAD_END = "an end time before the start"


def take_spans(raws: Iterable[RawSpan], scope: Scope, place: Place, refused: Rejections) -> None:
    """Sort spans by origin; one without valid ids or start is rejected.

    A span without an end is still open; one that ends before it starts has no duration, and one with a parent that
    is no id has none: both are taken, with a warning.
    """
    home, (scope_name, scope_attrs) = place.home, scope
    for trace_id, span_id, parent_id, name, kind, start, end, attrs, events, links, code, message, flags in raws:
        if len(trace_id) != 16 or trace_id == NO_TRACE:
            refused.add(BAD_TRACE_ID, name)
            continue
        if len(span_id) != 8 or span_id == NO_SPAN:
            refused.add(BAD_SPAN_ID, name)
            continue
        if not 0 < start <= LATEST:
            refused.add(BAD_TIME, name)
            continue
        if parent_id and len(parent_id) != 8:
            refused.warn(BAD_PARENT, name)
        if 0 < end < start:
            refused.warn(BAD_END, name)
        records, step, axis = home, None, None
        if not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        records.append(
            Span(
                start,
                max(min(end, LATEST) - start, 0) if end > 0 else None,
                step,
                axis,
                trace_id,
                span_id,
                parent_id if len(parent_id) == 8 and parent_id != NO_SPAN else None,
                name,
                kind if 0 <= kind <= 5 else 0,
                code if 0 <= code <= 2 else 0,
                message,
                {**scope_attrs, **attrs} if scope_attrs else attrs,
                events,
                links,
                scope_name,
                flags,
            )
        )


_Context = tuple[int, int | None, str | None, bytes | None, bytes | None, int]


BAD_CONTEXT = "a trace or span id that is of the wrong length, or alone"


def take_logs(
    raws: Iterable[RawLog], scope: Scope, place: Place, refused: Rejections, clock: Callable[[], int]
) -> None:
    """Sort log records by origin; none is rejected.

    Invalid ids unlink a record, with a warning. Without a time of its own it has the time it was observed, else the
    clock's.
    """
    home, (scope_name, scope_attrs) = place.home, scope
    for time, observed, number, text, event_name, body, attrs, trace_id, span_id, flags in raws:
        records, step, axis = home, None, None
        if not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        if scope_attrs:
            attrs = {**scope_attrs, **attrs}
        if not 0 < observed <= LATEST:
            observed = 0
        if not 0 < time <= LATEST:
            time = observed = observed or clock()
        elif observed == time:
            observed = 0
        if not event_name and type(attrs.get(ATTR_EVENT_NAME)) is str:
            event_name = attrs.pop(ATTR_EVENT_NAME)
        linked = is_id(trace_id, 16)
        if _is_unfit(trace_id, NO_TRACE) or _is_unfit(span_id, NO_SPAN if linked else b""):
            refused.warn(BAD_CONTEXT, event_name)
        context = (
            time, step, axis, trace_id if linked else None, span_id if linked and is_id(span_id, 8) else None,
            _severity(number, text, attrs),
        )  # fmt: skip
        records.append(
            _event(context, event_name, body, attrs, scope_name, (observed, flags))
            if event_name
            else Log(*context, body, attrs, scope_name, observed, flags)
        )


def _is_unfit(data: bytes, none: bytes) -> bool:
    """Return whether an id is set and invalid: its length is wrong."""
    return data != b"" and any(data) and len(data) != len(none)


def _severity(number: int, text: str, attrs: Attrs) -> int:
    """Read the severity; a word that OpenTelemetry does not know stays as an attribute."""
    known = SEVERITIES.get(text.upper()) if text else 0
    if known is None:
        attrs[ATTR_SEVERITY_TEXT] = text
    return number if 0 < number <= 24 else known or 0


def _event(context: _Context, name: str, body: Any, attrs: Attrs, scope_name: str, seen: tuple[int, int]) -> Record:
    """Make an event; `alert.firing` with a rule's name is an alert."""
    if scope_name:
        attrs[ATTR_SCOPE_NAME] = scope_name
    rule = attrs.get(otlp_names.ATTR_ALERT)
    if name == otlp_names.EVENT_ALERT and type(rule) is str:
        del attrs[otlp_names.ATTR_ALERT]
        return Alert(*context, rule, body if type(body) is str else "", attrs, *seen)
    return Event(*context, name, attrs, body, *seen)


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
    """Sort points by origin, one record each; return how many are flagged "no recorded value"."""
    gaps = 0
    for name, kind, unit, description, temporality, monotonic, points in raws:
        problem = ""
        if not name:
            problem = NO_NAME
        elif kind not in _STEP_TYPES and temporality not in (DELTA, CUMULATIVE):
            problem = BAD_TEMPORALITY
        if problem:
            refused.add(problem, name, count=sum(1 for _ in points))
            continue
        instrument = Instrument(kind, unit, description, temporality != DELTA, monotonic, 0, scope[0])
        gaps += _take(name, instrument, points, scope[1], place, refused)
    return gaps


def _take(
    name: str, instrument: Instrument, points: Iterable[RawPoint], scope_attrs: dict[str, object], place: Place,
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
        if len(attrs) == 1 and type(only := attrs.get(ATTR_STEP)) is int and only >= FIRST_STEP:
            step, attrs = only, {}  # fast path for what our own sinks send
        elif not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        if scope_attrs:
            attrs = {**scope_attrs, **attrs}
        records.append(Metric(time, step, axis, None, {name: value}, attrs, made))
    return gaps


def _started(instrument: Instrument, start: int) -> Instrument | None:
    """Return the instrument with its start; None for a step metric, which has only name and value."""
    silent = not (start or instrument.unit or instrument.description or instrument.scope)
    if silent and (instrument.type in _STEP_TYPES or (instrument.type != "sum" and not instrument.cumulative)):
        return None
    return structs.replace(instrument, start=start if 0 < start <= LATEST else 0)


def _fits(value: Value) -> bool:
    """Return whether the buckets of a histogram are consistent."""
    if isinstance(value, Histogram):
        bounds, counts = value.bounds, value.counts
        ordered = not any(map(isnan, bounds)) and all(low < high for low, high in pairwise(bounds))
        return ordered and len(counts) == (len(bounds) + 1 if counts or bounds else 0)
    if isinstance(value, ExponentialHistogram):
        return value.scale in _SCALES and value.positive_offset in _OFFSETS and value.negative_offset in _OFFSETS
    return True


class Decoded(NamedTuple):
    """The content of a request; `gaps` counts points flagged "no recorded value", neither accepted nor rejected."""

    groups: list[Group]
    rejections: Rejections
    gaps: int = 0


def decode(
    signal: Signal,
    encoding: Encoding,
    data: bytes,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], int] = time_ns,
) -> Decoded:
    """Decode the uncompressed body of an export request.

    Raises BadRequest when the body as a whole cannot be read, and nothing else. A bad item is refused alone
    and counted; so is what is left out of one that is taken. The headers may name an MLflow run and experiment.
    """
    refused = Rejections(signal)
    origins = Origins(headers)
    reader = protobuf_request if encoding == "protobuf" else json_request
    gaps = 0
    if signal == "traces":
        for resource, spans in reader.traces(data, refused):
            place = origins.enter(resource)
            for scope, raw_spans in spans:
                take_spans(raw_spans, scope, place, refused)
    elif signal == "metrics":
        for resource, metrics in reader.metrics(data, refused):
            place = origins.enter(resource)
            for scope, raw_metrics in metrics:
                gaps += take_points(raw_metrics, scope, place, refused)
    else:
        for resource, logs in reader.logs(data, refused):
            place = origins.enter(resource)
            for scope, raw_logs in logs:
                take_logs(raw_logs, scope, place, refused, clock)
    return Decoded(origins.groups(), refused, gaps)
