"""ClickHouse's Native format: encodes columns for an insert, decodes the columns of a result."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stepscope.hub.store.columns import Answer, Block, Column, Columns, Fixed, Lists, Numbers, rows_of

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
