"""A poller: measures periodically and says what it measured on the bus."""

import importlib
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import describe_error, text_of
from stepscope.training.bus.dispatch import BUS, Bus
from stepscope.training.bus.runtime import dispatch_runtime_metrics
from stepscope.training.counting import reject

PERIOD = 10.0
LONG_PERIOD = 1000.0
"""A period of so many seconds was probably meant in milliseconds, as Erlang has it."""
Measurement = Callable[[], object] | tuple[Any, Callable[[], Any]] | tuple[Any, str, Iterable[Any]]
"""A function that says what it measures by itself, or an event and a function whose answer is its measurements.

In the manner of Erlang also a module, or its name, the name of a function in it, and the function's arguments; any
object does for a module.
"""


class Poller:
    """Measures every `period` seconds on a thread of its own, first at once, until it is stopped.

    Erlang's poller has its period in milliseconds. A measurement that raises is not asked again; it is counted and
    named once. A period or measurements that are none are counted, and the usual period or no measurements taken.
    """

    def __init__(
        self, measurements: Iterable[Measurement] | None = None, period: Any = PERIOD, *, bus: Bus = BUS
    ) -> None:
        self._bus = bus
        self._period: float = period if isinstance(period, (int, float)) and period > 0 else PERIOD
        if self._period != period:
            reject("period", period)
        self._period = min(self._period, threading.TIMEOUT_MAX)
        run = stepscope.current_run()
        if self._period >= LONG_PERIOD and run is not None:
            text = f"Poller(period={self._period:g}) is in seconds; Erlang's period is in milliseconds"
            run.warn(text)
        runtime: list[Measurement] = [lambda: dispatch_runtime_metrics(bus)]
        self.measurements = runtime if measurements is None else _listed(measurements)
        """Those that are still asked."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Poller":
        """Begin; a second start does nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = threading.Thread(target=self._loop, name="stepscope-poller", daemon=True)
            self._thread.start()
        return self

    def stop(self, timeout: float = 1.0) -> None:
        """End, and wait for a measurement that is under way, but no longer than the timeout."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def poll(self) -> None:
        """Measure once, now and here."""
        for each in list(self.measurements):
            try:
                self._measure(each)
            except Exception as error:
                self.measurements.remove(each)
                self._give_up(each, error)

    def _measure(self, measurement: Any) -> None:
        if callable(measurement):
            measurement()
            return
        first, function, *arguments = measurement
        if not arguments:
            self._bus.execute(first, function(), {})
            return
        module = importlib.import_module(first) if isinstance(first, str) else first
        getattr(module, function)(*arguments[0])

    def _give_up(self, measurement: Any, error: Exception) -> None:
        run = stepscope.current_run()
        if run is not None:
            run.count("failed", "poller", type(error).__name__)
            named = text_of(measurement)
            run.warn(f"the poller's measurement {named} raised {describe_error(error)}; it is not asked again")

    def _loop(self) -> None:
        while True:
            self.poll()
            if self._stopping.wait(self._period):
                return

    def __enter__(self) -> "Poller":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def _listed(measurements: Any) -> list[Measurement]:
    try:
        return list(measurements)
    except Exception:  # nothing that can be gone through, or whatever a foreign iterator raises
        reject("measurements", measurements)
        return []
