"""OpenTelemetry's instruments: sums and histograms add up, every set of a gauge is a record of its own."""

import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw
from opentelemetry import metrics
from opentelemetry.context import Context
from opentelemetry.util.types import Attributes

from stepscope.model.records import METRIC, Instrument
from stepscope.sdk.context import NOWHERE, current_mark, pack
from stepscope.sdk.otel.aggregate import fitting
from stepscope.sdk.otel.current_run import CurrentRun, clean_attributes
from stepscope.sdk.otel.series import MOST_SPELLINGS, Series, as_number

_time_ns = time.time_ns
Measure = Callable[[float, Attributes, Context | None], None]


class Counter(metrics.Counter):
    """A sum that only rises; a negative amount is rejected and counted."""

    __slots__ = ("add",)  # the series' own method: a call less on each measurement

    def __init__(self, series: Series) -> None:
        self.add: Measure = series.measure  # type: ignore[assignment]


class UpDownCounter(metrics.UpDownCounter):
    """A sum that rises and falls."""

    __slots__ = ("add",)

    def __init__(self, series: Series) -> None:
        self.add: Measure = series.measure  # type: ignore[assignment]


class Histogram(metrics.Histogram):
    """The distribution of what is recorded."""

    __slots__ = ("record",)

    def __init__(self, series: Series) -> None:
        self.record: Measure = series.measure  # type: ignore[assignment]


class Gauge(getattr(metrics, "Gauge", None) or metrics._Gauge):  # type: ignore[misc]  # the name is private so far
    """A value that is; each set is recorded at once with its time and step, NaN and infinities too."""

    __slots__ = ("_bare", "_current", "_instrument", "_name", "_said", "_spelled")

    def __init__(self, current: CurrentRun, name: str, instrument: Instrument, said: dict[str, Any]) -> None:
        self._current = current
        self._name = name
        self._said = said
        self._bare = Raw(pack(said))
        self._instrument = Raw(pack(instrument))
        self._spelled: dict[tuple[Any, ...], Raw] = {}

    def set(self, amount: float, attributes: Attributes = None, context: Context | None = None) -> None:
        """Record a value; never raises."""
        run = self._current.run
        if run is None:
            return
        try:
            attrs = self._spelled[tuple(attributes.items())] if attributes else self._bare
        except Exception:
            attrs = self._clean(run, attributes)
        if type(amount) is not float:
            number = as_number(run, self._name, amount)
            if number is None:
                return
            amount = fitting(number)
        mark = current_mark.get() or run.active_mark or NOWHERE
        values = {self._name: amount}
        packed = pack((METRIC, _time_ns(), mark[0], mark[1], None, values, attrs, self._instrument))
        recorder = run.recorder
        recorder.append(packed)
        if len(recorder.buffer) >= recorder.limit:
            recorder.crowded()

    def _clean(self, run: Any, attributes: Any) -> Raw:
        attrs = Raw(pack({**self._said, **clean_attributes(run, attributes)}))
        if len(self._spelled) < MOST_SPELLINGS:
            try:
                self._spelled[tuple(attributes.items())] = attrs
            except Exception:  # values that have no hash take this way each time
                pass
        return attrs
