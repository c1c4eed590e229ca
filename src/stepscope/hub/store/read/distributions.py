"""Histograms and summaries of a metric, as they were recorded."""

from msgspec import Struct

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.conditions import between
from stepscope.hub.store.read.keys import Line, read_lines
from stepscope.hub.store.read.runs import step_of
from stepscope.hub.store.write.histograms import FIELDS, Distribution, restore


class DistributionRow(Struct, frozen=True):
    """One distribution and where it was recorded."""

    line: Line
    attempt: int
    step: int | None
    time: int
    start: int
    value: Distribution


def read_distributions(
    engine: Engine,
    run: int,
    key: str,
    *,
    rank: int | None = None,
    since: int | None = None,
    until: int | None = None,
    limit: int = 1000,
) -> list[DistributionRow]:
    """The distributions of a metric between two times, the newest first."""
    lines = read_lines(engine, run, key=key, rank=rank)
    if not lines:
        return []
    where = " AND ".join((f"series IN {literal.integers(lines)}", *between(since, until)))
    columns = ("series", "attempt", "step", "time", "start", *FIELDS)
    found = engine.query(
        f"""SELECT {", ".join(columns)} FROM histograms WHERE {where}
        ORDER BY time DESC, series LIMIT {int(limit)}"""
    )
    return [
        DistributionRow(
            lines[series], attempt, step_of(step), time, start, restore(dict(zip(FIELDS, rest, strict=True)))
        )
        for series, attempt, step, time, start, *rest in found.rows(*columns)
    ]
