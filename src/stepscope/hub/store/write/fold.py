"""Folds the points of acknowledged commits into rollups, so that a chart does not read them one by one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.hub.store import literal, rollups
from stepscope.hub.store.columns import Block, Numbers
from stepscope.hub.store.engine import Tables
from stepscope.hub.store.rollups import CELL, FOLD_POINTS, HAS_STEP, LEVELS, MARK, Array, Rows
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.ledger import Ledger

MAX_KNOWN = 200_000
"""When the points of more series than this are counted, the counts begin again."""
MAX_POINTS = 1_000_000
"""About the most points that are folded at a time."""
MAX_RANGES = 64
"""The most ranges of steps of a series that are read at a time; nearby ones are joined."""

_KEY = ("series", "attempt", "at")
_LAST = "argMax(value, (step, time)) AS last, argMax(time, (step, time)) AS last_time"
_NEWEST = "argMax(value, time) AS last, max(time) AS last_time, argMax(step, time) AS newest"
"""The same where the newest point of each cell is its last one, as it usually is, in a fifth of the time."""
_TYPES = {
    "series": "UInt64",
    "level": "UInt8",
    "at": "Int64",
    "attempt": "UInt16",
    "upto": "UInt32",
    **{name: {"u8": "UInt64", "u1": "UInt8", "i8": "Int64", "f8": "Float64"}[kind] for name, kind in CELL.items()},
}

Ranges = list[tuple[int, int]]
"""Starts of the first and the last cell of each range."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Series that are being folded, each with the level of its narrowest cells, and the commits up to which."""

    bases: Mapping[int, int]
    uptos: Sequence[int]


class RollupWriter:
    """Folds the series of a shard. Not thread-safe: it belongs to the shard's one writer.

    Each fold computes the cells that new points fall into *again*, from all points up to an acknowledged commit, and
    inserts them in one block, with a mark that says up to which commit. A newer cell replaces an older one. A fold that
    is repeated, or that arrives late, therefore changes nothing; points that arrive late change the cells they belong
    to; and rows of aborted commits are in no cell.
    """

    def __init__(self, engine: Tables, ledger: Ledger) -> None:
        self._engine, self._ledger = engine, ledger
        self._counts: dict[int, int] = {}
        """Points of series that were stored since they were last folded, as far as this process knows."""
        self._due: dict[int, int] = {}
        self._work: _Work | None = None

    def note(self, totals: Block | None) -> None:
        """Count the points of a commit, by the totals of its series."""
        if totals is None:
            return
        if len(self._counts) > MAX_KNOWN:
            self._counts.clear()
        columns = (totals[name] for name in ("series", "points", "last_step"))
        numbers, points, steps = (column.data for column in columns if isinstance(column, Numbers))
        stepped = steps != NO_STEP
        for series, count in zip(numbers[stepped].tolist(), points[stepped].tolist(), strict=True):
            held = self._counts[series] = self._counts.get(series, 0) + count
            if held >= FOLD_POINTS:
                self._due[series] = held

    def forget(self) -> None:
        """Count anew, after runs were deleted."""
        self._counts.clear()
        self._due.clear()
        self._work = None

    def find_due(self) -> None:
        """Find all series that should be folded, as after an upgrade; reads all totals."""
        totals, marks = (
            self._engine.query(sql)
            for sql in (
                f"""SELECT series, sumMerge(points) AS held, maxMerge(last_step) AS step FROM totals GROUP BY series
                HAVING held >= {FOLD_POINTS} AND step > {NO_STEP}""",
                f"SELECT series, argMax(points, upto) AS held FROM rollups WHERE level = {MARK} GROUP BY series",
            )
        )
        folded = dict(marks.rows("series", "held"))
        for series, held in totals.rows("series", "held"):
            if held - folded.get(series, 0) >= FOLD_POINTS:
                self._due[series] = held - folded.get(series, 0)

    def fold_due(self, last: int, room: int = MAX_POINTS, guard: Callable[[], None] = lambda: None) -> bool:
        """Fold about `room` points of some series, up to the commit `last`, and return whether there are more."""
        if self._work is None:
            chosen: list[int] = []
            while self._due and (not chosen or room > 0):
                series, held = self._due.popitem()
                self._counts.pop(series, None)
                room -= held
                chosen.append(series)
            if not chosen:
                return False
            self._work = self._plan(chosen, last, guard)
        work, self._work = self._work, None  # forgotten if it fails: a later fold has these points, too
        if work.uptos:
            self._fold(work.bases, work.uptos[0], guard)
        if work.uptos[1:]:
            self._work = _Work(work.bases, work.uptos[1:])
        return bool(self._due) or self._work is not None

    def _plan(self, chosen: Sequence[int], last: int, guard: Callable[[], None]) -> "_Work":
        """The narrowest level of each series, and the commits up to which about `MAX_POINTS` are folded at a time."""
        marks = self._marks_of(chosen, guard)
        found = self._engine.query(
            f"""SELECT series, commit, count() AS points, min(step) AS low, max(step) AS high
            FROM metrics WHERE ({_since(chosen, marks)}) AND {self._valid(last)}
            GROUP BY series, commit ORDER BY commit"""
        )
        extents: dict[int, tuple[int, int, int]] = {}
        uptos: list[int] = []
        held = newest = 0
        for series, commit, points, low, high in found.rows("series", "commit", "points", "low", "high"):
            if held > MAX_POINTS and commit != newest:
                uptos.append(newest)
                held = 0
            newest, held = commit, held + points
            count, lowest, highest = extents.get(series, (0, low, high))
            extents[series] = (count + points, min(lowest, low), max(highest, high))
        bases = {
            series: marks[series][1] if series in marks else rollups.level_of(points, high - low + 1)
            for series, (points, low, high) in extents.items()
        }
        known = {series: base for series, base in bases.items() if base is not None}
        return _Work(known, [*uptos, last] if known else [])

    def _fold(self, bases: Mapping[int, int], upto: int, guard: Callable[[], None]) -> None:
        """Fold the points of series up to a commit."""
        marks = self._marks_of(bases, guard)
        valid = self._valid(upto)
        parts: list[Rows] = []
        for base in set(bases.values()):
            among = [series for series, each in bases.items() if each == base]
            parts += self._cells(base, f"({_since(among, marks)}) AND {valid}", valid, [*{*among} & {*marks}])
        if parts:
            found = {int(series) for part in parts for series in np.unique(part["series"])}
            parts.append(self._marks(parts, {series: bases[series] for series in found}))
            guard()
            self._engine.insert("rollups", _block(rollups.joined(parts), upto))

    def _valid(self, upto: int) -> str:
        """The condition for points that count, up to a commit."""
        aborted = self._ledger.aborted
        return f"{HAS_STEP} AND commit <= {upto}" + (
            f" AND commit NOT IN {literal.integers(aborted)}" if aborted else ""
        )

    def _marks_of(self, chosen: Iterable[int], guard: Callable[[], None]) -> dict[int, tuple[int, int]]:
        """The commit up to which series are folded, and the level of their narrowest cells.

        When the first folds of two hubs met in a series, its cells may be of two kinds, and are made anew.
        """
        found = list(self._engine.query(rollups.marks_of(chosen)).rows("series", "newest", "base", "kinds"))
        mixed = [series for series, _, _, kinds in found if kinds > 1]
        if mixed:
            guard()
            self._engine.execute(f"ALTER TABLE rollups DELETE WHERE series IN {literal.integers(mixed)}")
        return {series: (upto, base) for series, upto, base, kinds in found if kinds == 1}

    def _cells(self, base: int, new: str, valid: str, known: Sequence[int]) -> list[Rows]:
        """The cells of all levels that new points fall into, with all points that are valid."""
        place = f"bitAnd(step, {-rollups.width(base)})"
        touched = self._engine.query(
            f"SELECT series, {place} AS at FROM metrics WHERE {new} GROUP BY series, at ORDER BY series, at"
        )
        if not len(touched):
            return []
        starts: dict[int, list[int]] = {}
        for series, at in touched.rows("series", "at"):
            starts.setdefault(series, []).append(at)
        ranges = {series: _ranges(each, rollups.width(base)) for series, each in starts.items()}
        points = _among(ranges, "step", rollups.width(base))
        cell = f"SELECT series, attempt, {place} AS at, {rollups.OF_POINTS}"
        among = f"FROM metrics WHERE ({points}) AND {valid} GROUP BY series, attempt, at"
        found = self._engine.query(f"{cell}, {_NEWEST} {among}")
        if (found.array("newest") != found.array("last_step")).any():
            found = self._engine.query(f"{cell}, {_LAST} {among}")
        cells = rollups.cells_of(found, *_KEY)
        stored = self._siblings(base, {series: ranges[series] for series in known if series in ranges})
        parts: list[Rows] = [_at_level(cells, base)]
        for level in range(base + 1, LEVELS):
            below = _newest(stored.get(level - 1), cells)
            above = {**below, "at": below["at"] & -rollups.width(level)}
            cells = rollups.merged(above, _KEY)
            parts.append(_at_level(cells, level))
        return parts

    def _siblings(self, base: int, ranges: Mapping[int, Ranges]) -> dict[int, Rows]:
        """The stored cells of each level that are in the same cells of the next level as those that change."""
        conditions = []
        for level in range(base, LEVELS - 1):
            wide = rollups.width(level + 1)
            parents = {series: [(low & -wide, high & -wide) for low, high in each] for series, each in ranges.items()}
            if parents:
                conditions.append(f"level = {level} AND ({_among(parents, 'at', wide)})")
        if not conditions:
            return {}
        found = self._engine.query(
            f"""SELECT series, level, attempt, at, {", ".join(CELL)} FROM rollups FINAL
            WHERE series IN {literal.integers(ranges)} AND ({" OR ".join(conditions)})"""
        )
        cells = rollups.cells_of(found, *_KEY, "level")
        levels = cells.pop("level")
        return {
            level: {name: column[levels == level] for name, column in cells.items()} for level in range(base, LEVELS)
        }

    def _marks(self, parts: Sequence[Rows], bases: Mapping[int, int]) -> Rows:
        """The mark of each series, with the number of its points, which the widest cells have."""
        series = np.array(sorted(bases), dtype="u8")
        empty = {name: np.zeros(len(series), kind) for name, kind in CELL.items()}
        at = np.array([bases[number] for number in series.tolist()], dtype="i8")
        mark = np.full(len(series), MARK, "i8")
        held = self._held(series.tolist(), parts)
        return {
            **empty,
            "series": series,
            "attempt": np.zeros(len(series), "i8"),
            "at": at,
            "level": mark,
            "points": held,
        }

    def _held(self, series: Sequence[int], parts: Sequence[Rows]) -> Array:
        """How many points the cells of each series have, changed ones included."""
        top = LEVELS - 1
        found = self._engine.query(
            f"""SELECT series, attempt, at, {", ".join(CELL)} FROM rollups FINAL
            WHERE series IN {literal.integers(series)} AND level = {top}"""
        )
        changed = rollups.joined([part for part in parts if part["level"][:1].tolist() == [top]])
        changed.pop("level")
        cells = _newest(rollups.cells_of(found, *_KEY), changed)
        sums: dict[int, int] = {}
        for number, points in zip(cells["series"].tolist(), cells["points"].tolist(), strict=True):
            sums[number] = sums.get(number, 0) + points
        return np.array([sums.get(number, 0) for number in series], dtype="u8")


def _since(chosen: Iterable[int], marks: Mapping[int, tuple[int, int]]) -> str:
    """The condition for the points of series that are in no cell yet."""
    by_commit: dict[int, list[int]] = {}
    for series in chosen:
        by_commit.setdefault(marks[series][0] if series in marks else 0, []).append(series)
    return " OR ".join(f"series IN {literal.integers(group)} AND commit > {upto}" for upto, group in by_commit.items())


def _ranges(starts: Sequence[int], width: int) -> Ranges:
    """Join neighbouring cells, given in order, to at most about `MAX_RANGES` ranges."""
    cells = np.array(starts, dtype="i8")
    gaps = np.diff(cells // width)
    near = max(1, int(np.partition(gaps, -MAX_RANGES)[-MAX_RANGES])) if len(gaps) > MAX_RANGES else 1
    ends = np.flatnonzero(gaps > near)
    return list(
        zip(cells[np.append(0, ends + 1)].tolist(), cells[np.append(ends, len(cells) - 1)].tolist(), strict=True)
    )


def _among(ranges: Mapping[int, Ranges], column: str, width: int) -> str:
    """The condition for what lies in ranges of cells of a width."""
    return " OR ".join(
        f"series = {series} AND {column} BETWEEN {low} AND {high + width - 1}"
        for series, each in ranges.items()
        for low, high in each
    )


def _newest(stored: Rows | None, cells: Rows) -> Rows:
    """The stored cells and the new ones, which replace them."""
    if stored is None or not len(stored["at"]):
        return cells
    both = rollups.joined([{name: stored[name] for name in cells}, cells])
    return rollups.newest(both, _KEY, np.repeat([0, 1], [len(stored["at"]), len(cells["at"])]))


def _at_level(cells: Rows, level: int) -> Rows:
    return {**cells, "level": np.full(len(cells["at"]), level, "i8")}


def _block(rows: Rows, upto: int) -> Block:
    given = {**rows, "upto": np.full(len(rows["at"]), upto, "i8")}
    dtypes = {"UInt64": "u8", "UInt32": "u4", "UInt16": "u2", "UInt8": "u1", "Int64": "i8", "Float64": "f8"}
    return {
        name: Numbers(type, np.ascontiguousarray(given[name].astype(dtypes[type]))) for name, type in _TYPES.items()
    }
