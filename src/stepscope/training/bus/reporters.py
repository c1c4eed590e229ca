"""Reporters that write the bus's metrics or events to the journal or a console."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TextIO

import stepscope
from stepscope.extend import collect_meters, meters
from stepscope.model.records import Instrument
from stepscope.training.bus.definitions import Definition, listed
from stepscope.training.bus.event_bus import BUS, Bus, Function, Name
from stepscope.training.events.telemetry import Telemetry
from stepscope.training.inputs import reject

Take = Callable[[Definition, float, dict[str, Any]], None]
"""Called with each value of a metric, in its unit, and with its tags."""
SCOPE = "stepscope.bus"
_numbers = itertools.count(1)


class Listener:
    """Keeps a function attached to events from its creation until `close`."""

    def __init__(self, events: Iterable[Any], function: Function, bus: Bus = BUS) -> None:
        self._bus = bus
        self.id = f"stepscope-reporter-{next(_numbers)}"
        """The id of the attachment on the bus."""
        if events != []:
            bus.attach_many(self.id, events, function)

    def close(self) -> None:
        """Detach the function."""
        self._bus.detach(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


class Reporter(Listener):
    """Passes each value of some metrics to `take`, from its creation until `close`.

    If a definition raises or a measurement is not a number, only that value is dropped, and counted. ConfigError for
    an invalid definition.
    """

    def __init__(self, definitions: Iterable[Definition], take: Take, bus: Bus = BUS) -> None:
        self._take = take
        self._wanted: dict[Name, tuple[Definition, ...]] = {}
        for each in listed(definitions):
            for event in each.events:
                self._wanted[event] = (*self._wanted.get(event, ()), each)
        super().__init__(list(self._wanted), self._receive, bus)

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


class Journal:
    """Records values as metrics of the current run, and thus for every sink.

    Counters, sums and distributions are aggregated and recorded about once a second; each last value and each sample
    of a summary is a separate record, with its step.
    """

    def __init__(self) -> None:
        self._made: dict[Definition, Callable[..., Any]] = {}
        self._meter = meters().get_meter(SCOPE)

    def __call__(self, definition: Definition, value: float, labels: dict[str, Any]) -> None:
        """Record a value."""
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
                run.measure({of.name: value}, labels, samples)

        return sample


def journal_reporter(definitions: Iterable[Definition], bus: Bus = BUS) -> Reporter:
    """Record metrics in whichever run is current."""
    collect_meters()
    return Reporter(definitions, Journal(), bus)


def console_reporter(definitions: Iterable[Definition], stream: TextIO | None = None, bus: Bus = BUS) -> Reporter:
    """Write a line for each value, to standard output by default."""
    lock = threading.Lock()

    def write(of: Definition, value: float, labels: dict[str, Any]) -> None:
        tags = " ".join(f"{key}={labels[key]}" for key in labels)
        unit = f" {of.unit}" if of.unit else ""
        with lock:
            print(f"{of.kind:<12} {of.name} {value:g}{unit} {tags}".rstrip(), file=stream or sys.stdout)

    return Reporter(definitions, write, bus)


def event_reporter(events: Iterable[Any], session_id: str | None = None, bus: Bus = BUS) -> Listener:
    """Record bus events as events of the current run, under their dotted names.

    Each has its `measurements` and `metadata`, and its number within the session.
    """
    session = Telemetry(session_id)

    def forward(event: Name, measurements: Mapping[str, Any], metadata: Mapping[str, Any], config: Any) -> None:
        session.log(".".join(event), event_data={"measurements": dict(measurements), "metadata": dict(metadata)})

    return Listener(events, forward, bus)
