"""Packed metrics as columns, without a record for each: what a trainer logs in its loop has one shape for long."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.hub.store.columns import Floats, Ints
from stepscope.model.records import Metric

MIN_ROWS = 64
"""Fewer records are decoded faster than they are compared."""
_TIME = slice(3, 11)
_STEP_WIDTHS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_metric = msgspec.msgpack.Decoder(Metric)
_metrics = msgspec.msgpack.Decoder(list[Metric])


class MetricRows(Sequence[Metric]):
    """Metrics with the same keys, axis and category, as columns; records are made once they are asked for."""

    def __init__(self, packed: bytes, like: Metric, times: Ints, steps: Ints | None, values: Floats) -> None:
        self._packed = packed
        self._made: list[Metric] | None = None
        self.axis, self.category, self.keys = like.axis, like.category, tuple(like.values)
        self.times = times
        self.steps = steps
        """None where no record has a step."""
        self.values = values
        """Of one record after another."""

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, at: int) -> Metric: ...
    @overload
    def __getitem__(self, at: slice) -> list[Metric]: ...
    def __getitem__(self, at: int | slice) -> Metric | list[Metric]:
        return self._records()[at]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._records())

    def _records(self) -> list[Metric]:
        if self._made is None:
            self._made = _metrics.decode(self._packed)
        return self._made


def as_rows(records: Sequence[object]) -> MetricRows | None:
    """The records of a batch, where they are columns."""
    return records if isinstance(records, MetricRows) else None


def metric_rows(packed: memoryview) -> MetricRows | None:
    """Read an array of packed metrics as columns; None unless they differ in times, steps and floats alone.

    The first one is decoded, and all others must have the same bytes around their numbers, and as many.
    """
    rows = int.from_bytes(packed[1:5], "big")
    size, left = divmod(len(packed) - 5, max(rows, 1))
    if rows < MIN_ROWS or left or packed[0] != 0xDD:
        return None
    first = bytes(packed[5 : 5 + size])
    try:
        like = _metric.decode(first)
        step, places = _numbers_in(first)
    except (ValueError, IndexError, RecursionError):
        return None
    if like.attrs or like.instrument is not None or not places or len(like.values) != len(places):
        return None
    table: npt.NDArray[np.uint8] = np.frombuffer(packed, np.uint8, offset=5).reshape(rows, size)
    same = np.ones(size, dtype=bool)
    for place in (_TIME, step, *places):
        same[place] = False
    if (table[:, same] != table[0, same]).any():
        return None
    times = _column(table, _TIME, ">u8")
    steps = None if like.step is None else _column(table, step, f">u{step.stop - step.start}")
    small = step.start == _TIME.stop  # without a mark before it
    if times.max() >> 63 or (steps is not None and int(steps.max()) >> (7 if small else 63)):
        return None
    values = np.stack([_column(table, place, ">f8") for place in places], axis=1).astype(np.float64).reshape(-1)
    return MetricRows(
        bytes(packed), like, times.astype(np.int64), None if steps is None else steps.astype(np.int64), values
    )


def _column(table: npt.NDArray[np.uint8], place: slice, dtype: str) -> npt.NDArray[Any]:
    return np.ascontiguousarray(table[:, place]).view(dtype)[:, 0]


def _numbers_in(row: bytes) -> tuple[slice, list[slice]]:
    """Where a packed metric has its step and its values; ValueError when they are anything but floats."""
    if row[1] != 0 or row[2] != 0xCF:
        raise ValueError("not a metric with a time")
    at, mark = _TIME.stop, row[_TIME.stop]
    if mark == 0xC0:
        step = slice(at, at)
        at += 1
    else:
        start = at if mark < 0x80 else at + 1
        step = slice(start, start + (1 if mark < 0x80 else _STEP_WIDTHS.get(mark, 0)))
        at = step.stop
    at = _behind_text(row, _behind_text(row, at))
    if row[at] & 0xF0 != 0x80 or (step.start == step.stop and mark != 0xC0):
        raise ValueError("too many values, or a negative step")
    places: list[slice] = []
    count, at = row[at] & 0x0F, at + 1
    for _ in range(count):
        at = _behind_text(row, at)
        if row[at] != 0xCB:
            raise ValueError("not a float")
        places.append(slice(at + 1, at + 9))
        at += 9
    return step, places


def _behind_text(row: bytes, at: int) -> int:
    """The offset behind a short text, or behind nothing."""
    mark = row[at]
    if mark == 0xC0:
        return at + 1
    if mark & 0xE0 == 0xA0:
        return at + 1 + (mark & 0x1F)
    if mark == 0xD9:
        return at + 2 + row[at + 1]
    raise ValueError("a long text")
