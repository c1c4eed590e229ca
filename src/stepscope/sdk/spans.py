"""Spans: timed operations that are both OpenTelemetry spans and records."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from stepscope.model import names
from stepscope.model.names import ATTR_DROPPED_EVENTS, ATTR_DROPPED_LINKS
from stepscope.model.records import SPAN
from stepscope.sdk import context as ids
from stepscope.sdk.attributes import LONGEST, NUMBERS, clean, clean_value, harmless, is_known, plain_texts, shorten
from stepscope.sdk.context import (
    CARRIED_KEY,
    NO_MARK,
    SPAN_KEY,
    Mark,
    attach,
    current,
    current_mark,
    detach,
    draw_bits,
    new_trace_id,
    pack,
    pack_any,
    settled,
    text_of,
)
from stepscope.sdk.core import SpanState, compiled
from stepscope.sdk.exception_records import exception_attrs, message_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.run_protocols import PackedLink, Part, Resource
from stepscope.sdk.span_fields import HAS_IS_REMOTE, MAX_LINKS, Limits, link, nanoseconds, unusual_fields
from stepscope.sdk.writer_identity import resource_of

_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)
_NO_STATE = trace.TraceState()
_time_ns = time.time_ns
_monotonic_ns = time.monotonic_ns
MAX_EVENTS = 128
MAX_EXCEPTIONS = 8
"""Exceptions of a span that are kept beyond the limit on its events."""
MAX_LEFT = 1000
"""Limit on remembered steps that were exited in another context than they were entered."""


_COPIED = (
    *("_run", "name", "_attrs", "id", "trace", "parent", "mark", "start", "_began", "duration"),
    *("announced", "joins", "usual", "unmasked", "special", "_links", "_origin"),
)
"""The fields of a span that a copy has too."""
_OF_THE_CONTEXT = frozenset(("_token", "_step_token", "left"))
"""Those it does not have."""


class Span(SpanState, trace.Span):
    """One operation. A context manager, sync or async; or `end()` it from any thread.

    Methods never raise. After the end they do nothing. What most spans never change is a default of the class.
    """

    _run: Part
    mark: Mark
    _links: Sequence[PackedLink]
    kind = trace.SpanKind.INTERNAL
    kind_number = 1
    """The kind as recorded: the protocol's number, which is that of OpenTelemetry's API plus one."""
    status = 0
    message = ""
    scope = ""
    _events: Sequence[tuple[int, str, dict[str, Any]]] = ()
    _remote = False
    """Whether the parent is a span of another process."""
    limits: Limits | None = None
    """Limits from OpenTelemetry's variables; None if none is set."""

    def __init__(self, run: Part, name: str, attrs: dict[str, Any], above: trace.Span | None) -> None:
        self._run = run
        self.name = name
        self._attrs = attrs
        self.id = next(ids.span_ids).to_bytes(8)
        if above is None:
            self.trace = draw_bits(128).to_bytes(16)
        else:
            self._join(above)
        self.mark = current_mark.get() or run.active_mark or NO_MARK
        self.start = _time_ns()
        self._began = _monotonic_ns()
        run.open_spans[self.id] = self  # last, because the flusher may read it at once

    @property
    def packed_ids(self) -> tuple[bytes, bytes] | None:
        """The ids of its trace and its own, as they are recorded; None for a span that is not."""
        return self.trace, self.id

    def _join(self, above: Any) -> None:
        """Become the child of a span of any library."""
        kind = type(above)
        if (kind is Span or kind is StepSpan) and above.left is not None:
            drop_left(self._run)
            above = settled(above)
            kind = type(above)
        if kind is Span or kind is StepSpan:
            self.trace = above.trace
            self.parent = above.id
            if above._origin is not None:
                self._origin, self.special = above._origin, True
        elif above is None or not (context := above.get_span_context()).is_valid:
            self.trace = new_trace_id()
        else:
            self.trace = context.trace_id.to_bytes(16, "big")
            self.parent = context.span_id.to_bytes(8, "big")
            if context.is_remote:
                self._remote, self.special, self.usual = True, True, False
            if context.trace_flags != _SAMPLED or context.trace_state:
                self._origin, self.special = context, True

    @compiled
    def __enter__(self) -> "Span":
        if self.joins and self._token is None:
            here = current()
            self._token = attach(Context({**here, SPAN_KEY: self} if here else {SPAN_KEY: self}))
        return self

    @compiled
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if error is not None and kind is not GeneratorExit:
            self.fail(error)
        token = self._token
        if token is not None:
            self._token = None
            # A span may be exited on another thread or task, or before a span that was entered later; both are legal.
            # Detaching then would corrupt the context: instead, the next lookup removes this span.
            try:
                if current().get(SPAN_KEY) is self:
                    detach(token)
                else:
                    self.left = token
            except (ValueError, RuntimeError):
                self.left = token
        self.end()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also one in another process, has not been entered."""
        fields = {name: getattr(self, name, None) for name in _COPIED}
        rest = {name: value for name, value in vars(self).items() if name not in _OF_THE_CONTEXT}
        return _copied, (type(self), fields | rest)

    async def __aenter__(self) -> "Span":
        return self.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)

    @compiled
    def end(self, end_time: int | None = None) -> None:
        """End the span and record it; a second end does nothing."""
        if self.duration is not None:
            return
        run = self._run
        if end_time is None:
            self.duration = _monotonic_ns() - self._began
        else:
            self.duration = self._until(end_time)
        run.open_spans.pop(self.id, None)
        packed = b""
        try:
            if self.usual:
                mark, links = self.mark, self._links
                packed = pack((
                    SPAN, self.start, self.duration, mark[0], mark[1], self.trace, self.id, self.parent, self.name,
                    1, 0, "", self._attrs,
                ) if not links else (
                    SPAN, self.start, self.duration, mark[0], mark[1], self.trace, self.id, self.parent, self.name,
                    1, 0, "", self._attrs, (), links, "", HAS_IS_REMOTE | 1,
                ))  # fmt: skip
        except (OverflowError, UnicodeEncodeError):
            pass
        if not packed or len(packed) > LONGEST:
            try:
                packed = self.packed()
            except BaseException as error:
                pass_on(error)
                self._refuse("span", error)
                return
        recorder = run.recorder
        recorder.append(packed)
        if len(recorder.buffer) >= recorder.limit:
            recorder.enforce_quota()

    def _until(self, end_time: Any) -> int:
        """Return the duration up to a given end; an invalid time is counted, and now is used instead."""
        try:
            return max(nanoseconds(end_time) - self.start, 0)
        except BaseException as error:
            pass_on(error)
            self._refuse("end_time", error)
            return _monotonic_ns() - self._began

    def packed(self) -> bytes:
        """Return the span in its present state as a packed record."""
        packed = self._packed_within_limit()
        return Unmasked(packed) if self.unmasked else packed

    def _packed_within_limit(self) -> bytes:
        try:
            packed = self._packed_whole(pack)
            if len(packed) <= LONGEST:
                return packed
        except (OverflowError, UnicodeEncodeError):
            pass
        self._attrs = clean(self._attrs)
        return self._packed_whole(pack_any)

    def _packed_whole(self, write: Callable[[tuple[Any, ...]], bytes]) -> bytes:
        attrs, events, links, flags = self._attrs, self._events, self._links, HAS_IS_REMOTE | 1
        if self.special:
            attrs, events, links, flags = unusual_fields(self.limits, self._origin, self._remote, attrs, events, links)
        return write((
            SPAN, self.start, self.duration, *self.mark, self.trace, self.id, self.parent, self.name,
            self.kind_number, self.status, self.message, attrs, events, links, self.scope, flags,
        ))  # fmt: skip

    def get_span_context(self) -> trace.SpanContext:
        """Return the OpenTelemetry span context."""
        trace_id, span_id = int.from_bytes(self.trace, "big"), int.from_bytes(self.id, "big")
        origin = self._origin
        if origin is None:
            return trace.SpanContext(trace_id, span_id, False, _SAMPLED, _NO_STATE)
        return trace.SpanContext(trace_id, span_id, False, origin.trace_flags, origin.trace_state)

    context = property(get_span_context, doc="The same, as the SDK's spans have it; libraries read it off any span.")

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes so far; not part of OpenTelemetry's API, but libraries read them."""
        return self._attrs

    @property
    def resource(self) -> Resource:
        """The resource of this process; not part of OpenTelemetry's API either."""
        return Resource(resource_of(self._run))

    def is_recording(self) -> bool:
        """True until the span ends."""
        return self.duration is None

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute; the last value wins."""
        if self.duration is None:
            try:
                name = key if type(key) is str else str(key)
                kind = type(value)
                if name not in harmless or (value not in plain_texts if kind is str else kind not in NUMBERS):
                    self.unmasked, self.usual = True, False
                    value = clean_value(value)
                self._attrs[name] = value
            except BaseException as error:
                pass_on(error)
                self._refuse("attributes", error)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        if self.duration is None:
            try:
                copied = clean(attributes)
                if not is_known(copied):
                    self.unmasked, self.usual = True, False
                self._attrs.update(copied)
            except BaseException as error:
                pass_on(error)
                self._refuse("attributes", error)

    def add_event(self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        """Add an event; exceptions are kept beyond the limit on other events."""
        if self.duration is not None:
            return
        try:
            text = str(name)
            if len(self._events) >= MAX_EVENTS + (MAX_EXCEPTIONS if text == names.EVENT_EXCEPTION else 0):
                self._drop("span event", ATTR_DROPPED_EVENTS)
                return
            self.unmasked, self.usual = True, False
            at = _time_ns() if timestamp is None else nanoseconds(timestamp)
            self._events = (*self._events, (at, shorten(text), clean(attributes)))
        except BaseException as error:
            pass_on(error)
            self._refuse("event", error)

    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Link to a span of another trace."""
        try:
            if self.duration is not None or not context.is_valid:
                return
            if len(self._links) >= MAX_LINKS:
                self._drop("span link", ATTR_DROPPED_LINKS)
                return
            self.usual = False
            self.unmasked = self.unmasked or bool(attributes)
            self._links = (*self._links, link(context, attributes))
        except BaseException as error:
            pass_on(error)
            self._refuse("link", error)

    def _drop(self, what: str, attribute: str) -> None:
        self._run.outcomes.add("dropped", what, "too many")
        self._attrs[attribute] = self._attrs.get(attribute, 0) + 1

    def update_name(self, name: str) -> None:
        """Rename the span."""
        if self.duration is None:
            self.name = shorten(text_of(name))
            self.unmasked, self.usual = True, False

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final, as in OpenTelemetry."""
        if self.duration is not None or self.status == trace.StatusCode.OK.value:
            return
        code = status.status_code if isinstance(status, trace.Status) else status
        text = status.description if isinstance(status, trace.Status) else description
        if code is trace.StatusCode.OK or code is trace.StatusCode.ERROR:
            self.usual = False
            self.status = code.value
            self.message = ""
            if code is trace.StatusCode.ERROR and text is not None:
                self.message, self.unmasked = text_of(text)[:LONGEST], True

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an exception as an event with its type, message and stack trace."""
        exception_attributes = exception_attrs(exception)
        try:
            if isinstance(attributes, Mapping):
                exception_attributes.update(attributes)
        except BaseException as raised:
            pass_on(raised)
            self._refuse("attributes", raised)
        self.add_event(names.EVENT_EXCEPTION, exception_attributes, timestamp)

    def fail(self, error: BaseException) -> None:
        """Record an exception that ends the span, and its ERROR status."""
        if isinstance(error, SystemExit) and not error.code:
            return
        self.record_exception(error)
        self.blame(error)

    def _refuse(self, what: str, error: BaseException) -> None:
        self._run.outcomes.add("rejected", what, type(error).__name__)

    def blame(self, error: BaseException) -> None:
        """Set the status to ERROR with the message of an exception."""
        self.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {message_of(error)}")


def _copied(kind: type[Span], fields: Mapping[str, Any]) -> Span:
    span = kind.__new__(kind)
    for name, value in fields.items():
        if value is not None:  # the default of all that may be None
            setattr(span, name, value)
    return span


class StepSpan(Span):
    """The root span of one step, linked to the run; inside it every record carries the step."""

    @compiled
    def __enter__(self) -> "StepSpan":
        run, mark = self._run, self.mark
        if run.left_steps:
            drop_left(run)
        self._step_token = current_mark.set(mark)
        run.open_steps.append(mark)
        run.active_mark = run.last_mark = mark
        here = current()
        self._token = attach(Context({**here, SPAN_KEY: self} if here else {SPAN_KEY: self}))
        return self

    @compiled
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        entered = self._token is not None
        Span.__exit__(self, kind, error, where)
        if not entered:
            return
        run, mark = self._run, self.mark
        try:
            run.open_steps.remove(mark)
        except ValueError:  # an equal step of another thread was removed before
            pass
        run.active_mark = next(reversed(run.open_steps), None)
        if current_mark.get() is mark:
            try:
                current_mark.reset(self._step_token)
            except (ValueError, RuntimeError):  # a context that inherited the step keeps it
                return
        else:
            run.left_steps[id(mark)] = (mark, self._step_token)
        if run.left_steps:
            drop_left(run)


def drop_left(run: Part) -> None:
    """Reset the step of this context past steps that were exited in another context or out of order."""
    while (found := run.left_steps.pop(id(current_mark.get()), None)) is not None:
        try:
            current_mark.reset(found[1])
        except (ValueError, RuntimeError):  # a context that inherited the step keeps it
            return
    if len(run.left_steps) > MAX_LEFT:
        run.left_steps.clear()


_new_span = Span.__new__


@compiled
def open_span(self: Part, name: str | None = None, /, **attrs: Any) -> Span:
    """Open a child of the current span; use it with `with` or `async with`, or `end()` it anywhere."""
    # This is `Span(self, name, clean(attrs), above)` inlined: calls, mostly that of the class, take 5 % of the time.
    here = current()
    known = True
    for key, value in attrs.items():
        kind = type(value)
        if key not in harmless or (value not in plain_texts if kind is str else kind not in NUMBERS):
            attrs, known = clean(attrs), False
            break
    if CARRIED_KEY in here:
        attrs = {**here[CARRIED_KEY], **attrs}
    span = _new_span(Span)
    span._run = self
    if type(name) is str and name in plain_texts:
        span.name = name
    else:
        span.name, known = _name_text(self, name, attrs), False
    if not known:
        span.unmasked, span.usual = True, False
    span._attrs = attrs
    span.id = id = next(ids.span_ids).to_bytes(8)
    above = here.get(SPAN_KEY) or self.above
    if above is None:
        span.trace = draw_bits(128).to_bytes(16)
    else:
        span._join(above)
    span.mark = current_mark.get() or self.active_mark or NO_MARK
    span.start = _time_ns()
    span._began = _monotonic_ns()
    self.open_spans[id] = span
    return span


def open_step(run: Part, mark: Mark) -> StepSpan:
    """Open the root span of a step, linked to the run and to the span that is current."""
    here = current()
    step = _new_span(StepSpan)
    step._run = run
    step.name = names.SPAN_STEP
    step._attrs = dict(here[CARRIED_KEY]) if CARRIED_KEY in here else {}
    step.id = id = next(ids.span_ids).to_bytes(8)
    step.trace = draw_bits(128).to_bytes(16)
    step.mark = mark
    outer = here.get(SPAN_KEY)
    if outer is not None:
        outer = settled(outer)
    outer = outer or run.above
    if outer is not None and (above := outer.get_span_context()).is_valid:
        step._links = (run.link, link(above))
    else:
        step._links = (run.link,)
    step.start = _time_ns()
    step._began = _monotonic_ns()
    run.open_spans[id] = step
    return step


def _name_text(run: Part, name: Any, attrs: Mapping[str, Any]) -> str:
    """Return the name as text; a missing name is counted, and the attribute `name` is used instead."""
    if name is None:
        run.outcomes.reject("span", "no name was given: pass it as the first positional argument")
        name = attrs.get("name", "span")
    return shorten(text_of(name))
