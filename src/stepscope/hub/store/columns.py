"""Columns in memory, the same for every engine: rows to insert, results, exact integers, and a cache of results."""

import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers of one ClickHouse type, such as `Int64`."""

    type: str
    data: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Byte strings of one width, joined."""

    width: int
    data: bytes

    def __len__(self) -> int:
        return len(self.data) // self.width


@dataclass(frozen=True, slots=True)
class Texts:
    """Strings, all encodable as UTF-8."""

    data: Sequence[str]

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Lists:
    """An array in each row: the end offset of each, and all elements concatenated."""

    ends: npt.NDArray[np.uint64]
    inner: "Numbers | Fixed | Texts"

    def __len__(self) -> int:
        return len(self.ends)


Column: TypeAlias = Numbers | Fixed | Texts | Lists
Block: TypeAlias = dict[str, Column]
"""Columns of equal length by name: rows to insert into one table."""

_CODES = {
    "UInt8": "B",
    "UInt16": "H",
    "UInt32": "I",
    "UInt64": "Q",
    "Int16": "h",
    "Int32": "i",
    "Int64": "q",
    "Float64": "d",
}


def numbers(type: str, values: Iterable[int | float]) -> Numbers:
    """Make a column of numbers; OverflowError or TypeError when one does not fit, never a silent conversion."""
    data = array(_CODES[type], values)
    return Numbers(type, np.frombuffer(data, dtype=data.typecode))


def fixed(width: int, values: Sequence[bytes | None]) -> Fixed:
    """Make a column of ids; None becomes zeros, and a wrong length raises ValueError."""
    if not all(values):
        zeros = bytes(width)
        values = [value or zeros for value in values]
    filled = cast(Sequence[bytes], values)
    if not {width}.issuperset(map(len, filled)):
        raise ValueError(f"an id is not {width} bytes long")
    return Fixed(width, b"".join(filled))


def texts(values: Sequence[str]) -> Texts:
    """Make a column of strings; ValueError or TypeError for anything else."""
    "".join(values).encode()
    return Texts(values)


def constant(type: str, value: int, rows: int) -> Numbers:
    """Make a column of one repeated number."""
    return Numbers(type, np.full(rows, value, dtype=_CODES[type]))


def ends_of(lengths: Iterable[int]) -> npt.NDArray[np.uint64]:
    """Turn the lengths of arrays into the offsets behind them."""
    return np.cumsum(np.fromiter(lengths, dtype=np.uint64), dtype=np.uint64)


def rows_of(block: Block) -> int:
    """Count the rows of a block."""
    return len(next(iter(block.values()), ()))


Columns: TypeAlias = dict[str, Any]
"""By name: arrays of numbers, lists of str, of bytes, or of lists."""


class Answer:
    """The columns of a query result; without rows the columns may be unknown."""

    __slots__ = ("columns",)

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> list[Any]:
        """A column as plain Python values."""
        if not self.columns:
            return []
        values = self.columns[name]
        return values.tolist() if isinstance(values, np.ndarray) else list(values)

    def array(self, name: str, dtype: str = "f8") -> npt.NDArray[Any]:
        """A column of numbers as an array."""
        found = self.columns.get(name) if self.columns else None
        return np.empty(0, dtype) if found is None else np.asarray(found)

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows, of the named columns or of all."""
        return zip(*(self[name] for name in names or self.columns), strict=True)

    def one(self, name: str) -> Any:
        """The value of a column in the only row."""
        (value,) = self[name]
        return value


EXACT_LIMIT = 2.0**53
"""Doubles below this hold every integer."""
INT64_LIMIT = 2**63

Remainders = npt.NDArray[np.int16]


def remainders(given: Sequence[int | float], stored: Floats) -> Remainders | None:
    """The differences of the doubles from the given 64-bit integers; None when all are exact."""
    found: Remainders | None = None
    for at in np.flatnonzero(np.abs(stored) >= EXACT_LIMIT).tolist():
        value = given[at]
        if isinstance(value, int) and -INT64_LIMIT <= value < INT64_LIMIT and (rest := value - int(stored[at])):
            if found is None:
                found = np.zeros(len(stored), np.int16)
            found[at] = rest
    return found


def is_large(*values: float) -> bool:
    """Return whether a difference may belong to one of these numbers."""
    return any(EXACT_LIMIT <= abs(value) <= INT64_LIMIT for value in values)


def exact_number(value: float, rest: int = 0) -> int | float:
    """Return the given number: an exact integer where doubles are not exact."""
    return int(value) + rest if is_large(value) else value


def patch_exact(shown: list[object], values: Floats, rest: npt.NDArray[np.int64]) -> None:
    """Replace doubles by the exact integers they stand for."""
    for at in np.flatnonzero((np.abs(values) >= EXACT_LIMIT) & (np.abs(values) <= INT64_LIMIT)).tolist():
        shown[at] = exact_number(float(values[at]), int(rest[at]))


MAX_CACHED_BYTES = 16 * 1024 * 1024
LARGEST_CACHED = MAX_CACHED_BYTES // 8
"""A larger answer is not kept: it would displace many others."""


class AnswerCache:
    """Keeps encoded answers by statement, the most recently used ones; all methods are thread-safe.

    Views ask the same questions again and again, and to parse and plan a query takes the engine milliseconds, however
    little it reads.
    """

    def __init__(self, most_bytes: int = MAX_CACHED_BYTES, largest: int = LARGEST_CACHED) -> None:
        self._most_bytes, self._largest = most_bytes, largest
        self._lock = threading.Lock()
        self._answers: dict[str, bytes] = {}
        self._bytes = 0
        self.version = 0
        """Grows with every change of the store. Read it before a query and pass it to `put` with the answer."""

    def __contains__(self, sql: str) -> bool:
        return sql in self._answers

    def get(self, sql: str) -> bytes | None:
        """Return the answer to a statement, None if it is not known."""
        with self._lock:
            found = self._answers.pop(sql, None)
            if found is not None:
                self._answers[sql] = found
            return found

    def put(self, sql: str, answer: bytes, version: int) -> None:
        """Keep an answer, unless the store has changed since its query began.

        Answers from tables of the system are not kept: those change by themselves.
        """
        size = len(sql) + len(answer)
        if size > self._largest or "system." in sql:
            return
        with self._lock:
            if version != self.version or sql in self._answers:
                return
            self._answers[sql] = answer
            self._bytes += size
            while self._bytes > self._most_bytes:
                oldest = next(iter(self._answers))
                self._bytes -= len(oldest) + len(self._answers.pop(oldest))

    def clear(self) -> None:
        """Forget all answers: the store has changed, or may have."""
        with self._lock:
            self.version += 1
            self._answers.clear()
            self._bytes = 0
