"""Spans: timed operations that are OpenTelemetry spans and our records at once."""

import time
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from opentelemetry import trace

from stepscope.model import names
from stepscope.model.records import SPAN
from stepscope.sdk.attributes import LONGEST, clean, clean_value
from stepscope.sdk.context import (
    NOWHERE,
    SPAN_KEY,
    Mark,
    attach,
    current,
    current_mark,
    current_span,
    detach,
    new_id,
    pack,
)
from stepscope.sdk.ports import PackedLink, Part


_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_NO_STATE = trace.TraceState()
_time_ns = time.time_ns
_monotonic_ns = time.monotonic_ns
MOST_EVENTS = 128


class Span(trace.Span):
    """One operation. A context manager, sync or async; or `end()` it from any thread.

    Methods never raise. After the end they do nothing. What most spans never change is a default of the class.
    """

    parent: bytes | None = None
    kind = 0
    status = 0
    message = ""
    scope = ""
    duration: int | None = None
    announced = False
    """Whether a record of the open span was written."""
    joins = True
    """Whether entering makes this the current span."""
    _links: Sequence[PackedLink] = ()
    _events: Sequence[tuple[int, str, dict[str, Any]]] = ()
    _token: Any = None

    def __init__(self, run: Part, name: str, attrs: dict[str, Any], above: trace.Span | None) -> None:
        self._run = run
        self.name = name
        self._attrs = attrs
        self.id: bytes = new_id(64).to_bytes(8, "big")
        kind = type(above)
        if kind is Span or kind is StepSpan:
            self.trace: bytes = above.trace  # type: ignore[union-attr]
            self.parent = above.id  # type: ignore[union-attr]
        elif above is None or not (context := above.get_span_context()).is_valid:
            self.trace = new_id(128).to_bytes(16, "big")
        else:
            self.trace = context.trace_id.to_bytes(16, "big")
            self.parent = context.span_id.to_bytes(8, "big")
        self.mark = current_mark.get() or run.active_mark or NOWHERE
        run.open_spans[self.id] = self
        self.start = _time_ns()
        self._began = _monotonic_ns()

    def __enter__(self) -> "Span":
        if self.joins:
            self._token = attach({**current(), SPAN_KEY: self})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if error is not None and kind is not GeneratorExit:
            self.fail(error)
        if self._token is not None:
            self._leave()
        self.end()

    def _leave(self) -> None:
        try:
            detach(self._token)
        except Exception:  # left in another context than it was entered in, which is legal
            self._run.outcomes.add("left", "span", "elsewhere")
        self._token = None

    async def __aenter__(self) -> "Span":
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, where)

    def end(self, end_time: int | None = None) -> None:
        """End the span and record it; a second end does nothing."""
        if self.duration is not None:
            return
        if end_time is None:
            self.duration = _monotonic_ns() - self._began
        else:
            self.duration = max(end_time - self.start, 0)
        run = self._run
        run.open_spans.pop(self.id, None)
        try:
            packed = self.packed()
        except Exception as error:
            run.outcomes.add("rejected", "span", type(error).__name__)
            return
        recorder = run.recorder
        recorder.append(packed)
        if len(recorder.buffer) >= recorder.limit:
            recorder.crowded()

    def packed(self) -> bytes:
        """The span as it is now, as a record."""
        mark = self.mark
        return pack((
            SPAN, self.start, self.duration, mark[0], mark[1], self.trace, self.id, self.parent,
            self.name, self.kind, self.status, self.message, self._attrs, self._events, self._links, self.scope,
        ))  # fmt: skip

    def get_span_context(self) -> trace.SpanContext:
        """The ids other processes and libraries need."""
        trace_id, span_id = int.from_bytes(self.trace, "big"), int.from_bytes(self.id, "big")
        return trace.SpanContext(trace_id, span_id, False, _SAMPLED, _NO_STATE)

    def is_recording(self) -> bool:
        """True until the span ends."""
        return self.duration is None

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; the last value counts."""
        if self.duration is None:
            self._attrs[str(key)] = clean_value(str(key), value)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        if self.duration is None and attributes:
            self._attrs.update(clean(attributes))

    def add_event(
        self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None
    ) -> None:
        """Note something that happens inside the span."""
        if self.duration is None and len(self._events) < MOST_EVENTS:
            self._events = (*self._events, (timestamp or _time_ns(), str(name), clean(attributes)))

    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Point to a span of another trace."""
        if self.duration is None and context.is_valid:
            self._links = (*self._links, link(context, attributes))

    def update_name(self, name: str) -> None:
        """Rename the span."""
        if self.duration is None:
            self.name = str(name)

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Say how it went; OK is final, as in OpenTelemetry."""
        if self.duration is not None or self.status == trace.StatusCode.OK.value:
            return
        code = status.status_code if isinstance(status, trace.Status) else status
        text = status.description if isinstance(status, trace.Status) else description
        if code is not trace.StatusCode.UNSET:
            self.status = code.value
            self.message = (text or "")[:LONGEST] if code is trace.StatusCode.ERROR else ""

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Note an exception as an event with its type, message and stack."""
        self.add_event("exception", {**exception_attrs(exception), **(attributes or {})}, timestamp)

    def fail(self, error: BaseException) -> None:
        """Record an exception that ends the span, and its ERROR status."""
        if isinstance(error, SystemExit) and not error.code:
            return
        self.record_exception(error)
        self.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {_text(error)}")


class StepSpan(Span):
    """The root span of one step, linked to the run; inside it every record carries the step."""

    _step_token: Any = None
    _outer: Mark | None = None

    def __init__(self, run: Part, mark: Mark) -> None:
        super().__init__(run, names.SPAN_STEP, {}, None)
        self.mark = mark
        outer = current_span()
        self._links = (run.link,) if outer is None else (run.link, link(outer.get_span_context()))

    def __enter__(self) -> "StepSpan":
        run = self._run
        self._step_token = current_mark.set(self.mark)
        self._outer, run.active_mark = run.active_mark, self.mark
        self._token = attach({**current(), SPAN_KEY: self})
        return self

    def _leave(self) -> None:
        super()._leave()
        run = self._run
        if run.active_mark is self.mark:
            run.active_mark = self._outer
        try:
            current_mark.reset(self._step_token)
        except (ValueError, RuntimeError):  # left in another context, see above
            run.outcomes.add("left", "step", "elsewhere")


def exception_attrs(error: BaseException) -> dict[str, Any]:
    """Describe an exception in OpenTelemetry's words."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        stack = "".join(traceback.format_exception(error))
    except Exception as inner:
        stack = f"(no stack: {type(inner).__name__})"
    return {"exception.type": name, "exception.message": _text(error), "exception.stacktrace": stack[-LONGEST:]}


def _text(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST]
    except Exception:
        return "(no message)"


def link(context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> PackedLink:
    """Pack a link to another span."""
    return (context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big"), clean(attributes))
