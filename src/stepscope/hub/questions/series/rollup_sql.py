"""The SQL of a chart line of many points: cells of steps where they are known, points where they are not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.hub.store import literal, rollups
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.rollups import MARK, Rows

Interval = tuple[int, int]
"""Two steps, both included."""
Mark = tuple[int, int, int, int]
"""A series, the commit up to which it is folded, the level of its narrowest cells, and how many points these hold."""
TILE_CELLS = 1024
"""Cells are read in aligned ranges of so many."""
MAX_CELLS = 40_000
"""More cells than this are merged by the engine."""
ATTEMPTS = 65_536
"""More than the number of an attempt."""

_LAST_OF_POINTS = "argMax(value, {place}) AS last, argMax({seat}, {place}) AS seat, argMax(time, {place}) AS last_time"
_OF_CELLS = """sum(c_points) AS points, sum(c_good) AS good, groupBitOr(c_flags) AS flags,
    min(c_first_step) AS first_step, max(c_last_step) AS last_step, min(c_low) AS low, max(c_high) AS high,
    sum(c_total) AS total, argMax(c_last, {place}) AS last, argMax({seat}, {place}) AS seat,
    argMax(c_last_time, {place}) AS last_time"""
_CELLS = ", ".join(f"{name} AS c_{name}" for name in rollups.CELL)
"""With other names, so that an aggregate is not taken for its argument."""
_MARK = ("series", "upto", "at", "c_points")
_LAST_BY = ("last_step", "seat", "last_time")


@dataclass(frozen=True, slots=True)
class Grid:
    """Buckets of equal width, the first of which begins at `start`; each has whole cells of `level`."""

    start: int
    width: int
    level: int | None
    """None when cells are too wide for the buckets."""

    def bucket(self, column: str) -> str:
        """The number of a step's bucket."""
        return f"intDiv({column} - ({self.start}), {self.width})"


def grid(low: int, high: int, most: int) -> Grid:
    """At most so many buckets of the steps from `low` to `high`."""
    width = -(-(high - low + 1) // most)
    level = rollups.level_within(width)
    if level is None:
        return Grid(low, width, None)
    cell = rollups.width(level)
    start = low & -cell
    width = -(-(high - start + 1) // most)
    return Grid(start, -(-width // cell) * cell, level)


@dataclass(frozen=True, slots=True)
class CellQuery:
    """A line whose buckets are made of cells, and of points where cells do not do."""

    engine: Engine
    grid: Grid
    series: Sequence[int]
    """In the order in which the last of them counts, of several with a point at the last step."""
    low: int
    high: int
    every: str
    """The condition for the points of the line."""
    newest: str
    """The same without points that are superseded."""
    attempt: int | None
    """This attempt alone."""
    held: Mapping[int, int]
    """How many points series have; of those for which cells have as many, none came later."""
    overlaps: Sequence[Interval]
    """Steps that several attempts may have."""
    cut: Sequence[int]
    """Ends of the line that are no ends of the series: cells reach beyond them."""

    def read(self) -> tuple[Rows, int] | None:
        """The buckets, and how many points are superseded; None when no series has cells of that width.

        Cells and the commit up to which they hold the points are read in one statement, and later points afterwards: a
        fold in between makes no difference.
        """
        zones = self._zones()
        within = " OR ".join(f"step BETWEEN {low} AND {high}" for low, high in zones) or "0"
        first, last = self._tiles()
        few = (last - first + 1) // self._cell * len(self.series) <= MAX_CELLS
        asked = self._stored(first, last) if few else self._merged(zones)
        found, *near = self.engine.query_many([asked, *self._points_within(within, bool(zones))])
        marks, cells = self._sorted_out(found, zones) if few else (_marks_in(found), _rows(found))
        folded = _folded(marks, self.grid)
        if not folded:
            return None
        tails = self.engine.query_many(list(self._tails(folded, within)))
        parts = [cells, *map(_rows, (*near[:1], *tails))]
        superseded = int(near[1].one("held")) - int(near[0].array("points").sum()) if len(near) > 1 else 0
        return rollups.merged(rollups.joined(parts), ("bucket",), _LAST_BY), max(superseded, 0)

    @property
    def _cell(self) -> int:
        """How many steps a cell has."""
        return rollups.width(self.grid.level or 0)

    def _zones(self) -> list[Interval]:
        """Where points are read instead of cells, as whole cells within the line, in order and apart."""
        wide = rollups.width(self.grid.level or 0)
        found: list[Interval] = []
        for low, high in sorted([*self.overlaps, *((step, step) for step in self.cut)]):
            low, high = max(low & -wide, self.low), min((high & -wide) + wide - 1, self.high)
            if found and low <= found[-1][1] + 1:
                low, high = found[-1][0], max(found.pop()[1], high)
            found.append((low, high))
        return found

    def _tiles(self) -> Interval:
        """The steps of the line, widened to what charts nearby ask for, too: the engine remembers its answers."""
        tile = self._cell * TILE_CELLS
        return self.grid.start & -tile, (self.high & -tile) + tile - 1

    def _stored(self, first: int, last: int) -> str:
        """The query for cells as they are stored, replaced ones included, and marks."""
        return f"""SELECT series, level, at, attempt, upto, {", ".join(rollups.CELL)} FROM rollups
            WHERE series IN {literal.integers(self.series)}
                AND (level = {MARK} OR level = {self.grid.level} AND at BETWEEN {first} AND {last})"""

    def _sorted_out(self, found: Answer, zones: Sequence[Interval]) -> tuple[list[Mark], Rows]:
        """The marks, and the newest of the cells that count, among cells as they are stored."""
        rows = rollups.cells_of(found, "series", "level", "at", "attempt", "upto")
        rows = rollups.newest(rows, ("series", "level", "attempt", "at"), rows["upto"])
        at, is_mark = rows["at"], rows["level"] == MARK
        marks = [rows[name][is_mark].tolist() for name in ("series", "upto", "at", "points")]
        counts = ~is_mark & (at >= self.grid.start) & (at <= self.high)
        for low, high in zones:
            counts &= (at < (low & -self._cell)) | (at > high)
        if self.attempt is not None:
            counts &= rows["attempt"] == self.attempt
        cells = {name: rows[name][counts] for name in ("series", "at", "attempt", *rollups.CELL)}
        seats = np.zeros(len(cells["at"]), "i8")
        for place, series in enumerate(self.series):
            seats[cells["series"] == series] = place * ATTEMPTS
        buckets = (cells["at"] - self.grid.start) // self.grid.width
        seats += cells["attempt"]
        kept = {name: cells[name] for name in rollups.CELL}
        return list(zip(*marks, strict=True)), {"bucket": buckets, "seat": seats, **kept}

    def _merged(self, zones: Sequence[Interval]) -> str:
        """The query for cells of many series, merged to buckets, and marks."""
        apart = [f"NOT (at BETWEEN {low & -self._cell} AND {high})" for low, high in zones]
        if self.attempt is not None:
            apart.append(f"attempt = {self.attempt}")
        places = " AND ".join([f"level = {self.grid.level} AND at BETWEEN {self.grid.start} AND {self.high}", *apart])
        mark = f"level = {MARK}"
        marks = ", ".join(f"groupArrayIf({name}, {mark}) AS mark_{name}" for name in _MARK)
        return f"""SELECT if({mark}, toInt64(-1), {self.grid.bucket("at")}) AS bucket,
                {self._filled(_OF_CELLS, "c_last_step", "c_last_time")}, {marks}
            FROM (SELECT series, level, at, attempt, upto, {_CELLS} FROM rollups FINAL
                WHERE series IN {literal.integers(self.series)} AND ({mark} OR {places}))
            GROUP BY bucket"""

    def _points_within(self, within: str, wanted: bool) -> list[str]:
        if not wanted:
            return []
        counted = f"SELECT count() AS held FROM metrics WHERE {self.every} AND ({within})"
        return [self._points(f"{self.newest} AND ({within})"), *([counted] if self.overlaps else ())]

    def _tails(self, folded: Mapping[int, Mark], within: str) -> Iterator[str]:
        """The queries for points that are in no cell: those that came later, and those of series without cells."""
        by_commit: dict[int, list[int]] = {}
        for series, upto, _, points in folded.values():
            if points != self.held.get(series):
                by_commit.setdefault(upto, []).append(series)
        if by_commit:
            later = " OR ".join(
                f"series IN {literal.integers(group)} AND commit > {upto}" for upto, group in by_commit.items()
            )
            # The least of the numbers lets the index of commits skip what is older than all of them.
            yield self._points(f"{self.every} AND NOT ({within}) AND commit > {min(by_commit)} AND ({later})")
        others = [series for series in self.series if series not in folded]
        if others:
            yield self._points(f"{self.every} AND NOT ({within}) AND series IN {literal.integers(others)}")

    def _points(self, condition: str) -> str:
        last = self._filled(_LAST_OF_POINTS, "step", "time")
        return f"""SELECT {self.grid.bucket("step")} AS bucket, {rollups.OF_POINTS}, {last}
            FROM metrics WHERE {condition} GROUP BY bucket"""

    def _filled(self, words: str, step: str, time: str) -> str:
        """Fill in what decides which point is the last: its step, then its series and attempt, then its time."""
        numbers = ", ".join(map(str, self.series))
        order = f"transform(series, [{numbers}], {list(range(len(self.series)))}, 0)" if len(self.series) > 1 else "0"
        seat = f"(toInt64({order}) * {ATTEMPTS} + attempt)"
        return words.format(seat=seat, place=rollups.place(self.engine, step, seat, time))


def _marks_in(found: Answer) -> list[Mark]:
    """The marks among merged cells."""
    columns = found.rows(*(f"mark_{name}" for name in _MARK))
    return [mark for lists in columns for mark in zip(*lists, strict=True)]


def _folded(marks: Sequence[Mark], grid: Grid) -> dict[int, Mark]:
    """The mark of each series that is in cells of the grid; none when folds of two hubs met in one series."""
    if len({series for series, *_ in marks}) < len(marks):
        return {}
    return {mark[0]: mark for mark in marks if grid.level is not None and mark[2] <= grid.level}


def _rows(found: Answer) -> Rows:
    rows = rollups.cells_of(found, "bucket", "seat")
    inside = rows["bucket"] >= 0
    return {name: column[inside] for name, column in rows.items()}
