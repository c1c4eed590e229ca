"""Observable instruments and their callbacks."""

import threading
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any

from msgspec import Raw, structs
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from stepscope.model.records import METRIC, Instrument
from stepscope.sdk.context import NO_MARK, pack
from stepscope.sdk.otel.aggregate import Number, fitting
from stepscope.sdk.otel.current_run import masked_attributes
from stepscope.sdk.otel.instrument_series import MAX_SETS, as_number
from stepscope.sdk.run_protocols import Part

_OPTIONS = CallbackOptions(timeout_millis=1000)


class Source:
    """The callbacks of an observable instrument. One that raises is counted, and the others continue."""

    def __init__(self, name: str, instrument: Instrument, scope_attrs: dict[str, Any], start: int) -> None:
        self.name = name
        self.instrument = instrument
        self._scope_attrs = scope_attrs
        self._callbacks: list[Callable[[CallbackOptions], Iterable[Observation]]] = []
        self.begin(start)

    def begin(self, start: int) -> None:
        """Reset, for a new run or in a forked child."""
        self._gauge = self.instrument.type == "gauge"
        self._packed = Raw(pack(structs.replace(self.instrument, start=0 if self._gauge else start)))
        self._last: dict[bytes, Number] = {}

    def add(self, callbacks: Any) -> None:
        """Add callbacks: functions, or generators to which the options are sent; anything else is ignored."""
        given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        for callback in given:
            if isinstance(callback, Generator):
                self._callbacks.append(_sender(callback))
            elif callable(callback):
                self._callbacks.append(callback)

    def journal(self, run: Part, now: int) -> None:
        """Call every callback and record its observations: gauges always, sums when they changed."""
        for callback in list(self._callbacks):
            try:
                for observation in islice(callback(_OPTIONS) or (), MAX_SETS):
                    self._put(run, now, observation)
            except BaseException as error:  # sys.exit in a callback ends the callback, not the observing
                run.outcomes.add("failed", "callback", type(error).__name__)
                run.outcomes.notice(
                    "callback", self.name, f"a callback of {self.name!r} raised {error!r}; it will be asked again"
                )

    def _put(self, run: Part, now: int, observation: Observation) -> None:
        number = as_number(run, self.name, observation.value)
        if number is None:
            return
        attrs = {**self._scope_attrs, **masked_attributes(run, observation.attributes)}
        number = fitting(number)
        if not self._gauge:
            key = pack(sorted(attrs.items()))
            if self._last.get(key) == number:
                return
            if key in self._last or len(self._last) < MAX_SETS:
                self._last[key] = number
        step, axis = run.active_mark or NO_MARK
        values = {self.name: number}
        run.recorder.put(pack((METRIC, now, step, axis, None, values, attrs, self._packed)))


class ObservableCounter(metrics.ObservableCounter):
    """A monotonic sum read by callbacks."""

    def __init__(self, source: Source) -> None:
        self.source = source


class ObservableUpDownCounter(metrics.ObservableUpDownCounter):
    """A sum read by callbacks."""

    def __init__(self, source: Source) -> None:
        self.source = source


class ObservableGauge(metrics.ObservableGauge):
    """A gauge read by callbacks."""

    def __init__(self, source: Source) -> None:
        self.source = source


class Observer:
    """A thread that calls the callbacks on request; a callback that hangs blocks nothing else."""

    def __init__(self, round_: Callable[[], None]) -> None:
        self._round = round_
        self._asked = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def ask(self) -> bool:
        """Request a round, unless one is running; False when no thread can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._loop, name="stepscope-observer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no new threads at interpreter shutdown
                return False
            self._thread = thread
        self._asked.set()
        return True

    def stop(self, timeout: float) -> bool:
        """Request a last round and wait for it; False on timeout."""
        self._done.clear()
        self._stopping = True
        return self.ask() and self._done.wait(timeout)

    def _loop(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            stopping = self._stopping
            self._round()
            if stopping:
                self._done.set()
                return


def _sender(generator: Generator[Any, Any, None]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Make a generator behave like a function; one that has ended observes nothing."""
    started = False

    def send(options: CallbackOptions) -> Iterable[Observation]:
        nonlocal started
        try:
            if not started:
                started = True
                next(generator)
            observed: Iterable[Observation] = generator.send(options)
            return observed
        except StopIteration:
            return ()

    return send
