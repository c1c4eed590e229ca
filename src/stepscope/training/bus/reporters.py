"""Reporters turn events of the bus into metrics: in the journal, on a console; Prometheus has a module of its own."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TextIO

import stepscope
from stepscope.model.records import Instrument
from stepscope.training import points
from stepscope.training.bus.definitions import Definition
from stepscope.training.bus.dispatch import BUS, Bus, Name
from stepscope.training.counting import reject
from stepscope.training.service.meters import follow, meters

Take = Callable[[Definition, float, dict[str, Any]], None]
"""Takes one value of a metric, in its unit, with its tags."""
SCOPE = "stepscope.bus"
_numbers = itertools.count(1)


class Reporter:
    """Has each value of some metrics taken, from when it is made until it is closed.

    A definition that raises, or a measurement that is no number, costs that value only, and is counted.
    """

    def __init__(self, definitions: Iterable[Definition], take: Take, bus: Bus = BUS) -> None:
        self._take = take
        self._bus = bus
        self._wanted: dict[Name, tuple[Definition, ...]] = {}
        for each in definitions:
            for event in each.events:
                self._wanted[event] = (*self._wanted.get(event, ()), each)
        self.id = f"stepscope-reporter-{next(_numbers)}"
        """What it is attached to the bus under."""
        if self._wanted:
            bus.attach_many(self.id, list(self._wanted), self._receive)

    def _receive(self, event: Name, measurements: Mapping[str, Any], metadata: Mapping[str, Any], config: Any) -> None:
        for each in self._wanted[event]:
            try:
                if each.keep is not None and not each.keep(metadata):
                    continue
                value = each.value(measurements, metadata)
                if value is not None:
                    self._take(each, value, each.labels(metadata))
            except Exception as error:
                reject("measurement", error)

    def close(self) -> None:
        """Take no more."""
        self._bus.detach(self.id)

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class Journal:
    """Records values as metrics of the current run, and so for every sink.

    Counters, sums and distributions are added up and recorded about once a second; each last value and each sample of
    a summary is a record of its own, with its step.
    """

    def __init__(self) -> None:
        self._made: dict[Definition, Callable[..., Any]] = {}
        self._meter = meters().get_meter(SCOPE)

    def __call__(self, definition: Definition, value: float, labels: dict[str, Any]) -> None:
        """Take a value."""
        made = self._made.get(definition)
        if made is None:
            made = self._made[definition] = self._make(definition)
        made(value, labels)

    def _make(self, of: Definition) -> Callable[..., Any]:
        meter = self._meter
        if of.kind == "counter":
            return meter.create_counter(of.name, of.unit, of.description).add
        if of.kind == "sum":
            return meter.create_up_down_counter(of.name, of.unit, of.description).add
        if of.kind == "last_value":
            return meter.create_gauge(of.name, of.unit, of.description).set
        if of.kind == "distribution":
            return meter.create_histogram(
                of.name, of.unit, of.description, explicit_bucket_boundaries_advisory=of.buckets
            ).record
        samples = Instrument("histogram", of.unit, of.description, cumulative=False, scope=SCOPE)

        def sample(value: float, labels: dict[str, Any]) -> None:
            run = stepscope.current_run()
            if run is not None:
                points.put(run, {of.name: value}, labels, samples)

        return sample


def journal_reporter(definitions: Iterable[Definition], bus: Bus = BUS) -> Reporter:
    """Record metrics in the current run, whichever that is."""
    follow()
    return Reporter(definitions, Journal(), bus)


def console_reporter(definitions: Iterable[Definition], stream: TextIO | None = None, bus: Bus = BUS) -> Reporter:
    """Write a line for each value; to standard output unless a stream is given."""
    lock = threading.Lock()

    def write(of: Definition, value: float, labels: dict[str, Any]) -> None:
        tags = " ".join(f"{key}={labels[key]}" for key in labels)
        unit = f" {of.unit}" if of.unit else ""
        with lock:
            print(f"{of.kind:<12} {of.name} {value:g}{unit} {tags}".rstrip(), file=stream or sys.stdout)

    return Reporter(definitions, write, bus)
