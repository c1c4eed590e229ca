"""An event bus: emitting an event calls the functions attached to it."""

import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import describe_error, exception_attrs, text_of
from stepscope.training.inputs import reject

_contexts = itertools.count(1)
Execute = Callable[[Any, Any, Any], None]


class BusSpan:
    """Emits the start and end events of a span. Durations are nanoseconds of the monotonic clock."""

    def __init__(self, execute: Execute, prefix: tuple[str, ...], metadata: Mapping[str, Any]) -> None:
        self._execute = execute
        self._prefix = prefix
        self._began = 0
        context = metadata.get("telemetry_span_context", next(_contexts))
        self._given: dict[str, Any] = {**metadata, "telemetry_span_context": context}
        self.metadata: dict[str, Any] = dict(self._given)
        """The metadata of `stop`; may be changed until then."""
        self.measurements: dict[str, Any] = {}
        """Measurements of `stop`, besides the duration."""

    def run(self, function: Callable[[], Any]) -> Any:
        """Call the function; a coroutine function runs when the result is awaited."""
        if inspect.iscoroutinefunction(function):
            return self._run_async(function)
        with self:
            return self._unpack(function())

    async def _run_async(self, function: Callable[[], Any]) -> Any:
        with self:
            return self._unpack(await function())

    def _unpack(self, returned: Any) -> Any:
        """Return the result; keep the measurements and metadata that may come with it for `stop`."""
        if (
            isinstance(returned, tuple)
            and 2 <= len(returned) <= 3
            and all(isinstance(a, Mapping) for a in returned[1:])
        ):
            context = self._given["telemetry_span_context"]
            self.metadata = {"telemetry_span_context": context, **returned[-1]}
            if len(returned) == 3:
                self.measurements.update(returned[1])
            return returned[0]
        return returned

    def __enter__(self) -> "BusSpan":
        self._began = time.monotonic_ns()
        now = {"monotonic_time": self._began, "system_time": time.time_ns()}
        self._execute((*self._prefix, "start"), now, self._given)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        now = time.monotonic_ns()
        measured = {**self.measurements, "duration": now - self._began, "monotonic_time": now}
        if error is None:
            self._execute((*self._prefix, "stop"), measured, self.metadata)
            return
        stack = exception_attrs(error)["exception.stacktrace"]
        details = {**self._given, "kind": type(error).__name__, "reason": error, "error": error, "stacktrace": stack}
        self._execute((*self._prefix, "exception"), measured, details)

    async def __aenter__(self) -> "BusSpan":
        return self.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)


Name = tuple[str, ...]
"""The name of an event: `("http", "request", "stop")`. Arguments may also be `"http.request.stop"`."""
Function = Callable[[Name, Mapping[str, Any], Mapping[str, Any], Any], object]
"""Called with the event, its measurements, its metadata, and the config passed to `attach`."""

FAILURE: Name = ("telemetry", "handler", "failure")
"""The event emitted when a function raised and was detached."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A function attached to an event."""

    id: str
    event: Name
    function: Function
    config: Any = None


class Bus:
    """Calls the functions attached to events, on the caller's thread, in the order in which they were attached.

    A function that raises is detached from all its events, and the event `telemetry.handler.failure` is emitted; the
    exception does not propagate. `execute` takes no lock. A function detached while an event is being emitted may be
    called once more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[Attachment, ...]] = {}
        self._events: dict[Name, tuple[Attachment, ...]] = {}

    def attach(self, handler_id: Any, event: Any, function: Function, config: Any = None) -> bool:
        """Attach a function to an event; False when the id is in use or an argument is invalid, which is counted."""
        return self.attach_many(handler_id, [event], function, config)

    def attach_many(self, handler_id: Any, events: Iterable[Any], function: Function, config: Any = None) -> bool:
        """Attach a function to several events; False when the id is in use or an argument is invalid."""
        names = _event_names(events)
        if not names or not callable(function):
            reject("attach", events)
            return False
        key = text_of(handler_id)
        made = tuple(Attachment(key, each, function, config) for each in names)
        with self._lock:
            if key in self._ids:
                return False
            self._ids[key] = made
            for each in made:
                self._events[each.event] = (*self._events.get(each.event, ()), each)
        return True

    def detach(self, handler_id: Any) -> bool:
        """Detach the function attached under an id; False when there is none."""
        with self._lock:
            gone = self._ids.pop(text_of(handler_id), ())
            for each in gone:
                left = tuple(other for other in self._events.get(each.event, ()) if other is not each)
                if left:
                    self._events[each.event] = left
                else:
                    self._events.pop(each.event, None)
        return bool(gone)

    def _attached(self, prefix: Any = ()) -> list[Attachment]:
        """The attachments to events with a prefix; all attachments without one."""
        start = () if not prefix else event_name(prefix)
        if start is None:
            return []
        with self._lock:
            events = dict(self._events)
        return [each for event, found in events.items() if event[: len(start)] == start for each in found]

    list_handlers = _attached  # the published name

    def execute(self, event: Any, measurements: Any = None, metadata: Any = None) -> None:
        """Emit an event. A number instead of measurements means `{"value": number}`."""
        name: Any = event if type(event) is tuple else event_name(event)
        try:
            called = self._events.get(name)
        except Exception:  # an invalid name may be unhashable
            called = None
        if not called:
            if event_name(name) is None:
                reject("event", event)
            return
        if isinstance(measurements, (int, float)):
            measurements = {"value": measurements}
        numbers, details = _mapping("measurements", measurements), _mapping("metadata", metadata)
        for each in called:
            try:
                each.function(each.event, numbers, details, each.config)
            except Exception as error:
                self._announce(each, error)

    def span(self, prefix: Any, metadata: Any = None, function: Any = None) -> Any:
        """Run a function between the events `start` and `stop`; if it raises, `exception` replaces `stop`.

        The function returns `(result, metadata)` or `(result, measurements, metadata)` for `stop`, or the result alone.
        For a coroutine function the returned value is awaitable. Without a function this is a context manager, sync or
        async, and `stop` has the value of its attribute `metadata` at exit. With an invalid prefix the function runs
        without events.
        """
        if function is not None and not callable(function):
            reject("function", function)
            return None
        name = event_name(prefix)
        if name is None:
            reject("span", prefix)
        made = BusSpan(_ignore_event if name is None else self.execute, name or (), _mapping("metadata", metadata))
        return made if function is None else made.run(function)

    def _announce(self, failed: Attachment, error: Exception) -> None:
        self.detach(failed.id)
        run = stepscope.current_run()
        if run is not None:
            run.count("failed", "bus", type(error).__name__)
            text = f"{failed.id!r} raised {describe_error(error)} at {'.'.join(failed.event)} and is detached"
            run.warn(text)
            run.event(
                ".".join(FAILURE), {"handler_id": failed.id, "event_name": ".".join(failed.event), "reason": text}
            )
        details = {
            "handler_id": failed.id,
            "handler_config": failed.config,
            "event_name": failed.event,
            "kind": type(error).__name__,
            "reason": error,
            "stacktrace": exception_attrs(error)["exception.stacktrace"],
        }
        if failed.event != FAILURE or self._events.get(FAILURE):
            self.execute(FAILURE, {"monotonic_time": time.monotonic_ns(), "system_time": time.time_ns()}, details)


def event_name(event: Any) -> Name | None:
    """Parse the name of an event: a sequence of strings, or one with dots; None when it is neither."""
    if isinstance(event, str):
        return tuple(event.split(".")) if event else None
    if not isinstance(event, (tuple, list)) or not event or not all(isinstance(part, str) for part in event):
        return None
    return tuple(event)


def _event_names(events: Any) -> list[Name]:
    """Parse the names of several events, without duplicates; empty when any of them is invalid."""
    if not isinstance(events, Iterable) or isinstance(events, (str, bytes, Mapping)):
        return []
    try:
        found = [event_name(each) for each in events]
    except Exception:  # a user's iterator raised
        return []
    return [] if None in found else [each for each in dict.fromkeys(found) if each]


def _ignore_event(event: Any, measurements: Any, metadata: Any) -> None:
    """Ignore an event with an invalid name."""


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    reject(what, given)
    return {}


BUS = Bus()
"""The bus of the process."""
execute, span = BUS.execute, BUS.span
attach, attach_many, detach = BUS.attach, BUS.attach_many, BUS.detach
list_handlers = BUS.list_handlers
