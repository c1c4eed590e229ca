"""The SQL of a chart line of many points: cells of steps where they are known, points where they are not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stepscope.hub.store import literal, rollups
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.rollups import MARK, Rows

Interval = tuple[int, int]
"""Two steps, both included."""

_LAST_OF_POINTS = """argMax(value, (step, {seat}, time)) AS last, argMax({seat}, (step, {seat}, time)) AS seat,
    argMax(time, (step, {seat}, time)) AS last_time"""
_OF_CELLS = """sum(c_points) AS points, sum(c_good) AS good, groupBitOr(c_flags) AS flags,
    min(c_first_step) AS first_step, max(c_last_step) AS last_step, min(c_low) AS low, max(c_high) AS high,
    sum(c_total) AS total, argMax(c_last, (c_last_step, {seat}, c_last_time)) AS last,
    argMax({seat}, (c_last_step, {seat}, c_last_time)) AS seat,
    argMax(c_last_time, (c_last_step, {seat}, c_last_time)) AS last_time"""
_CELLS = ", ".join(f"{name} AS c_{name}" for name in rollups.CELL)
"""With other names, so that an aggregate is not taken for its argument."""
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
        cells, *near = self.engine.query_many([self._cells(zones), *self._points_within(within, bool(zones))])
        marks = _marks(cells, self.grid)
        if not marks:
            return None
        tails = self.engine.query_many(list(self._tails(marks, within)))
        parts = [_rows(cells), *map(_rows, (*near[:1], *tails))]
        superseded = int(near[1].one("held")) - int(near[0].array("points").sum()) if len(near) > 1 else 0
        return rollups.merged(rollups.joined(parts), ("bucket",), _LAST_BY), max(superseded, 0)

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

    def _cells(self, zones: Sequence[Interval]) -> str:
        wide = rollups.width(self.grid.level or 0)
        apart = [f"NOT (at BETWEEN {low & -wide} AND {high})" for low, high in zones]
        if self.attempt is not None:
            apart.append(f"attempt = {self.attempt}")
        places = " AND ".join([f"level = {self.grid.level} AND at BETWEEN {self.grid.start} AND {self.high}", *apart])
        mark = f"level = {MARK}"
        return f"""SELECT if({mark}, toInt64(-1), {self.grid.bucket("at")}) AS bucket, {self._filled(_OF_CELLS)},
                groupArrayIf(series, {mark}) AS folded, groupArrayIf(upto, {mark}) AS uptos,
                groupArrayIf(at, {mark}) AS bases
            FROM (SELECT series, level, at, attempt, upto, {_CELLS} FROM rollups FINAL
                WHERE series IN {literal.integers(self.series)} AND ({mark} OR {places}))
            GROUP BY bucket"""

    def _points_within(self, within: str, wanted: bool) -> list[str]:
        if not wanted:
            return []
        counted = f"SELECT count() AS held FROM metrics WHERE {self.every} AND ({within})"
        return [self._points(f"{self.newest} AND ({within})"), *([counted] if self.overlaps else ())]

    def _tails(self, marks: Mapping[int, int], within: str) -> Iterator[str]:
        """The queries for points that are in no cell: those that came later, and those of series without cells."""
        by_commit: dict[int, list[int]] = {}
        for series, upto in marks.items():
            by_commit.setdefault(upto, []).append(series)
        later = " OR ".join(
            f"series IN {literal.integers(group)} AND commit > {upto}" for upto, group in by_commit.items()
        )
        # The least of the numbers lets the index of commits skip what is older than all of them.
        yield self._points(f"{self.every} AND NOT ({within}) AND commit > {min(by_commit)} AND ({later})")
        others = [series for series in self.series if series not in marks]
        if others:
            yield self._points(f"{self.every} AND NOT ({within}) AND series IN {literal.integers(others)}")

    def _points(self, condition: str) -> str:
        return f"""SELECT {self.grid.bucket("step")} AS bucket, {rollups.OF_POINTS}, {self._filled(_LAST_OF_POINTS)}
            FROM metrics WHERE {condition} GROUP BY bucket"""

    def _filled(self, words: str) -> str:
        """The place of a series and an attempt among those with a point at the same step."""
        numbers = ", ".join(map(str, self.series))
        order = f"transform(series, [{numbers}], {list(range(len(self.series)))}, 0)" if len(self.series) > 1 else "0"
        return words.format(seat=f"(toInt64({order}) * 65536 + attempt)")


def _marks(cells: Answer, grid: Grid) -> dict[int, int]:
    """The commit up to which each series is in cells of the grid; none when folds of two hubs met in one series."""
    rows = [row for lists in cells.rows("folded", "uptos", "bases") for row in zip(*lists, strict=True)]
    if len({series for series, _, _ in rows}) < len(rows):
        return {}
    return {series: upto for series, upto, base in rows if grid.level is not None and base <= grid.level}


def _rows(found: Answer) -> Rows:
    rows = rollups.cells_of(found, "bucket", "seat")
    inside = rows["bucket"] >= 0
    return {name: column[inside] for name, column in rows.items()}
