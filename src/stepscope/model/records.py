"""The five kinds of record; a record is one datum of a run, msgpack array on the wire, object in memory."""

from collections.abc import Iterator, Sequence
from math import isfinite, isnan
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Attrs = dict[str, Any]
"""Key-values of a record: strings, numbers, bools, bytes, None, and lists or dicts of these."""
Word = Literal["NaN", "Infinity", "-Infinity"]
"""A number that JSON does not have."""
Number = Annotated[float | Word, Meta(description="A number, or one of NaN, Infinity and -Infinity as a string.")]
Seconds = Annotated[float | None, Meta(description="Seconds since 1970.")]

METRIC, SPAN, LOG, EVENT, ALERT = range(5)
KINDS = ("metric", "span", "log", "event", "alert")
"""Kind names by tag; the tag is the first element of a packed record."""
FIRST_STEP, LAST_STEP = -(2**63) + 2, 2**63 - 1
"""The range of steps; the two integers below it are reserved, for records without a step among others."""


def word(value: float) -> float | Word:
    """Convert a non-finite number to its word; others stay."""
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


class Histogram(Struct, array_like=True, tag=0, frozen=True, gc=False):
    """Counts of values between explicit upper bounds; `total` is None when negatives were recorded."""

    count: int
    total: float | None
    low: float | None
    high: float | None
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class ExponentialHistogram(Struct, array_like=True, tag=1, frozen=True, gc=False):
    """Counts in buckets (base**i, base**(i+1)] with base = 2**(2**-scale), one list per sign."""

    count: int
    total: float | None
    low: float | None
    high: float | None
    scale: int
    zeros: int
    zero_threshold: float
    positive_offset: int
    positive: tuple[int, ...]
    negative_offset: int = 0
    negative: tuple[int, ...] = ()


class Summary(Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Quantiles computed by a foreign client, as (quantile, value) pairs."""

    count: int
    total: float
    quantiles: tuple[tuple[float, float], ...]


Value = bool | int | float | Histogram | ExponentialHistogram | Summary


def mean_of(value: Value) -> float | None:
    """The number itself, or the mean of a distribution; None when that is empty or its sum is not known."""
    if isinstance(value, (int, float)):
        return +value  # a bool is the number it equals
    return value.total / value.count if value.count and value.total is not None else None


"""A bool is the number it equals; it stays as it was given."""


class Instrument(Struct, array_like=True, frozen=True, gc=False):
    """OpenTelemetry's metadata of a metric; a step metric has none.

    Types are gauge, sum, histogram, exponential_histogram and summary. Three more are StatsD's: `distribution`,
    `timing` and `set`. A plain number under histogram, distribution or timing is one sample, never cumulative.
    """

    type: str = "gauge"
    unit: str = ""
    description: str = ""
    cumulative: bool = True
    monotonic: bool = False
    start: int = 0
    scope: str = ""


class Metric(Struct, array_like=True, tag=METRIC, frozen=True, gc=False):
    """The values of one `log` call (or one point of an instrument) at one step."""

    time: int
    step: int | None
    axis: str | None
    category: str | None
    values: dict[str, Value]
    attrs: Attrs = {}
    instrument: Instrument | None = None

    def points(self) -> Iterator[tuple[str, Value]]:
        """Yield (key, value) with the category in front of the key."""
        if self.category is None:
            yield from self.values.items()
            return
        for key, value in self.values.items():
            yield f"{self.category}/{key}", value


class SpanEvent(Struct, array_like=True, frozen=True, gc=False):
    """Something that happened inside a span."""

    time: int
    name: str
    attrs: Attrs = {}


class Link(Struct, array_like=True, frozen=True, gc=False):
    """A pointer from a span to another trace."""

    trace_id: bytes
    span_id: bytes
    attrs: Attrs = {}


class Span(Struct, array_like=True, tag=SPAN, frozen=True, gc=False):
    """A timed operation; `duration` is None while it is still open."""

    time: int
    duration: int | None
    step: int | None
    axis: str | None
    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    name: str
    span_kind: int = 0
    status: int = 0
    message: str = ""
    attrs: Attrs = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[Link, ...] = ()
    scope: str = ""
    flags: int = 0
    """OpenTelemetry's span flags: those of the trace in the low byte, then whether the parent is remote."""


class Log(Struct, array_like=True, tag=LOG, frozen=True, gc=False):
    """A line of a program's log."""

    time: int
    step: int | None
    axis: str | None
    trace_id: bytes | None
    span_id: bytes | None
    severity: int
    body: Any
    attrs: Attrs = {}
    scope: str = ""
    observed: int = 0
    """When a collector saw it; 0 when unknown. Equal to `time` where the source gave no other time."""
    flags: int = 0
    """The trace flags of its context."""


class Event(Struct, array_like=True, tag=EVENT, frozen=True, gc=False):
    """A named thing that happened to the run."""

    time: int
    step: int | None
    axis: str | None
    trace_id: bytes | None
    span_id: bytes | None
    severity: int
    name: str
    attrs: Attrs = {}
    body: Any = None
    observed: int = 0
    flags: int = 0


class Alert(Struct, array_like=True, tag=ALERT, frozen=True, gc=False):
    """Something that needs attention."""

    time: int
    step: int | None
    axis: str | None
    trace_id: bytes | None
    span_id: bytes | None
    severity: int
    name: str
    message: str = ""
    attrs: Attrs = {}
    observed: int = 0
    flags: int = 0


Record = Metric | Span | Log | Event | Alert


def kind(record: Record) -> str:
    """Name the kind of a record."""
    return type(record).__name__.lower()


def has_steps_in_range(records: Sequence[Record]) -> bool:
    """Return whether all steps that are given can be stored."""
    steps = [record.step for record in records if record.step is not None]
    return not steps or (min(steps) >= FIRST_STEP and max(steps) <= LAST_STEP)


MAX_EARLY = 24 * 3600 * 10**9
"""How long before its process, in ns, a span may have begun and still move the start of the run."""


def recorded_at(record: Any) -> int:
    """Return when a record was made: when it was observed, for a line with a time of its own, else its time."""
    return getattr(record, "observed", 0) or int(record.time)


def began_at(record: Any, started: int) -> int:
    """Return when a record began, as far as that can be the start of a run whose process started at `started`.

    A span may be given any start. Where that is more than a day before its process, the start of the process counts.
    """
    at = recorded_at(record)
    return started if at < started - MAX_EARLY and hasattr(record, "duration") else at
