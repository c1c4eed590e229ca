"""Which of some spans the store has, in whichever run: a span is told by its trace and its id."""

from collections.abc import Iterable, Mapping, Sequence

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.model.records import Span

Id = tuple[bytes, bytes]
"""The trace and the span."""
_PART = 1000
"""Spans that one question asks for."""


def known_spans(engine: Engine, spans: Sequence[Span]) -> Mapping[Id, frozenset[int]]:
    """The runs in which each of some spans is stored; one that ended is not there when only its beginning is."""
    found: dict[Id, set[int]] = {}
    for start in range(0, len(spans), _PART):
        part = spans[start : start + _PART]
        every = {(span.trace_id, span.span_id) for span in part}
        begun = every - {(span.trace_id, span.span_id) for span in part if span.duration is not None}
        where = _condition(engine, part)
        for table, wanted in (("spans", every), ("open_spans", begun)):
            if where is None or not wanted:
                continue
            rows = engine.query(f"SELECT DISTINCT run, trace_id, span_id FROM {table} WHERE {where}").rows()
            for run, trace, span in rows:
                if (trace, span) in wanted:
                    found.setdefault((trace, span), set()).add(run)
    return {id: frozenset(runs) for id, runs in found.items()}


def _condition(engine: Engine, spans: Sequence[Span]) -> str | None:
    """The condition that picks some spans, and maybe others; None when nothing is known of their traces."""
    traces, ids = (_octets({getattr(span, name) for span in spans}) for name in ("trace_id", "span_id"))
    places = list(engine.query(f"SELECT DISTINCT run, step FROM traces WHERE trace_id IN {traces}").rows("run", "step"))
    if not places:
        return None
    runs, steps = (literal.integers(set(side)) for side in zip(*places, strict=True))
    return f"run IN {runs} AND step IN {steps} AND span_id IN {ids}"


def _octets(ids: Iterable[bytes]) -> str:
    """Ids for an IN, byte by byte: of a thousand, a call for each would take half a second."""
    return "(" + ", ".join("'" + "".join(f"\\x{byte:02x}" for byte in id) + "'" for id in ids) + ")"
