"""Records of every kind for property tests, in the shape in which a decoder returns them."""

import math
from typing import Any

from hypothesis import strategies as st

from stepscope.model.names import ATTR_EVENT_NAME, ATTR_EXEMPLARS
from stepscope.model.records import (
    FIRST_STEP,
    LAST_STEP,
    Alert,
    Event,
    ExponentialHistogram,
    Histogram,
    Instrument,
    Link,
    Log,
    Metric,
    Span,
    SpanEvent,
    Summary,
)
from stepscope.wire.otlp import names as otlp_names
from stepscope.wire.otlp.decode.origin import MARKS

_TAKEN = {*MARKS, "world_size", otlp_names.ATTR_STEP_NAME, ATTR_EVENT_NAME, otlp_names.ATTR_ALERT}

times = st.integers(1, 2**62)
int64 = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**64 - 1)
# JSON knows one NaN only, so its sign and payload are not asked for.
floats = st.floats(allow_nan=False) | st.just(math.nan)
optional_floats = st.none() | floats
keys = st.text(min_size=1, max_size=12).filter(lambda key: key not in _TAKEN and not key.startswith("otel."))
values = st.recursive(
    st.none() | st.booleans() | int64 | floats | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
attrs = st.dictionaries(keys, values, max_size=4)
trace_ids = st.binary(min_size=16, max_size=16).filter(any)
span_ids = st.binary(min_size=8, max_size=8).filter(any)
steps = st.tuples(st.integers(FIRST_STEP, LAST_STEP), st.none() | st.text(min_size=1, max_size=8)) | st.just(
    (None, None)
)
contexts = st.tuples(trace_ids, st.none() | span_ids) | st.just((None, None))
scopes = st.sampled_from(("", "lib", "библиотека"))


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    """Histograms with and without buckets."""
    bounds = tuple(sorted(draw(st.sets(st.floats(allow_nan=False, allow_infinity=False), max_size=4))))
    size = len(bounds) + 1 if bounds or draw(st.booleans()) else 0
    held = tuple(draw(st.lists(counts, min_size=size, max_size=size)))
    return Histogram(draw(counts), draw(optional_floats), draw(optional_floats), draw(optional_floats), bounds, held)


exponentials = st.builds(
    ExponentialHistogram,
    counts, optional_floats, optional_floats, optional_floats, st.integers(-10, 20), counts,
    st.floats(0, 1e6), st.integers(-1000, 1000), st.lists(counts, max_size=5).map(tuple),
    st.integers(-1000, 1000), st.lists(counts, max_size=5).map(tuple),
)  # fmt: skip
quantiles = st.lists(st.tuples(floats, floats), max_size=3).map(tuple)
summaries = st.builds(Summary, counts, floats, quantiles)
numbers = int64 | floats


def _instrument(kind: str, cumulative: st.SearchStrategy[bool], monotonic: st.SearchStrategy[bool]) -> Any:
    texts = st.sampled_from(("", "s", "By"))
    started = st.just(0) if kind == "gauge" else st.integers(0, 2**62)
    return st.builds(Instrument, st.just(kind), texts, texts, cumulative, monotonic, started, scopes).filter(
        lambda made: kind == "sum" or bool(made.unit or made.description or made.scope)
    )


_yes, _no = st.just(True), st.just(False)
_measured = st.one_of(
    st.tuples(st.none(), numbers | histograms() | exponentials | summaries),
    st.tuples(_instrument("gauge", _yes, _no), numbers),
    st.tuples(_instrument("sum", st.booleans(), st.booleans()), numbers),
    st.tuples(_instrument("histogram", st.booleans(), _no), histograms()),
    st.tuples(_instrument("exponential_histogram", st.booleans(), _no), exponentials),
    st.tuples(_instrument("summary", _yes, _no), summaries),
)
exemplars = st.fixed_dictionaries(
    {
        "value": numbers,
        "time": times,
        "trace_id": st.just("") | trace_ids.map(bytes.hex),
        "span_id": st.just("") | span_ids.map(bytes.hex),
        "attrs": attrs,
    }
)


@st.composite
def metrics(draw: st.DrawFn) -> Metric:
    """Metrics of one value, of every type."""
    instrument, value = draw(_measured)
    step, axis = draw(steps)
    held = draw(attrs)
    if not isinstance(value, Summary) and draw(st.booleans()):
        held = {**held, ATTR_EXEMPLARS: draw(st.lists(exemplars, min_size=1, max_size=2))}
    return Metric(draw(times), step, axis, None, {draw(keys): value}, held, instrument)


events = st.builds(SpanEvent, times, st.text(max_size=8), attrs)
links = st.builds(Link, trace_ids, span_ids, attrs)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Spans that have ended."""
    step, axis = draw(steps)
    return Span(
        draw(times), draw(st.integers(0, 2**61)), step, axis, draw(trace_ids), draw(span_ids),
        draw(st.none() | span_ids), draw(st.text(max_size=12)), draw(st.integers(0, 5)), draw(st.integers(0, 2)),
        draw(st.text(max_size=8)), draw(attrs), tuple(draw(st.lists(events, max_size=2))),
        tuple(draw(st.lists(links, max_size=2))), draw(scopes),
    )  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> Log | Event | Alert:
    """Logs, events and alerts."""
    context = (draw(times), *draw(steps), *draw(contexts), draw(st.integers(0, 24)))
    kind = draw(st.sampled_from((Log, Event, Alert)))
    held = draw(attrs)
    if kind is Log:
        return Log(*context, draw(values), held, draw(scopes))
    if kind is Event:
        return Event(*context, draw(st.text(min_size=1, max_size=8)), held, draw(values))
    return Alert(*context, draw(st.text(max_size=8)), draw(st.text(max_size=8)), held)


records = metrics() | spans() | logs()
