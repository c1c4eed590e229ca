"""The fast paths of `run.span` and `run.step`."""

import time
from collections.abc import Mapping
from typing import Any

from stepscope.model import names
from stepscope.sdk import context
from stepscope.sdk.attributes import NUMBERS, clean, harmless, plain_texts, shorten
from stepscope.sdk.context import (
    CARRIED_KEY,
    NO_MARK,
    SPAN_KEY,
    Mark,
    current,
    current_mark,
    draw_bits,
    settled,
    text_of,
)
from stepscope.sdk.core import compiled
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.span_fields import link
from stepscope.sdk.spans import Span, StepSpan

_new_span = Span.__new__
_time_ns = time.time_ns
_monotonic_ns = time.monotonic_ns


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
    span.id = id = next(context.span_ids).to_bytes(8)
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
    step.id = id = next(context.span_ids).to_bytes(8)
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
