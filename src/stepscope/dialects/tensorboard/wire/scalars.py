"""Plain scalars of TensorBoard's records, checked and packed many at a time with numpy."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from stepscope.dialects.tensorboard.wire.crc32c import matches, rows_match
from stepscope.dialects.tensorboard.wire.events import parse_event
from stepscope.model.records import METRIC

_FEWEST = 8
"""Records of one size below which columns are not worth it."""
_MAX_SHAPES = 256
"""Different scalars of one size in a buffer; those beyond it are parsed one by one."""
_LONGEST = 4096
_STEP = 10
"""Where the varint of the step begins: behind the time, which is a double, and the tags of both fields."""
_LATEST = 9e9
_other = struct.pack("<f", 12345.5)
_pack = msgspec.msgpack.Encoder().encode


class _Shape(NamedTuple):
    """A kind of record: everything but time, step and value is the same."""

    value: int
    """Where the float is."""
    key: bytes
    """The packed name of the metric."""


class Scalars:
    """Packs the plain scalars among records; the shapes of records seen before are kept."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, _Shape | None] = {}

    def pack(self, data: bytes, starts: Sequence[int], sizes: Sequence[int]) -> tuple[list[bytes | None], set[int]]:
        """Return a packed metric for each plain scalar, None for any other record, and which records are damaged."""
        packed: list[bytes | None] = [None] * len(starts)
        try:
            import numpy
        except ImportError:
            return packed, {i for i, place in enumerate(zip(starts, sizes, strict=True)) if not matches(data, *place)}
        every = numpy.frombuffer(data, numpy.uint8)
        places, lengths = numpy.array(starts, numpy.int64), numpy.array(sizes, numpy.int64)
        bad: set[int] = set()
        for size in numpy.unique(lengths).tolist():
            (indices,) = numpy.nonzero(lengths == size)
            if len(indices) < _FEWEST or size > _LONGEST:
                bad |= {index for index in indices.tolist() if not matches(data, starts[index], size)}
                continue
            windows = numpy.lib.stride_tricks.sliding_window_view(every, size + 4)
            rows = windows[places[indices]]
            whole = rows_match(rows)
            bad |= set(indices[~whole].tolist())
            if size > _STEP + 6:
                self._pack_rows(rows[whole][:, :size], indices[whole], packed)
        return packed, bad

    def _pack_rows(self, rows: Any, indices: Any, packed: list[bytes | None]) -> None:
        """Pack the rows that have a time and a step, by the length of the step's varint."""
        fits = (rows[:, 0] == 0x09) & (rows[:, 9] == 0x10)
        for length in range(1, 6):
            last = rows[:, _STEP + length - 1] < 0x80
            self._pack_steps(rows[fits & last], indices[fits & last], length, packed)
            fits &= ~last

    def _pack_steps(self, rows: Any, indices: Any, length: int, packed: list[bytes | None]) -> None:
        """Pack rows whose steps have varints of one length, shape by shape."""
        for _ in range(_MAX_SHAPES):
            if not len(rows):
                return
            shape = self._shape(rows[0].tobytes(), _STEP + length)
            alike = rows[:, _STEP + length :] == rows[0, _STEP + length :]
            if shape is not None:
                alike[:, shape.value - _STEP - length : shape.value - _STEP - length + 4] = True
            same = alike.all(axis=1)
            if shape is not None:
                self._pack_alike(rows[same], indices[same], length, shape, packed)
            same[0] = True
            rows, indices = rows[~same], indices[~same]

    def _shape(self, row: bytes, after: int) -> _Shape | None:
        """Find where the float of a record is: the bytes that change the value, and nothing else, when they change."""
        try:
            values = parse_event(row).values
            number = values[0].scalar if len(values) == 1 else None
        except ValueError:
            return None
        if number is None or number != number or abs(number) > 3.4e38:
            return None
        at = row.rfind(struct.pack("<f", number), after)
        if at < 0:
            return None
        key = row[after:at] + row[at + 4 :] + bytes([after, at & 0xFF, at >> 8])
        if key not in self._shapes:
            changed = parse_event(row[:at] + _other + row[at + 4 :]).values
            right = len(changed) == 1 and changed[0].scalar == 12345.5 and changed[0].tag == values[0].tag
            self._shapes[key] = _Shape(at, _pack(values[0].tag)) if right else None
        return self._shapes[key]

    def _pack_alike(self, rows: Any, indices: Any, length: int, shape: _Shape, packed: list[bytes | None]) -> None:
        import numpy

        times = numpy.ascontiguousarray(rows[:, 1:9]).view("<f8")[:, 0]
        usual = (times >= 0) & (times < _LATEST)
        if not usual.all():
            rows, indices, times = rows[usual], indices[usual], times[usual]
        steps = numpy.zeros(len(rows), numpy.int64)
        for place in range(length):
            steps |= (rows[:, _STEP + place].astype(numpy.int64) & 0x7F) << 7 * place
        values = numpy.ascontiguousarray(rows[:, shape.value : shape.value + 4]).view("<f4")[:, 0]
        columns = (
            _constant(numpy, len(rows), bytes([0x96, METRIC, 0xD3])),
            _bytes(numpy, (times * 1e9).astype(">i8")),
            _constant(numpy, len(rows), b"\xcd" if length < 3 else b"\xce" if length < 5 else b"\xd3"),
            _bytes(numpy, steps.astype(">u2" if length < 3 else ">u4" if length < 5 else ">i8")),
            _constant(numpy, len(rows), b"\xc0\xc0\x81" + shape.key + b"\xcb"),
            _bytes(numpy, values.astype(">f8")),
        )
        table = numpy.concatenate(columns, axis=1)
        width, joined = table.shape[1], table.tobytes()
        for index, start in zip(indices.tolist(), range(0, len(joined), width), strict=True):
            packed[index] = joined[start : start + width]


def _constant(numpy: Any, count: int, data: bytes) -> Any:
    return numpy.broadcast_to(numpy.frombuffer(data, numpy.uint8), (count, len(data)))


def _bytes(numpy: Any, column: Any) -> Any:
    return column.view(numpy.uint8).reshape(len(column), column.itemsize)
