"""A piece of work between two events of the bus: `start`, and `stop` or `exception`."""

import inspect
import itertools
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from stepscope.extend import exception_attrs

_contexts = itertools.count(1)
Execute = Callable[[Any, Any, Any], None]


class BusSpan:
    """Says when a piece of work starts, and how it ends. Its durations are nanoseconds of the monotonic clock."""

    def __init__(self, execute: Execute, prefix: tuple[str, ...], metadata: Mapping[str, Any]) -> None:
        self._execute = execute
        self._prefix = prefix
        self._began = 0
        context = metadata.get("telemetry_span_context", next(_contexts))
        self._given: dict[str, Any] = {**metadata, "telemetry_span_context": context}
        self.metadata: dict[str, Any] = dict(self._given)
        """What `stop` will say; change it while the work goes on."""
        self.measurements: dict[str, Any] = {}
        """What `stop` will measure beside the duration."""

    def run(self, function: Callable[[], Any]) -> Any:
        """Do the work; a coroutine function's is done when the answer is awaited."""
        if inspect.iscoroutinefunction(function):
            return self._later(function)
        with self:
            return self._take(function())

    async def _later(self, function: Callable[[], Any]) -> Any:
        with self:
            return self._take(await function())

    def _take(self, answer: Any) -> Any:
        """Part an answer into the result and what `stop` says; what is no such answer is the result."""
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
        said = {**self._given, "kind": type(error).__name__, "reason": error, "error": error, "stacktrace": stack}
        self._execute((*self._prefix, "exception"), measured, said)

    async def __aenter__(self) -> "BusSpan":
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, where)
