"""The measurements of one instrument by attribute set: appended in the call, aggregated later, recorded on change."""

import threading
import time
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any

from msgspec import Raw, structs
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.util.types import Attributes

from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import METRIC, Instrument
from stepscope.sdk.context import NO_MARK, SPAN_KEY, Mark, current, current_mark, pack
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.otel.aggregate import Aggregate, Number, fitting
from stepscope.sdk.otel.current_run import CurrentRun, masked_attributes
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.values import flatten

MAX_SETS = 2000
"""Attribute sets of one instrument; further ones share the overflow set."""
MAX_SPELLINGS = 4 * MAX_SETS
"""Remembered ways to write an attribute set: order of keys, masked secrets."""
MAX_PENDING = 512
"""Limit on pending measurements, whose aggregation takes some 50 us; the call that exceeds it aggregates them."""
SLICE = 128
"""Points recorded at a time; then the interpreter is released to waiting threads."""
OVERFLOW = {"otel.metric.overflow": True}
_PATIENCE = 0.5
"""Seconds to wait for another aggregating thread; a signal handler may have interrupted it below us."""


class Point:
    """One attribute set: pending measurements, and the aggregate of the others."""

    __slots__ = ("aggregate", "append", "attrs", "changed", "exemplar", "mark", "nonfinite", "peak", "pending", "plain")

    def __init__(self, attrs: dict[str, Any], aggregate: Aggregate) -> None:
        self.peak: Number = -inf
        """The greatest measurement since the last record."""
        self.exemplar: tuple[Number, int, trace.SpanContext] | None = None
        """That measurement, its time and the sampled span it was made in, if it was in one."""
        self.plain = attrs
        self.pending: list[Number] = []
        self.append = self.pending.append
        self.attrs = Raw(pack(attrs))
        self.aggregate = aggregate
        self.mark: Mark | None = None
        """The step of the newest measurement."""
        self.nonfinite = 0
        self.changed = False


class Series:
    """All points of an instrument that adds up. `measure` is the instrument's own method.

    It appends to a list, which is atomic: no lock is held, so it may be called from signal handlers, callbacks
    of the garbage collector and any thread.
    """

    def __init__(
        self,
        current: CurrentRun,
        name: str,
        instrument: Instrument,
        scope_attrs: dict[str, Any],
        make: Callable[[], Aggregate],
        start: int,
    ) -> None:
        self.name = name
        self.instrument = instrument
        self._current = current
        self._scope_attrs = scope_attrs
        self._make = make
        self.begin(start)

    def begin(self, start: int) -> None:
        """Reset, for a new run or in a forked child."""
        instrument = structs.replace(self.instrument, start=start)
        self._packed = Raw(pack(instrument))
        about = f"values of {self.name} that are NaN or infinite"
        self._packed_nonfinite = Raw(pack(Instrument("sum", "{value}", about, True, True, start, instrument.scope)))
        self._lock = threading.Lock()
        self._known: dict[bytes, Point] = {}
        self._by_attributes: dict[tuple[Any, ...], Point] = {}
        self._bare = self._add(self._scope_attrs)

    def measure(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        """Add a measurement; never raises."""
        run = self._current.run
        if run is None:
            return
        try:
            point = self._by_attributes[tuple(attributes.items())] if attributes else self._bare
        except BaseException as raised:
            pass_on(raised)
            point = self._find(run, attributes)
        kind = type(amount)
        if kind is not float and kind is not int:
            number = as_number(run, self.name, amount)
            if number is None:
                return
            amount = number
        point.mark = current_mark.get() or run.active_mark
        point.append(amount)
        if amount > point.peak:
            point.peak = amount
            point.exemplar = _exemplar(amount, context)
        if len(point.pending) >= MAX_PENDING and self._lock.acquire(blocking=False):
            try:
                self._count(run, point)
            finally:
                self._lock.release()

    def _find(self, run: Part, attributes: Any) -> Point:
        """Find or create the point of an attribute set that is not cached."""
        attrs = {**self._scope_attrs, **masked_attributes(run, attributes)}
        key = pack(sorted(attrs.items()))
        point = self._known.get(key)
        if point is None:
            if len(self._known) > MAX_SETS:  # the set without attributes is always there
                run.outcomes.notice(
                    "cardinality",
                    self.name,
                    f"{self.name!r} has more than {MAX_SETS} attribute sets; further ones are counted as one, "
                    f"with {next(iter(OVERFLOW))}. Remove attributes that differ each time",
                )
                attrs = {**self._scope_attrs, **OVERFLOW}
            point = self._add(attrs)
        if len(self._by_attributes) < MAX_SPELLINGS:
            try:
                self._by_attributes[tuple(attributes.items())] = point
            except BaseException as raised:  # unhashable values take this path each time
                pass_on(raised)
        return point

    def _add(self, attrs: dict[str, Any]) -> Point:
        point = Point(attrs, self._make())
        return self._known.setdefault(pack(sorted(attrs.items())), point)

    def _count(self, run: Part, point: Point) -> None:
        """Aggregate pending measurements. The caller holds the lock; others may append meanwhile."""
        values = point.pending[:]
        del point.pending[: len(values)]
        if not values:
            return
        try:
            finite = list(filter(isfinite, values))
        except OverflowError:  # integers beyond every float
            finite = list(filter(isfinite, map(fitting, values)))
        if len(finite) < len(values):
            point.nonfinite += len(values) - len(finite)
            run.outcomes.notice("nonfinite", self.name, f"{self.name!r} got a NaN or infinite value")
        if self.instrument.monotonic and finite and min(finite) < 0:
            run.outcomes.reject(self.name, "negative")
            finite = [value for value in finite if value >= 0]
        if finite:
            point.aggregate.take(finite)
        point.changed = True

    def journal(self, run: Part, now: int) -> None:
        """Record every point that changed since the last time."""
        for number, point in enumerate(list(self._known.values())):
            if not number % SLICE:
                time.sleep(0)
            if not (point.pending or point.changed) or not self._lock.acquire(timeout=_PATIENCE):
                continue
            try:
                self._count(run, point)
                if point.changed:
                    point.changed = False
                    self._put(run, now, point)
            finally:
                self._lock.release()

    def _put(self, run: Part, now: int, point: Point) -> None:
        step, axis = point.mark or NO_MARK
        values = {self.name: point.aggregate.value()}
        exemplar, point.exemplar, point.peak = point.exemplar, None, -inf
        attrs: Any = point.attrs if exemplar is None else {**point.plain, ATTR_EXEMPLARS: [_packed_exemplar(*exemplar)]}
        run.recorder.put(pack((METRIC, now, step, axis, None, values, attrs, self._packed)))
        if point.nonfinite:
            values = {f"{self.name}.nonfinite": point.nonfinite}
            run.recorder.put(pack((METRIC, now, step, axis, None, values, point.attrs, self._packed_nonfinite)))


def _exemplar(amount: Number, where: Mapping[str, Any] | None) -> tuple[Number, int, trace.SpanContext] | None:
    """A measurement with its time and the sampled span it was made in; None when there was no such span."""
    try:
        span = (current() if where is None else where).get(SPAN_KEY)
        context = span.get_span_context() if isinstance(span, trace.Span) else None
        known = isinstance(context, trace.SpanContext) and context.is_valid and context.trace_flags.sampled
        return (amount, time.time_ns(), context) if known and context is not None else None
    except BaseException as raised:  # any object may be given as the context
        pass_on(raised)
        return None


def _packed_exemplar(amount: Number, at: int, context: trace.SpanContext) -> dict[str, Any]:
    ids = {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    return {"value": fitting(amount), "time": at, **ids, "attrs": {}}


def as_number(run: Part, name: str, amount: Any) -> Number | None:
    """Return a number of any library; None, counted as rejected, for anything else and for device values."""
    if type(amount) is int:
        return amount
    try:
        flat, held, media = flatten({name: amount}, run.outcomes.reject)
        if held or media:
            reason = "on a device: use run.log, which does not wait for it" if held else "not a number"
            run.outcomes.reject(name, reason)
            return None
        number: Number | None = flat.get(name)
        return number
    except BaseException as error:
        pass_on(error)
        run.outcomes.reject(name, type(error).__name__)
        return None
