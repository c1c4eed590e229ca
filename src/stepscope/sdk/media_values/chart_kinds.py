"""Curves and confusion matrices in `log`: small tables, and how the page draws them."""

import json
import math
import numbers
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from stepscope.sdk.attributes import safe_text
from stepscope.sdk.context import text_of
from stepscope.sdk.media_values.capture import Captured, Unusable, capture
from stepscope.sdk.media_values.medium import Encoded, Medium

MAX_POINTS = 10_000
"""Points of a chart, over all its lines."""
MAX_LINES = 64
MAX_CLASSES = 200
MAX_PAIRS = 10_000_000
"""Pairs of a class and a prediction in arrays that are counted."""
MAX_LISTED = 1_000_000
"""Pairs in lists and other sequences that are counted."""
STYLES = ("line", "points", "bars")
_LONGEST_NAME = 200
_PIECE, _ARRAY_PIECE = 10_000, 1_000_000
"""Pairs that are counted without a break: of lists, and of arrays."""
_NO_CLASSES = "classes must be whole numbers from 0, or texts"


class _Plain:
    """A copied sequence of numbers or texts."""

    __slots__ = ("nbytes", "values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        self.nbytes = 16 * len(values)


_Sequence = _Plain | Captured
_Table = tuple[list[str], list[list[Any]], dict[str, str]]
"""The columns, the rows, and which column is drawn as what."""


def _sequence(value: Any, most: int = MAX_POINTS) -> _Sequence:
    """Copy a sequence of numbers or texts, up to one more than are used; arrays and tensors are captured."""
    if hasattr(value, "__array__"):
        return capture(value)
    if isinstance(value, (str, bytes, Mapping)):
        raise Unusable(f"a sequence of numbers is needed, not {type(value).__name__}")
    return _Plain(tuple(islice(iter(value), most + 1)))


def _read(source: _Sequence) -> list[Any]:
    """Return the numbers of a sequence, None for one that is not finite; Unusable when it has other things."""
    if not isinstance(source, _Plain):
        array = source.read()
        if array.ndim != 1:
            raise Unusable(f"values of shape {array.shape}")
        return [each if math.isfinite(each) else None for each in array.tolist()]
    return [_number(each) for each in source.values]


def _number(value: Any) -> int | float | None:
    if not isinstance(value, numbers.Real):  # numpy's scalars are some too
        raise Unusable(f"a value of type {type(value).__name__}")
    found = int(value) if isinstance(value, numbers.Integral) else float(value)
    return found if math.isfinite(found) else None


def _name(value: Any) -> str:
    return safe_text(text_of(value)[:_LONGEST_NAME])


class Chart(Medium):
    """A chart, which is recorded as its table."""

    KIND = "chart"
    __slots__ = ()

    def _encode(self, source: Any, fast: bool) -> Encoded:
        columns, rows, drawn = self._table(source)
        content = json.dumps({"columns": columns, "data": rows}, allow_nan=False)
        return Encoded(content.encode(), "table.json", {"chart": drawn})

    def _table(self, source: Any) -> _Table:
        raise NotImplementedError


class TableChart(Chart):
    """A chart of a table: its columns and rows, and which columns are drawn as what."""

    __slots__ = ("_drawn",)

    def __init__(self, columns: Any, rows: Any, drawn: Mapping[str, str]) -> None:
        self._drawn = dict(drawn)
        super().__init__((columns, rows))

    def _capture(self, data: Any) -> "_Rows":
        columns, rows = data
        found = [tuple(row) for row in islice(iter(rows), MAX_POINTS + 1)]
        if len(found) > MAX_POINTS:
            raise Unusable(f"more than {MAX_POINTS} points")
        return _Rows([_name(each) for each in columns], found)

    def _table(self, source: "_Rows") -> _Table:
        rows = [[_cell(each) for each in row] for row in source.rows]
        return source.columns, rows, {key: safe_text(value) for key, value in self._drawn.items()}


class _Rows:
    """The columns and rows of a table."""

    __slots__ = ("columns", "nbytes", "rows")

    def __init__(self, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
        self.columns, self.rows = columns, rows
        self.nbytes = 32 * len(columns) * len(rows)


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value[:_LONGEST_NAME] if isinstance(value, str) else value
    return _number(value) if isinstance(value, numbers.Real) else _name(value)


class _Lines:
    """The names, the x and the y of lines; x is None where they are counted."""

    __slots__ = ("lines", "nbytes")

    def __init__(self, lines: list[tuple[str, _Sequence | None, _Sequence]]) -> None:
        self.lines = lines
        self.nbytes = sum(y.nbytes + (0 if x is None else x.nbytes) for _, x, y in lines)


class Curve(Chart):
    """Points of y over x, such as a ROC curve; several lines as dicts of them by name. Without y, x is counted.

    `style` is `line`, `points` or `bars`, of which the last may have texts as x.
    """

    __slots__ = ("_names", "_style")

    def __init__(
        self, x: Any, y: Any = None, caption: Any = None, *, x_name: Any = "x", y_name: Any = "y", style: Any = "line"
    ) -> None:
        self._names = (_name(x_name), _name(y_name))
        self._style = text_of(style)
        super().__init__((None, x) if y is None else (x, y), caption)

    def _capture(self, data: Any) -> _Lines:
        x, y = data
        if self._style not in STYLES:
            raise Unusable(f"style {self._style[:20]!r}; use one of {', '.join(STYLES)}")
        if not isinstance(y, Mapping):
            return _Lines([("", None if x is None else _sequence(x), _sequence(y))])
        if len(y) > MAX_LINES:
            raise Unusable(f"more than {MAX_LINES} lines")
        shared = None if x is None or isinstance(x, Mapping) else _sequence(x)
        own = x if isinstance(x, Mapping) else {}
        return _Lines(
            [
                (_name(name), _sequence(own[name]) if name in own else shared, _sequence(each))
                for name, each in y.items()
            ]
        )

    def _table(self, source: _Lines) -> _Table:
        rows: list[list[Any]] = []
        for name, x, y in source.lines:
            below = _read(y)
            places = list(range(len(below))) if x is None else self._places(x)
            if len(places) != len(below):
                raise Unusable(f"{len(places)} values of x and {len(below)} of y")
            if len(rows) + len(below) > MAX_POINTS:
                raise Unusable(f"more than {MAX_POINTS} points")
            rows += [[at, value, name] for at, value in zip(places, below, strict=True)]
        across, up = self._names
        columns = [across, up if up != across else f"{up} (y)", "line"]
        return columns, rows, {"style": self._style, "x": columns[0], "y": columns[1], "by": columns[2]}

    def _places(self, x: _Sequence) -> list[Any]:
        if self._style == "bars" and isinstance(x, _Plain) and all(isinstance(each, str) for each in x.values):
            return [_name(each) for each in x.values]
        return _read(x)


class _Pairs:
    """The classes and the predictions of samples."""

    __slots__ = ("nbytes", "sides")

    def __init__(self, truth: Any, predictions: Any) -> None:
        self.sides = (_samples(truth), _samples(predictions))
        self.nbytes = sum(each.nbytes for each in self.sides)


def _samples(value: Any) -> _Sequence:
    """Copy a sequence of classes; Unusable when it is too long, if possible before it is copied."""
    most = MAX_PAIRS if hasattr(value, "__array__") else MAX_LISTED
    if hasattr(value, "__len__") and len(value) > most:
        raise Unusable(f"more than {most} samples")
    found = _sequence(value, most)
    if isinstance(found, _Plain) and len(found.values) > most:
        raise Unusable(f"more than {most} samples")
    return found


class Confusion(Chart):
    """A confusion matrix: counts with a row for each class and a column for each prediction, or both as sequences.

    Classes are numbers from 0, or texts; `names` names those that are numbers.
    """

    __slots__ = ("_classes",)

    def __init__(
        self, matrix: Any = None, names: Any = None, caption: Any = None, *, truth: Any = None, predictions: Any = None
    ) -> None:
        self._classes: list[str] = []
        super().__init__((matrix, names, truth, predictions), caption)

    def _capture(self, data: Any) -> Any:
        matrix, names, truth, predictions = data
        if names is not None:
            self._classes = [_name(each) for each in islice(iter(names), MAX_CLASSES + 1)]
        if matrix is not None:
            return capture(matrix)
        if truth is None or predictions is None:
            raise Unusable("needs a matrix, or truth and predictions")
        return _Pairs(truth, predictions)

    def _table(self, source: "_Pairs | Captured") -> _Table:
        counts = self._counted(source) if isinstance(source, _Pairs) else self._given(source.read())
        size = len(counts)
        if not 0 < max(size, len(self._classes)) <= MAX_CLASSES:
            raise Unusable(f"a matrix of {max(size, len(self._classes))} classes; the limit is {MAX_CLASSES}")
        if self._classes and len(self._classes) < size:
            raise Unusable(f"{len(self._classes)} names for {size} classes")
        classes = self._classes or [str(each) for each in range(size)]
        rows = [
            [classes[row], classes[column], counts[row][column] if max(row, column) < size else 0]
            for row in range(len(classes))
            for column in range(len(classes))
        ]
        drawn = {"style": "matrix", "x": "predicted", "y": "actual", "value": "count"}
        return ["actual", "predicted", "count"], rows, drawn

    def _given(self, array: Any) -> list[list[Any]]:
        if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] > MAX_CLASSES:
            raise Unusable(f"a matrix of shape {array.shape}")
        found: list[list[Any]] = array.tolist()
        if not all(math.isfinite(each) and each >= 0 for row in found for each in row):
            raise Unusable("counts that are negative or not finite")
        return found

    def _counted(self, source: _Pairs) -> list[list[int]]:
        sides = [each.values if isinstance(each, _Plain) else _flat(each.read()) for each in source.sides]
        if len(sides[0]) != len(sides[1]):
            raise Unusable(f"{len(sides[0])} classes and {len(sides[1])} predictions")
        if not any(isinstance(each, tuple) for each in sides):
            return _count_arrays(*sides)
        pairs = _distinct(*sides)
        found = list(dict.fromkeys(value for pair in pairs for value in pair))
        numbers = self._number_texts(found) if all(type(value) is str for value in found) else _number_classes(found)
        size = _matrix_size(max(numbers.values(), default=-1))
        counts = [[0] * size for _ in range(size)]
        for (row, column), count in pairs.items():
            counts[numbers[row]][numbers[column]] += count
        return counts

    def _number_texts(self, found: list[str]) -> dict[Any, int]:
        """Number the classes that are texts in the order of their names, after those that were named."""
        names = {value: _name(value) for value in found}
        self._classes = list(dict.fromkeys([*self._classes, *sorted(names.values())]))[: MAX_CLASSES + 1]
        places = {name: at for at, name in enumerate(self._classes)}
        return {value: places.get(name, MAX_CLASSES) for value, name in names.items()}


def _flat(array: Any) -> Any:
    if array.ndim != 1:
        raise Unusable(f"values of shape {array.shape}")
    return array


def _matrix_size(highest: Any) -> int:
    """Return the size of a matrix of classes up to a number; Unusable when it is too large."""
    size = int(highest) + 1
    if size > MAX_CLASSES:
        raise Unusable(f"a matrix of {size} classes; the limit is {MAX_CLASSES}")
    return size


def _count_arrays(truth: Any, predictions: Any) -> list[list[int]]:
    import numpy  # whoever has an array has it

    size = 0
    for each in (truth, predictions):
        if each.dtype.kind == "f" and not ((each >= 0) & (each == numpy.floor(each)) & numpy.isfinite(each)).all():
            raise Unusable(_NO_CLASSES)
        if len(each) and each.min() < 0:
            raise Unusable(_NO_CLASSES)
        size = max(size, _matrix_size(each.max()) if len(each) else 0)
    counts = numpy.zeros(size * size, numpy.int64)
    for at in range(0, len(truth), _ARRAY_PIECE):
        rows, columns = (each[at : at + _ARRAY_PIECE].astype(numpy.int64) for each in (truth, predictions))
        counts += numpy.bincount(rows * size + columns, minlength=size * size)
    found: list[list[int]] = counts.reshape(size, size).tolist()
    return found


def _distinct(truth: Any, predictions: Any) -> "Counter[tuple[Any, Any]]":
    """Count equal pairs, a piece at a time, so that other threads can run between them."""
    found: Counter[tuple[Any, Any]] = Counter()
    for at in range(0, len(truth), _PIECE):
        pieces = [each[at : at + _PIECE] for each in (truth, predictions)]
        found.update(zip(*(each if isinstance(each, tuple) else each.tolist() for each in pieces), strict=True))
        if len(found) > MAX_CLASSES**2:
            raise Unusable(f"more than {MAX_CLASSES} classes")
    return found


def _number_classes(values: list[Any]) -> dict[Any, int]:
    numbers = {value: _number(value) for value in values}
    if not all(found is not None and found >= 0 and found == int(found) for found in numbers.values()):
        raise Unusable(_NO_CLASSES)
    return {value: int(found or 0) for value, found in numbers.items()}
