"""Raw log records to logs, events and alerts."""

from collections.abc import Callable, Iterable
from typing import Any

from stepscope.model.names import SEVERITIES
from stepscope.model.records import Alert, Attrs, Event, Log, Record
from stepscope.wire.otlp import names
from stepscope.wire.otlp.decode.origin import MARKS, Place
from stepscope.wire.otlp.decode.raw import LATEST, NO_SPAN, NO_TRACE, RawLog, Scope, is_id
from stepscope.wire.otlp.refusals import Rejections

_Context = tuple[int, int | None, str | None, bytes | None, bytes | None, int]


BAD_CONTEXT = "a trace or span id that is of the wrong length, or alone"


def take_logs(
    raws: Iterable[RawLog], scope: Scope, place: Place, refused: Rejections, clock: Callable[[], int]
) -> None:
    """Put log records where they belong; none is refused.

    Invalid ids unlink a record, with a warning. Without a time of its own it has the time it was observed, else the
    clock's.
    """
    home, (scope_name, said) = place.home, scope
    for time, observed, number, text, event_name, body, attrs, trace_id, span_id, flags in raws:
        records, step, axis = home, None, None
        if not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        if said:
            attrs = {**said, **attrs}
        if not 0 < observed <= LATEST:
            observed = 0
        if not 0 < time <= LATEST:
            time = observed = observed or clock()
        elif observed == time:
            observed = 0
        if not event_name and type(attrs.get(names.ATTR_EVENT_NAME)) is str:
            event_name = attrs.pop(names.ATTR_EVENT_NAME)
        linked = is_id(trace_id, 16)
        if _is_unfit(trace_id, NO_TRACE) or _is_unfit(span_id, NO_SPAN if linked else b""):
            refused.warn(BAD_CONTEXT, event_name)
        context = (
            time, step, axis, trace_id if linked else None, span_id if linked and is_id(span_id, 8) else None,
            _severity(number, text, attrs),
        )  # fmt: skip
        records.append(
            _event(context, event_name, body, attrs, scope_name, (observed, flags))
            if event_name
            else Log(*context, body, attrs, scope_name, observed, flags)
        )


def _is_unfit(data: bytes, none: bytes) -> bool:
    """Tell an id that is set and can not be kept, for it is not as long as one that means none."""
    return data != b"" and any(data) and len(data) != len(none)


def _severity(number: int, text: str, attrs: Attrs) -> int:
    """Read the severity; a word that OpenTelemetry does not know stays as an attribute."""
    known = SEVERITIES.get(text.upper()) if text else 0
    if known is None:
        attrs[names.ATTR_SEVERITY_TEXT] = text
    return number if 0 < number <= 24 else known or 0


def _event(context: _Context, name: str, body: Any, attrs: Attrs, scope_name: str, seen: tuple[int, int]) -> Record:
    """Make an event; `alert.firing` with a rule's name is an alert."""
    if scope_name:
        attrs[names.ATTR_SCOPE_NAME] = scope_name
    rule = attrs.get(names.ATTR_ALERT)
    if name == names.EVENT_ALERT and type(rule) is str:
        del attrs[names.ATTR_ALERT]
        return Alert(*context, rule, body if type(body) is str else "", attrs, *seen)
    return Event(*context, name, attrs, body, *seen)
