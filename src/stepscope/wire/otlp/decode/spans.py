"""Raw spans to records."""

from collections.abc import Iterable

from stepscope.model.records import Span
from stepscope.wire.otlp.decode.origin import MARKS, Place
from stepscope.wire.otlp.decode.raw import LATEST, NO_SPAN, NO_TRACE, RawSpan, Scope
from stepscope.wire.otlp.refusals import Rejections

BAD_TRACE_ID = "the trace id is not 16 bytes (32 hex digits in JSON) or all zero"
BAD_SPAN_ID = "the span id is not 8 bytes (16 hex digits in JSON) or all zero"
BAD_TIME = "the start time is unset or out of range"
BAD_PARENT = "a parent span id that is not 8 bytes (16 hex digits in JSON)"
BAD_END = "an end time before the start"


def take_spans(raws: Iterable[RawSpan], scope: Scope, place: Place, refused: Rejections) -> None:
    """Put spans where they belong; one without valid ids or start is refused.

    A span without an end is still open; one that ends before it starts has no duration, and one with a parent that
    is no id has none: both are taken, with a warning.
    """
    home, (scope_name, said) = place.home, scope
    for trace_id, span_id, parent_id, name, kind, start, end, attrs, events, links, code, message, flags in raws:
        if len(trace_id) != 16 or trace_id == NO_TRACE:
            refused.add(BAD_TRACE_ID, name)
            continue
        if len(span_id) != 8 or span_id == NO_SPAN:
            refused.add(BAD_SPAN_ID, name)
            continue
        if not 0 < start <= LATEST:
            refused.add(BAD_TIME, name)
            continue
        if parent_id and len(parent_id) != 8:
            refused.warn(BAD_PARENT, name)
        if 0 < end < start:
            refused.warn(BAD_END, name)
        records, step, axis = home, None, None
        if not MARKS.isdisjoint(attrs):
            records, step, axis = place.sort(attrs)
        records.append(
            Span(
                start,
                max(min(end, LATEST) - start, 0) if end > 0 else None,
                step,
                axis,
                trace_id,
                span_id,
                parent_id if len(parent_id) == 8 and parent_id != NO_SPAN else None,
                name,
                kind if 0 <= kind <= 5 else 0,
                code if 0 <= code <= 2 else 0,
                message,
                {**said, **attrs} if said else attrs,
                events,
                links,
                scope_name,
                flags,
            )
        )
