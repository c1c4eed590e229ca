"""Every point of a run, in pieces that fit in memory, for copies of it elsewhere."""

from collections.abc import Iterator, Sequence

import numpy as np

from stepscope.hub.store import literal
from stepscope.hub.store.arrow import Points
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.series_catalog import Line, read_lines, read_totals

PIECE = 250_000
"""About so many points come at a time."""


def read_points(
    engine: Engine, run: int, *, keys: Sequence[str] = (), rank: int | None = None, piece: int = PIECE
) -> Iterator[Points]:
    """Yield the points of a run, those that a later attempt superseded too, by key and rank."""
    lines = {
        series: line for series, line in read_lines(engine, run, rank=rank).items() if not keys or line.key in keys
    }
    sizes = dict.fromkeys(lines, 0)
    for total in read_totals(engine, run, lines):
        sizes[total.line.series] += total.points
    ordered = sorted((line for line in lines.values() if sizes[line.series]), key=lambda line: (line.key, line.rank))
    group: list[Line] = []
    for line in ordered:
        if group and sum(sizes[each.series] for each in group) + sizes[line.series] > piece:
            yield from _pieces(engine, group, piece)
            group = []
        group.append(line)
    if group:
        yield from _pieces(engine, group, piece)


def _pieces(engine: Engine, lines: list[Line], piece: int) -> Iterator[Points]:
    places = np.array([line.series for line in lines], dtype=np.uint64)
    order = np.argsort(places)
    offset = 0
    while True:
        found = engine.query(
            f"""SELECT series, step, time, attempt, value, rest FROM metrics
            WHERE series IN {literal.integers(places.tolist())}
            ORDER BY series, step, time LIMIT {offset}, {piece}"""
        )
        if not len(found):
            return
        which = order[np.searchsorted(places[order], found.array("series", "u8"))].astype(np.int32)
        columns = (found.array("step", "i8"), found.array("time", "i8"), found.array("attempt", "u2"))
        yield Points(lines, which, *columns, found.array("value"), found.array("rest", "i8"))
        if len(found) < piece:
            return
        offset += piece
