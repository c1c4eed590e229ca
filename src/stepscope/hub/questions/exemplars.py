"""Exemplars of a metric: single measurements with the spans in which they were made."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from stepscope.hub.questions.conditions import between
from stepscope.hub.store import attrs, exact, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.series_catalog import Line, read_lines
from stepscope.model.records import Attrs

PAGE = 10_000


class ExemplarRow(Struct, frozen=True):
    """One exemplar, with the step and the series of its point; ids are None where it has none."""

    line: Line
    attempt: int
    step: int | None
    time: int
    value: int | float
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
    return _read(engine, lines, f"WHERE {where} ORDER BY time DESC, series LIMIT {int(limit)}")


def every_exemplar(
    engine: Engine, run: int, *, keys: Collection[str] = (), rank: int | None = None, page: int = PAGE
) -> Iterator[list[ExemplarRow]]:
    """Yield the exemplars of a run page by page, by series and time."""
    lines = {
        series: line for series, line in read_lines(engine, run, rank=rank).items() if not keys or line.key in keys
    }
    if not lines:
        return
    among, offset = literal.integers(lines), 0
    while rows := _read(
        engine, lines, f"WHERE series IN {among} ORDER BY series, time, span_id LIMIT {offset}, {int(page)}"
    ):
        yield rows
        offset += page


def _read(engine: Engine, lines: dict[int, Line], condition: str) -> list[ExemplarRow]:
    columns = (
        *("series", "attempt", "step", "time", "value", "rest"),
        *("trace_id", "span_id", "attr_names", "attr_values", "attr_types"),
    )
    found = engine.query(f"SELECT {', '.join(columns)} FROM exemplars {condition}")
    return [
        ExemplarRow(
            lines[series],
            attempt,
            step_of(step),
            time,
            exact.whole(value, rest),
            trace if any(trace) else None,
            span if any(span) else None,
            attrs.restore(names, values, types),
        )
        for series, attempt, step, time, value, rest, trace, span, names, values, types in found.rows(*columns)
    ]
