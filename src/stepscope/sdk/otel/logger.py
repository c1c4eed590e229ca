"""OpenTelemetry's LoggerProvider and Logger: what is emitted is a log, or an event when it has an event's name."""

import time
from typing import Any

from opentelemetry import _logs as api
from opentelemetry.context import Context
from opentelemetry.util.types import AnyValue, Attributes

from stepscope.model.names import SEVERITIES
from stepscope.model.records import EVENT, LOG
from stepscope.sdk.attributes import clean, clean_value
from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, Mark, current, pack_any
from stepscope.sdk.exception_records import exception_attrs
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.log_capture import INJECTED, is_ours, is_recorded
from stepscope.sdk.masking import Unmasked
from stepscope.sdk.otel.current_run import SCOPE, CurrentRun, attributes_of_scope, clean_attributes
from stepscope.sdk.run_protocols import Part, Resource
from stepscope.sdk.span_fields import nanoseconds
from stepscope.sdk.spans import Span

INFO = 9


class LoggerProvider(api.LoggerProvider):
    """Gives every library in the process a logger that writes to the current run.

    It has no `force_flush` on purpose: handlers would start a thread for it at each flush.
    """

    def __init__(self, current: CurrentRun) -> None:
        self._current = current

    @property
    def resource(self) -> Resource:
        """The resource of this process, as the SDK's providers have it."""
        return self._current.resource

    def get_logger(
        self,
        name: str,
        version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> api.Logger:
        """The logger of a library; one with our own name records nothing, to prevent feedback."""
        if is_ours(str(name)):
            return api.NoOpLogger(name)
        return Logger(self._current, str(name), attributes_of_scope(version, attributes, schema_url))


class Logger(api.Logger):
    """Records what is emitted. Nothing here raises; with no run it does nothing."""

    def __init__(self, current: CurrentRun, name: str, scope_attrs: dict[str, Any]) -> None:
        super().__init__(name)
        self._current = current
        self._scope_attrs = scope_attrs

    @property
    def resource(self) -> Resource:
        """The resource of this process; handlers of the SDK read it off any logger."""
        return self._current.resource

    def emit(
        self,
        record: api.LogRecord | None = None,
        *,
        timestamp: int | None = None,
        observed_timestamp: int | None = None,
        context: Context | None = None,
        severity_number: api.SeverityNumber | None = None,
        severity_text: str | None = None,
        body: AnyValue | None = None,
        attributes: Attributes = None,
        event_name: str | None = None,
        exception: BaseException | None = None,
    ) -> None:
        """Record a LogRecord, or one made of the arguments."""
        run = self._current.run
        if run is None:
            return
        try:
            if record is None:
                record = api.LogRecord(
                    timestamp=timestamp,
                    observed_timestamp=observed_timestamp,
                    context=context,
                    severity_number=severity_number,
                    severity_text=severity_text,
                    body=body,
                    attributes=attributes,
                    event_name=event_name,
                )
                record.exception = exception
            self._put(run, record)
        except BaseException as error:
            pass_on(error)
            run.outcomes.add("rejected", "log", type(error).__name__)

    def enabled(
        self,
        *,
        context: Context | None = None,
        severity_number: api.SeverityNumber | None = None,
        event_name: str | None = None,
    ) -> bool:
        """Return whether a run would record it."""
        return self._current.run is not None

    def _put(self, run: Part, record: api.LogRecord) -> None:
        at, observed = _times(run, record)
        if record.timestamp and is_recorded(at):
            return
        carried: Any = (record.context or current()).get(CARRIED_KEY, {})
        attrs = {**carried, **self._scope_attrs, **clean_attributes(run, record.attributes)}
        for key in INJECTED:
            attrs.pop(key, None)
        error = getattr(record, "exception", None)
        if isinstance(error, BaseException):
            attrs = {**clean(exception_attrs(error)), **attrs}
        body = clean_value(record.body)
        head = (at, *_mark(run, record), *_ids(record))
        severity = _severity(record, attrs)
        flags = int(record.trace_flags or 0)
        if record.event_name:
            if self._name:
                attrs[f"{SCOPE}name"] = self._name
            packed = pack_any((EVENT, *head, severity or INFO, str(record.event_name), attrs, body, observed, flags))
        else:
            packed = pack_any((LOG, *head, severity, body, attrs, self._name, observed, flags))
        run.recorder.put(Unmasked(packed))


def _times(run: Part, record: api.LogRecord) -> tuple[int, int]:
    """Return its own time and when it was observed; an invalid time is counted, and the other or the clock taken."""
    found = []
    for name, given in (("timestamp", record.timestamp), ("observed_timestamp", record.observed_timestamp)):
        try:
            found.append(nanoseconds(given or 0))
        except BaseException as error:
            pass_on(error)
            run.outcomes.add("rejected", name, type(error).__name__)
            found.append(0)
    own, observed = found
    return own or observed or time.time_ns(), observed


def _mark(run: Part, record: api.LogRecord) -> Mark:
    """The step of the span the record was made in, else of the calling code."""
    span = record.context.get(SPAN_KEY) if record.context else None
    if isinstance(span, Span) and span.mark.step is not None:
        return span.mark
    return run.mark


def _ids(record: api.LogRecord) -> tuple[bytes | None, bytes | None]:
    if not record.trace_id:
        return None, None
    span = record.span_id.to_bytes(8, "big") if record.span_id else None
    return record.trace_id.to_bytes(16, "big"), span


def _severity(record: api.LogRecord, attrs: dict[str, Any]) -> int:
    """Read the severity; a word that OpenTelemetry does not know is kept as an attribute."""
    given: Any = record.severity_number
    number = int(getattr(given, "value", given) or 0)
    text = str(record.severity_text or "")
    known = SEVERITIES.get(text.upper()) if text else 0
    if known is None:
        attrs["otel.severity_text"] = text
    return number if 0 < number <= 24 else known or 0
