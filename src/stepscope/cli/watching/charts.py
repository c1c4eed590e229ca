"""A metric in characters: braille from the lowest to the highest of each column, `!` where it was no number."""

import math
from typing import TypeAlias

from stepscope.cli import text
from stepscope.cli.watching.hub_view import StoredTrend
from stepscope.journal.key_trend import KeyTrend, Part

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a character's dots, by row and column."""
_EMPTY = 0x2800
Trend: TypeAlias = KeyTrend | StoredTrend
"""A metric over its steps."""


def chart(trend: Trend, columns: int, rows: int, *, log: bool = False) -> list[str]:
    """Draw a metric in some rows of characters under a line that names it."""
    parts = trend.drawn()
    low, high = extremes(list(parts.values()))
    head = f"{text.clean(trend.key)} {text.value_of(trend.key, trend.last)}"
    span = f"{text.value_of(trend.key, low)}..{text.value_of(trend.key, high)}" if low is not None else ""
    bad = sum(part.bad for part in parts.values())
    marks = f" !{bad}" if bad else ""
    room = columns - len(span) - len(marks) - 1
    lines = [text.cut(f"{text.fill(head, max(room, 8))} {span}{marks}", columns)]
    return lines + _body(trend, parts, columns, rows, log=log)


def extremes(parts: list[Part]) -> tuple[float | None, float | None]:
    """The minimum and maximum of the finite values."""
    good = [part for part in parts if part.good]
    if not good:
        return None, None
    return min(part.low for part in good), max(part.high for part in good)


def _body(trend: Trend, parts: dict[int, Part], columns: int, rows: int, *, log: bool) -> list[str]:
    wide, tall = columns * 2, rows * 4
    bands, bad = _columns(trend, parts, wide)
    scale = _Scale([value for band in bands.values() for value in band], log)
    cells = [[0] * columns for _ in range(rows)]
    for x, (low, high) in _joined(bands).items():
        bottom, top = (round(scale(value) * (tall - 1)) for value in (low, high))
        for y in range(bottom, top + 1):
            row = tall - 1 - y
            cells[row // 4][x // 2] |= _DOTS[row % 4][x % 2]
    lines = [[chr(_EMPTY | cell) if cell else " " for cell in row] for row in cells]
    for x in bad:
        lines[0][x // 2] = "!"
    return ["".join(line) for line in lines]


def _columns(trend: Trend, parts: dict[int, Part], wide: int) -> tuple[dict[int, tuple[float, float]], set[int]]:
    """Minimum and maximum of each column of dots, and the columns with non-finite values."""
    first, last = trend.extent
    count = max(last - first, 1)
    bands: dict[int, tuple[float, float]] = {}
    bad = set()
    for at, part in parts.items():
        x = (at - first) * (wide - 1) // count
        if part.bad:
            bad.add(x)
        if part.good:
            low, high = bands.get(x, (math.inf, -math.inf))
            bands[x] = (min(low, part.low), max(high, part.high))
    return bands, bad


def _joined(bands: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Extend bands to the previous one, so that a line has no gaps."""
    made: dict[int, tuple[float, float]] = {}
    before: int | None = None
    for x in sorted(bands):
        low, high = bands[x]
        if before is not None:
            for hole in range(before + 1, x):
                made[hole] = bands[before]
            low, high = min(low, bands[before][1]), max(high, bands[before][0])
        made[x] = (low, high)
        before = x
    return made


class _Scale:
    """The position of a value between the minimum (0) and the maximum (1)."""

    def __init__(self, values: list[float], log: bool) -> None:
        low, high = min(values, default=0.0), max(values, default=1.0)
        self._log = log and low > 0
        self._low, self._high = self._of(low), self._of(high)

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        """Place a value."""
        # Divided first: the range of two floats may be no float. Next to the least float it cannot be divided.
        part = 2.0 if self._high - self._low == math.inf else 1.0
        range_ = self._high / part - self._low / part
        if range_ <= 0:
            return 0.5
        return min(max((self._of(value) / part - self._low / part) / range_, 0.0), 1.0)
