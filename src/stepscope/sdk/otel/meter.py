"""The meter of OpenTelemetry's API, its instruments, and their collection about once a second."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Raw
from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackT
from opentelemetry.util.types import Attributes

from stepscope.model.records import METRIC, Instrument
from stepscope.sdk.context import NO_MARK, current_mark, pack
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.otel import observables
from stepscope.sdk.otel.aggregate import Aggregate, Explicit, Exponential, Sum, bounds_for, fitting, is_ordered
from stepscope.sdk.otel.current_run import CurrentRun, attributes_of_scope, masked_attributes
from stepscope.sdk.otel.instrument_series import MAX_SPELLINGS, Series, as_number
from stepscope.sdk.run_protocols import Part, Resource

_time_ns = time.time_ns
Measure = Callable[[float, Attributes, Context | None], None]


class Counter(metrics.Counter):
    """A monotonic sum; negative amounts are rejected and counted."""

    __slots__ = ("add",)  # the series' own method: a call less on each measurement

    def __init__(self, series: Series) -> None:
        self.add: Measure = series.measure  # type: ignore[assignment]


class UpDownCounter(metrics.UpDownCounter):
    """A sum that may decrease."""

    __slots__ = ("add",)

    def __init__(self, series: Series) -> None:
        self.add: Measure = series.measure  # type: ignore[assignment]


class Histogram(metrics.Histogram):
    """The distribution of what is recorded."""

    __slots__ = ("record",)

    def __init__(self, series: Series) -> None:
        self.record: Measure = series.measure  # type: ignore[assignment]


_ApiGauge: Any = getattr(metrics, "Gauge", None) or getattr(metrics, "_Gauge", object)
"""The class is private in the API so far; a release that has it under neither name gets a gauge of its own kind."""


class Gauge(_ApiGauge):  # type: ignore[misc]
    """A gauge; every value is recorded at once with its time and step, including NaN and infinities."""

    __slots__ = ("_bare", "_by_attributes", "_current", "_instrument", "_name", "_scope_attrs")

    def __init__(self, current: CurrentRun, name: str, instrument: Instrument, scope_attrs: dict[str, Any]) -> None:
        self._current = current
        self._name = name
        self._scope_attrs = scope_attrs
        self._bare = Raw(pack(scope_attrs))
        self._instrument = Raw(pack(instrument))
        self._by_attributes: dict[tuple[Any, ...], Raw] = {}

    def set(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        """Record a value; never raises."""
        run = self._current.run
        if run is None:
            return
        try:
            attrs = self._by_attributes[tuple(attributes.items())] if attributes else self._bare
        except BaseException as raised:
            pass_on(raised)
            attrs = self._clean(run, attributes)
        if type(amount) is not float:
            number = as_number(run, self._name, amount)
            if number is None:
                return
            amount = fitting(number)
        mark = current_mark.get() or run.active_mark or NO_MARK
        values = {self._name: amount}
        packed = pack((METRIC, _time_ns(), mark[0], mark[1], None, values, attrs, self._instrument))
        recorder = run.recorder
        recorder.append(packed)
        if len(recorder.buffer) >= recorder.limit:
            recorder.enforce_quota()

    def _clean(self, run: Any, attributes: Any) -> Raw:
        attrs = Raw(pack({**self._scope_attrs, **masked_attributes(run, attributes)}))
        if len(self._by_attributes) < MAX_SPELLINGS:
            try:
                self._by_attributes[tuple(attributes.items())] = attrs
            except BaseException as raised:  # unhashable values take this path each time
                pass_on(raised)
        return attrs


log = logging.getLogger("stepscope")
Made = TypeVar("Made")
MAX_INSTRUMENTS = 10_000
AGGREGATION = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
EXPONENTIAL = "base2_exponential_bucket_histogram"


class MeterProvider(metrics.MeterProvider):
    """The instruments of all libraries in the process; a new run resets them."""

    def __init__(self, current: CurrentRun) -> None:
        self.current = current
        self.series: list[Series] = []
        self.sources: list[observables.Source] = []
        self.start = time.time_ns()
        self._meters: dict[tuple[Any, ...], Meter] = {}

    @property
    def resource(self) -> Resource:
        """The resource of this process, as the SDK's providers have it."""
        return self.current.resource

    def get_meter(
        self,
        name: str,
        version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> "Meter":
        """The meter of a library; the same for the same name and version."""
        key = (str(name), version, schema_url)
        return self._meters.get(key) or self._meters.setdefault(
            key, Meter(self, str(name), version, schema_url, attributes_of_scope(version, attributes, schema_url))
        )

    def begin(self, start: int) -> None:
        """Reset every instrument."""
        self.start = start
        for series in self.series:
            series.begin(start)
        for source in self.sources:
            source.begin(start)


class Meter(metrics.Meter):
    """Creates the instruments of one library; an existing one is returned again. Never raises."""

    def __init__(
        self,
        provider: MeterProvider,
        name: str,
        version: str | None,
        schema_url: str | None,
        scope_attrs: dict[str, Any],
    ) -> None:
        super().__init__(name, version, schema_url)
        self._provider = provider
        self._scope_attrs = scope_attrs
        self._made: dict[tuple[Any, ...], Any] = {}
        self._first: dict[str, tuple[Any, ...]] = {}
        self._warned: set[str] = set()

    def create_counter(self, name: str, unit: str = "", description: str = "") -> metrics.Counter:
        """Create a monotonic sum."""
        about = self._about("sum", unit, description, monotonic=True)
        return self._once(Counter, name, about, lambda make: make(self._series(name, about, Sum)))

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> metrics.UpDownCounter:
        """A sum that may decrease."""
        about = self._about("sum", unit, description)
        return self._once(UpDownCounter, name, about, lambda make: make(self._series(name, about, Sum)))

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float] | None = None,
    ) -> metrics.Histogram:
        """Create a histogram: with the advised bounds, those for the unit, or exponential if so configured."""
        advised = explicit_bucket_boundaries_advisory
        if advised is not None and not is_ordered(advised):
            self._warn(name, "its bounds are not increasing; defaults for the unit are used")
        exponential = os.environ.get(AGGREGATION, "").strip().lower() == EXPONENTIAL
        about = self._about("exponential_histogram" if exponential else "histogram", unit, description)
        bounds = bounds_for(about.unit, advised)
        aggregate: Callable[[], Aggregate] = Exponential if exponential else lambda: Explicit(bounds)
        return self._once(Histogram, name, about, lambda make: make(self._series(name, about, aggregate)), bounds)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Gauge:
        """Create a gauge; every value is recorded."""
        about = self._about("gauge", unit, description)
        current, scope_attrs = self._provider.current, self._scope_attrs
        return self._once(Gauge, name, about, lambda make: make(current, str(name), about, scope_attrs))

    def create_observable_counter(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> metrics.ObservableCounter:
        """Create a monotonic sum observed by callbacks."""
        about = self._about("sum", unit, description, monotonic=True)
        return observables.ObservableCounter(self._source(name, about, callbacks))

    def create_observable_up_down_counter(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> metrics.ObservableUpDownCounter:
        """Create a sum observed by callbacks."""
        about = self._about("sum", unit, description)
        return observables.ObservableUpDownCounter(self._source(name, about, callbacks))

    def create_observable_gauge(
        self, name: str, callbacks: Sequence[CallbackT] | None = None, unit: str = "", description: str = ""
    ) -> metrics.ObservableGauge:
        """Create a gauge observed by callbacks."""
        about = self._about("gauge", unit, description)
        return observables.ObservableGauge(self._source(name, about, callbacks))

    def _about(self, kind: str, unit: Any, description: Any, *, monotonic: bool = False) -> Instrument:
        return Instrument(kind, str(unit or ""), str(description or ""), True, monotonic, 0, self._name)

    def _once(
        self,
        kind: type[Made],
        name: str,
        about: Instrument,
        make: Callable[[type[Made]], Made],
        bounds: tuple[float, ...] = (),
    ) -> Made:
        """Create an instrument, or return the existing one; names are case-insensitive."""
        title = str(name).lower()
        identity = (kind, about, bounds)
        if self._first.setdefault(title, identity) != identity:
            self._warn(name, "it was created before with another type, unit, description or bounds")
        found: Made | None = self._made.get((title, kind, about))
        return self._made.setdefault((title, kind, about), make(kind)) if found is None else found

    def _series(self, name: str, about: Instrument, make: Callable[[], Aggregate]) -> Series:
        provider = self._provider
        series = Series(provider.current, str(name), about, self._scope_attrs, make, provider.start)
        if len(provider.series) < MAX_INSTRUMENTS:
            provider.series.append(series)
        else:
            self._warn(name, f"there are more than {MAX_INSTRUMENTS} instruments, so it is not recorded")
        return series

    def _source(self, name: str, about: Instrument, callbacks: Sequence[CallbackT] | None) -> observables.Source:
        """Make a source, or find the one made before and give it more callbacks."""
        scope_attrs, start = self._scope_attrs, self._provider.start
        source = self._once(observables.Source, name, about, lambda make: make(str(name), about, scope_attrs, start))
        source.add(callbacks)
        if source not in self._provider.sources:
            self._provider.sources.append(source)
        return source

    def _warn(self, name: str, what: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            log.warning("OpenTelemetry instrument %r: %s", name, what)


LAST_SECONDS = 1.0
"""How long the end of a run waits for its callbacks."""


class Collector:
    """Journals the instruments of one run; called about once a second by its flusher."""

    def __init__(self, run: Part, meters: MeterProvider) -> None:
        self._run = run
        self._meters = meters
        self._observer = observables.Observer(self._observe)
        self._ended = False

    def after_fork(self) -> None:
        """Discard the parent's thread."""
        self._observer = observables.Observer(self._observe)

    def __call__(self) -> None:
        if self._ended:
            return
        self._journal(self._meters.series)
        if self._meters.sources:
            self._observer.ask()

    def end(self) -> None:
        """Record all instruments a last time; later measurements belong to another run."""
        self._journal(self._meters.series)
        self._ended = True
        if self._meters.sources and not self._observer.stop(min(LAST_SECONDS, self._run.settings.exit_timeout)):
            self._run.outcomes.add("failed", "callback", "slow")

    def _observe(self) -> None:
        self._journal(self._meters.sources)

    def _journal(self, instruments: Sequence[Series | observables.Source]) -> None:
        now = time.time_ns()
        for each in list(instruments):
            try:
                each.journal(self._run, now)
            except BaseException as error:
                pass_on(error)
                self._run.outcomes.add("failed", "collect", type(error).__name__)
