"""Columns of rows to insert, in memory, the same for every engine."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
    """Strings; every one of them can be encoded as UTF-8."""

    data: Sequence[str]

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Lists:
    """An array in each row: where each one ends, and all elements in a row."""

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
    """Make a column of numbers; OverflowError or TypeError when one does not fit, never a silent change."""
    data = array(_CODES[type], values)
    return Numbers(type, np.frombuffer(data, dtype=data.typecode))


def fixed(width: int, values: Sequence[bytes | None]) -> Fixed:
    """Make a column of ids; None becomes zeros, a wrong length is a ValueError."""
    zeros = bytes(width)
    filled = [value or zeros for value in values]
    if not {width}.issuperset(map(len, filled)):
        raise ValueError(f"an id is not {width} bytes long")
    return Fixed(width, b"".join(filled))


def texts(values: Sequence[str]) -> Texts:
    """Make a column of strings; ValueError or TypeError when one is no text."""
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
