"""CRC-32C, masked as TensorBoard's records store it, for one range of bytes or many of one size."""

import struct
from functools import cache
from typing import Any


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _make_table()
_stored = struct.Struct("<I").unpack_from


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A checksum as the records store it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def matches(data: bytes, start: int, size: int) -> bool:
    """Return whether a range of bytes has the checksum behind it."""
    return bool(masked(crc32c(data[start : start + size])) == _stored(data, start + size)[0])


def rows_match(rows: Any) -> Any:
    """The same for the rows of a numpy array of bytes, each with its checksum in the last four: a truth value each."""
    import numpy

    size = rows.shape[1] - 4
    crc = numpy.full(len(rows), 0xFFFFFFFF, numpy.uint32)
    pairs = numpy.ascontiguousarray(rows[:, : size & ~1]).view("<u2")
    for column in numpy.ascontiguousarray(pairs.T):
        crc = _pair_table()[(crc ^ column) & 0xFFFF] ^ crc >> 16
    if size & 1:
        crc = _byte_table()[(crc ^ rows[:, size - 1]) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    turned = (crc >> 15 | crc << 17) + numpy.uint32(0xA282EAD8)
    return turned == numpy.ascontiguousarray(rows[:, size:]).view("<u4")[:, 0]


@cache
def _byte_table() -> Any:
    import numpy

    return numpy.array(_TABLE, numpy.uint32)


@cache
def _pair_table() -> Any:
    """The checksums of all pairs of bytes, the first in the lower half of the index."""
    import numpy

    once = _byte_table()
    pairs = numpy.arange(65536, dtype=numpy.uint32)
    first = once[pairs & 0xFF] ^ pairs >> 8
    return once[first & 0xFF] ^ first >> 8
