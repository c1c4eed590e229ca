"""Histograms and summaries of a metric, as they were recorded."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from stepscope.hub.questions.conditions import between
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.series_catalog import Line, read_lines
from stepscope.hub.store.write.histogram_rows import FIELDS, Distribution, restore

PAGE = 10_000


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
    return _read(engine, lines, f"WHERE {where} ORDER BY time DESC, series LIMIT {int(limit)}")


def every_distribution(
    engine: Engine, run: int, *, keys: Collection[str] = (), rank: int | None = None, page: int = PAGE
) -> Iterator[list[DistributionRow]]:
    """Yield the distributions of a run page by page, those that a later attempt superseded too, by series and step."""
    lines = {
        series: line for series, line in read_lines(engine, run, rank=rank).items() if not keys or line.key in keys
    }
    if not lines:
        return
    among, offset = literal.integers(lines), 0
    while rows := _read(
        engine, lines, f"WHERE series IN {among} ORDER BY series, step, time LIMIT {offset}, {int(page)}"
    ):
        yield rows
        offset += page


def _read(engine: Engine, lines: dict[int, Line], condition: str) -> list[DistributionRow]:
    columns = ("series", "attempt", "step", "time", "start", *FIELDS)
    found = engine.query(f"SELECT {', '.join(columns)} FROM histograms {condition}")
    return [
        DistributionRow(
            lines[series], attempt, step_of(step), time, start, restore(dict(zip(FIELDS, rest, strict=True)))
        )
        for series, attempt, step, time, start, *rest in found.rows(*columns)
    ]
