"""An event bus: code says what happens, and functions that are attached to an event are called with it."""

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
    """Emits the start and the end of a piece of work. Durations are nanoseconds of the monotonic clock."""

    def __init__(self, execute: Execute, prefix: tuple[str, ...], metadata: Mapping[str, Any]) -> None:
        self._execute = execute
        self._prefix = prefix
        self._began = 0
        context = metadata.get("telemetry_span_context", next(_contexts))
        self._given: dict[str, Any] = {**metadata, "telemetry_span_context": context}
        self.metadata: dict[str, Any] = dict(self._given)
        """The metadata of `stop`; it may be changed until then."""
        self.measurements: dict[str, Any] = {}
        """Measurements of `stop` beside the duration."""

    def run(self, function: Callable[[], Any]) -> Any:
        """Call the function; a coroutine function runs when the answer is awaited."""
        if inspect.iscoroutinefunction(function):
            return self._later(function)
        with self:
            return self._take(function())

    async def _later(self, function: Callable[[], Any]) -> Any:
        with self:
            return self._take(await function())

    def _take(self, answer: Any) -> Any:
        """Split an answer into the result and what `stop` has; any other answer is the result."""
        if isinstance(answer, tuple) and 2 <= len(answer) <= 3 and all(isinstance(a, Mapping) for a in answer[1:]):
            context = self._given["telemetry_span_context"]
            self.metadata = {"telemetry_span_context": context, **answer[-1]}
            if len(answer) == 3:
                self.measurements.update(answer[1])
            return answer[0]
        return answer

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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, where)


Name = tuple[str, ...]
"""The name of an event: `("http", "request", "stop")`. Where one is given, `"http.request.stop"` does as well."""
Function = Callable[[Name, Mapping[str, Any], Mapping[str, Any], Any], object]
"""Called with the event, its measurements, its metadata, and the config it was attached with."""

FAILURE: Name = ("telemetry", "handler", "failure")
"""Announces that a function raised and was detached."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A function that is called at an event."""

    id: str
    event: Name
    function: Function
    config: Any = None


class Bus:
    """Calls functions at events, on the thread of the caller, in the order in which they were attached.

    No method raises for what a function does: one that raises is detached from all its events and announced by
    the event `telemetry.handler.failure`. `execute` takes no lock. Nothing is promised about a function that is
    detached while an event is under way: it may be called once more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, tuple[Attachment, ...]] = {}
        self._events: dict[Name, tuple[Attachment, ...]] = {}

    def attach(self, handler_id: Any, event: Any, function: Function, config: Any = None) -> bool:
        """Have a function called at an event; False when the id is taken or something is wrong, which is counted."""
        return self.attach_many(handler_id, [event], function, config)

    def attach_many(self, handler_id: Any, events: Iterable[Any], function: Function, config: Any = None) -> bool:
        """Have a function called at several events; False when the id is taken or something is wrong."""
        wanted = _event_names(events)
        if not wanted or not callable(function):
            reject("attach", events)
            return False
        key = text_of(handler_id)
        made = tuple(Attachment(key, each, function, config) for each in wanted)
        with self._lock:
            if key in self._ids:
                return False
            self._ids[key] = made
            for each in made:
                self._events[each.event] = (*self._events.get(each.event, ()), each)
        return True

    def detach(self, handler_id: Any) -> bool:
        """Detach what was attached under an id; False when there is nothing."""
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
        """What is attached to events that begin with a prefix; to all events without one."""
        begin = () if not prefix else event_name(prefix)
        if begin is None:
            return []
        with self._lock:
            events = dict(self._events)
        return [each for event, found in events.items() if event[: len(begin)] == begin for each in found]

    list_handlers = _attached  # the published name

    def execute(self, event: Any, measurements: Any = None, metadata: Any = None) -> None:
        """Emit an event. A plain number for measurements is `{"value": number}`."""
        name: Any = event if type(event) is tuple else event_name(event)
        try:
            called = self._events.get(name)
        except Exception:  # a value that is not a name may not be hashable
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
        """Run a function between the events `start` and `stop`, or `exception`, which it then raises.

        The function gives `(result, metadata)` or `(result, measurements, metadata)` for `stop`; any other answer is
        the result itself. For a coroutine function the answer is awaitable. Without a function this is a context
        manager, sync or async, and the metadata of `stop` is what its `metadata` has become by then. With a prefix
        that is not a name the function runs without events; a value that is not callable does not run.
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
    """Read the name of an event: texts in a row, or one with dots; None when it is neither."""
    if isinstance(event, str):
        return tuple(event.split(".")) if event else None
    if not isinstance(event, (tuple, list)) or not event or not all(isinstance(part, str) for part in event):
        return None
    return tuple(event)


def _event_names(events: Any) -> list[Name]:
    """Read the names of several events, each once; none when one of them is no name, or they cannot be read."""
    if not isinstance(events, Iterable) or isinstance(events, (str, bytes, Mapping)):
        return []
    try:
        found = [event_name(each) for each in events]
    except Exception:  # whatever a foreign iterator raises
        return []
    return [] if None in found else [each for each in dict.fromkeys(found) if each]


def _ignore_event(event: Any, measurements: Any, metadata: Any) -> None:
    """Ignore an event without a name."""


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
