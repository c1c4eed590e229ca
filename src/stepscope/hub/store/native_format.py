"""ClickHouse's Native format, both ways: columns to bytes for an insert, bytes to columns for an answer."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

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
        known = {text: _string(text) for text in set(column.data)}
        parts.append(b"".join(map(known.__getitem__, column.data)))


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


def decode(data: bytes) -> Answer:
    """Read all blocks of an answer; a column of another type than the ones above is a ValueError."""
    reader = _Reader(data)
    blocks: list[Columns] = []
    while reader.offset < len(data):
        width, rows = reader.varint(), reader.varint()
        block: Columns = {}
        for _ in range(width):
            name = reader.string()
            block[name] = reader.column(reader.string(), rows)
        if rows or not blocks:
            blocks.append(block)
    return Answer(_joined(blocks))


def _joined(blocks: Sequence[Columns]) -> Columns:
    if len(blocks) > 1 and not len(next(iter(blocks[0].values()), ())):
        blocks = blocks[1:]
    if len(blocks) == 1:
        return blocks[0]
    answer: Columns = {}
    for name, first in (blocks[0] if blocks else {}).items():
        if isinstance(first, np.ndarray):
            answer[name] = np.concatenate([block[name] for block in blocks])
        else:
            answer[name] = [value for block in blocks for value in block[name]]
    return answer


class _Reader:
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

    def string(self) -> str:
        return self.take(self.varint()).decode("utf-8", "replace")

    def column(self, type: str, rows: int) -> Any:
        dtype = _DTYPES.get(type)
        if dtype is not None:
            values = np.frombuffer(self.data, dtype, rows, self.offset)
            self.offset += values.nbytes
            return values
        if type == "String":
            return self._strings(rows)
        wrapped = _WRAPPED.fullmatch(type)
        if wrapped is None:
            raise ValueError(f"no reader for a column of type {type}")
        if wrapped[1] == "FixedString":
            return [self.take(int(wrapped[2])) for _ in range(rows)]
        return self._lists(wrapped[2], rows)

    def _strings(self, rows: int) -> list[str]:
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

    def _lists(self, inner: str, rows: int) -> list[Any]:
        ends = self.column("UInt64", rows).tolist()
        flat = self.column(inner, ends[-1] if ends else 0)
        values = flat.tolist() if isinstance(flat, np.ndarray) else flat
        return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]
