"""Exemplars of a metric: single measurements with the spans in which they were made."""

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.conditions import between
from stepscope.hub.store.read.keys import Line, read_lines
from stepscope.hub.store.read.runs import step_of
from stepscope.model.records import Attrs


class ExemplarRow(Struct, frozen=True):
    """One exemplar, with the step and the series of its point; ids are None where it has none."""

    line: Line
    attempt: int
    step: int | None
    time: int
    value: float
    trace_id: bytes | None
    span_id: bytes | None
    attrs: Attrs


def read_exemplars(
    engine: Engine,
    run: int,
    key: str,
    *,
    rank: int | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int = 1000,
) -> list[ExemplarRow]:
    """The exemplars of a metric between two times, the newest first."""
    lines = read_lines(engine, run, key=key, rank=rank)
    if not lines:
        return []
    where = " AND ".join((f"series IN {literal.integers(lines)}", *between(since, until)))
    columns = ("series", "attempt", "step", "time", "value", "trace_id", "span_id", "attr_names", "attr_values")
    found = engine.query(
        f"""SELECT {", ".join(columns)}, attr_types FROM exemplars WHERE {where}
        ORDER BY time DESC, series LIMIT {int(limit)}"""
    )
    return [
        ExemplarRow(
            lines[series],
            attempt,
            step_of(step),
            time,
            value,
            trace if any(trace) else None,
            span if any(span) else None,
            attrs.restore(names, values, types),
        )
        for series, attempt, step, time, value, trace, span, names, values, types in found.rows(*columns, "attr_types")
    ]
