"""Rollups: cells of steps at several widths, each with what a chart shows of its points, and how cells are merged."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.hub.store import literal
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import NO_STEP

# A cell begins at a multiple of its width. All widths are powers of two, so that `bitAnd(step, -width)` is the start of
# a step's cell, of negative steps too.

FIRST_WIDTH = 128
FACTOR = 8
LEVELS = 8
MARK = 255
"""The level of a row that is no cell: `upto` is the last commit whose points are in the cells of the series, and `at`
is the level of its narrowest cells."""
FOLD_POINTS = 131_072
"""Points of a series that are folded at a time; a shorter series has no cells."""
MIN_CELL_POINTS = 64
"""The narrowest cells of a series have at least about so many points: those of a sparse series are wider."""

Array = npt.NDArray[Any]
Rows = Mapping[str, Array]
"""Columns of equal length."""

CELL = {
    "points": "u8", "good": "u8", "flags": "u1", "first_step": "i8", "last_step": "i8", "low": "f8", "high": "f8",
    "total": "f8", "last": "f8", "last_time": "i8",
}  # fmt: skip
"""What a cell holds: `good` counts finite values; `low`, `high` and `total` are of those, +Inf and -Inf without any."""

OF_POINTS = """count() AS points, countIf(isFinite(value)) AS good,
    groupBitOr(toUInt8(if(isFinite(value), 0, if(isNaN(value), 1, if(value > 0, 2, 4))))) AS flags,
    min(step) AS first_step, max(step) AS last_step, min(if(isFinite(value), value, 1 / 0)) AS low,
    max(if(isFinite(value), value, -1 / 0)) AS high, sumIf(value, isFinite(value)) AS total"""
"""The cell of some points, but for the last one."""


def place(engine: Engine, step: str, seat: str, time: str) -> str:
    """What decides which point is the last one, to be compared as a whole; `seat` is below 2**48.

    One wide number where the engine has such: to compare tuples takes an aggregation twice as long.
    """
    if not engine.modern:
        return f"({step}, {seat}, {time})"
    return f"(bitShiftLeft(toInt256({step}), 112) + bitShiftLeft(toInt256({seat}), 64) + {time})"


def width(level: int) -> int:
    """How many steps a cell has."""
    return int(FIRST_WIDTH * FACTOR**level)


def level_within(steps: int) -> int | None:
    """The widest level of which two cells fit into so many steps; None when none does."""
    fitting = [level for level in range(LEVELS) if 2 * width(level) <= steps]
    return fitting[-1] if fitting else None


def level_of(points: int, steps: int) -> int | None:
    """The narrowest level for a series with so many points in so many steps; None when even the widest is too fine."""
    return next((level for level in range(LEVELS) if points * width(level) >= MIN_CELL_POINTS * steps), None)


_MARKS = """SELECT series, max(upto) AS newest, argMax(at, upto) AS base, uniqExact(at) AS kinds FROM rollups
    WHERE {among} GROUP BY series"""
ALL_MARKS = _MARKS.format(among=f"level = {MARK}")
"""The query for how far all series are folded."""


def marks_of(series: Iterable[int]) -> str:
    """The query for how far series are folded."""
    return _MARKS.format(among=f"series IN {literal.integers(series)} AND level = {MARK}")


def cells_of(found: Answer, *keys: str) -> dict[str, Array]:
    """The cells of an answer, with other columns of integers."""
    return {
        **{name: found.array(name).astype("u8" if name == "series" else "i8") for name in keys},
        **{name: found.array(name, kind).astype(kind) for name, kind in CELL.items()},
    }


def joined(parts: Sequence[Rows]) -> dict[str, Array]:
    """The rows of several parts."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def newest(rows: Rows, keys: Sequence[str], age: Array) -> dict[str, Array]:
    """Of the rows that agree in `keys` the last by `age`, in the order of the keys."""
    order = np.lexsort((age, *(rows[name] for name in reversed(keys))))
    rows = {name: column[order] for name, column in rows.items()}
    last = np.ones(len(order), bool)
    last[:-1] = np.any([rows[name][1:] != rows[name][:-1] for name in keys], axis=0)
    return {name: column[last] for name, column in rows.items()}


def merged(rows: Rows, keys: Sequence[str], last_by: Sequence[str] = ("last_step", "last_time")) -> dict[str, Array]:
    """Merge the cells that agree in `keys`, in their order; of the last points that one counts which is last in
    `last_by`, which is kept, too."""
    order = np.lexsort([rows[name] for name in (*reversed(last_by), *reversed(keys))])
    rows = {name: column[order] for name, column in rows.items()}
    count = len(order)
    if not count:
        return dict(rows)
    begins = np.zeros(count, bool)
    begins[0] = True
    for name in keys:
        begins[1:] |= rows[name][1:] != rows[name][:-1]
    firsts = np.flatnonzero(begins)
    ends = np.append(firsts[1:], count) - 1
    with np.errstate(over="ignore", invalid="ignore"):
        folded = {name: how.reduceat(rows[name], firsts) for name, how in _FOLDS.items()}
    chosen = {name: rows[name][ends] for name in rows if name not in folded}
    return {**chosen, **folded}


_FOLDS: Mapping[str, np.ufunc] = {
    **dict.fromkeys(("points", "good", "total"), np.add),
    "flags": np.bitwise_or,
    **dict.fromkeys(("first_step", "low"), np.minimum),
    **dict.fromkeys(("last_step", "high"), np.maximum),
}

HAS_STEP = f"step > {NO_STEP}"
