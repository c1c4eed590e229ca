"""Columns in memory, the same for every engine: rows to insert, results, ClickHouse's Native format, a cache."""

import re
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

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


_DTYPES = {
    "UInt8": "<u1",
    "UInt16": "<u2",
    "UInt32": "<u4",
    "UInt64": "<u8",
    "Int8": "<i1",
    "Int16": "<i2",
    "Int32": "<i4",
    "Int64": "<i8",
    "Float32": "<f4",
    "Float64": "<f8",
    "Bool": "?",
}
_WRAPPED = re.compile(r"(Array|FixedString)\((.+)\)")


def encode(block: Block) -> bytes:
    """Write one block."""
    parts = [_varint(len(block)), _varint(rows_of(block))]
    for name, column in block.items():
        parts += (_string(name), _string(type_of(column)))
        _write(column, parts)
    return b"".join(parts)


def type_of(column: Column) -> str:
    """Name the ClickHouse type of a column."""
    if isinstance(column, Numbers):
        return column.type
    if isinstance(column, Fixed):
        return f"FixedString({column.width})"
    if isinstance(column, Lists):
        return f"Array({type_of(column.inner)})"
    return "String"


def _write(column: Column, parts: list[bytes]) -> None:
    if isinstance(column, Numbers):
        parts.append(column.data.astype(_DTYPES[column.type], copy=False).tobytes())
    elif isinstance(column, Fixed):
        parts.append(column.data)
    elif isinstance(column, Lists):
        parts.append(column.ends.astype("<u8", copy=False).tobytes())
        _write(column.inner, parts)
    else:
        known = {text: text.encode() for text in set(column.data)}
        lengths = {size: _varint(size) for size in set(map(len, known.values()))}
        strings = {text: lengths[len(data)] + data for text, data in known.items()}
        parts.append(b"".join(map(strings.__getitem__, column.data)))


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Reader(Protocol):
    """Where blocks are read from: the bytes of an answer, or a connection."""

    def varint(self) -> int:
        """Read a number of variable length."""

    def take(self, size: int) -> bytes:
        """Read so many bytes."""

    def numbers(self, dtype: str, rows: int) -> npt.NDArray[Any]:
        """Read numbers of one type."""

    def strings(self, rows: int) -> list[str]:
        """Read strings; bytes that are not UTF-8 are replaced."""


def decode(data: bytes) -> Answer:
    """Decode all blocks of a result; ValueError for a column of any other type than the ones above."""
    reader = _Bytes(data)
    blocks: list[Columns] = []
    while reader.offset < len(data):
        blocks.append(read_block(reader))
    return Answer(joined(blocks))


def read_block(reader: Reader) -> Columns:
    """Read one block; ValueError for a column of another type than the ones above."""
    width, rows = reader.varint(), reader.varint()
    block: Columns = {}
    for _ in range(width):
        name, type = (reader.take(reader.varint()).decode("utf-8", "replace") for _ in range(2))
        block[name] = _read(reader, type, rows)
    return block


def joined(blocks: Sequence[Columns]) -> Columns:
    """Put the rows of several blocks into one; a block without rows has the columns of an empty answer."""
    full = [block for block in blocks if len(next(iter(block.values()), ()))] or blocks[:1]
    if len(full) == 1:
        return full[0]
    answer: Columns = {}
    for name, first in (full[0] if full else {}).items():
        if isinstance(first, np.ndarray):
            answer[name] = np.concatenate([block[name] for block in full])
        else:
            answer[name] = [value for block in full for value in block[name]]
    return answer


def _read(reader: Reader, type: str, rows: int) -> Any:
    dtype = _DTYPES.get(type)
    if dtype is not None:
        return reader.numbers(dtype, rows)
    if type == "String":
        return reader.strings(rows)
    wrapped = _WRAPPED.fullmatch(type)
    if wrapped is None:
        raise ValueError(f"no reader for a column of type {type}")
    if wrapped[1] == "FixedString":
        width = int(wrapped[2])
        return np.frombuffer(reader.take(width * rows), f"V{width}").tolist()
    return _lists(reader, wrapped[2], rows)


def _lists(reader: Reader, inner: str, rows: int) -> list[Any]:
    ends = reader.numbers("<u8", rows).tolist()
    flat = _read(reader, inner, ends[-1] if ends else 0)
    values = flat.tolist() if isinstance(flat, np.ndarray) else flat
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


class _Bytes:
    """A reader of blocks in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.offset]
            self.offset += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def take(self, size: int) -> bytes:
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def numbers(self, dtype: str, rows: int) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = np.frombuffer(self.data, dtype, rows, self.offset)
        self.offset += values.nbytes
        return values

    def strings(self, rows: int) -> list[str]:
        data, at = self.data, self.offset
        found: list[str] = []
        for _ in range(rows):
            size = data[at]
            at += 1
            if size >= 0x80:
                self.offset = at - 1
                size = self.varint()
                at = self.offset
            found.append(data[at : at + size].decode("utf-8", "replace"))
            at += size
        self.offset = at
        return found
