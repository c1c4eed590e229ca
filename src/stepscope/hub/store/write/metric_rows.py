"""Metrics as columns: packed ones read without a record for each, and the rows and totals of a commit."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast, overload

import msgspec
import numpy as np
import numpy.typing as npt

from stepscope.hub.store.columns import Block, Floats, Ints, Numbers, Remainders, constant, remainders
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.catalog import Catalog, Source, label
from stepscope.model.records import Metric, Value

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


NAN, ABOVE, BELOW = 1, 2, 4
"""Flags of non-finite values: NaN, +Inf, -Inf."""
_TEXT = {str}


class _Chunk(NamedTuple):
    """Some records of a commit: by record, and the values of all of them."""

    shapes: Ints
    steps: Ints
    times: Ints
    starts: Ints
    values: Floats
    rest: Remainders | None


class Points:
    """The points of a commit, collected by column and converted to arrays at the end."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._chunks: list[_Chunk] = []
        self._held = 0
        """The values in the chunks."""
        self._shapes: list[int] = []
        self._steps: list[int] = []
        self._times: list[int] = []
        self._starts: list[int] = []
        self._values: list[int | float] = []

    def __len__(self) -> int:
        return self._held + len(self._values)

    def extend_rows(self, source: Source, rows: MetricRows) -> None:
        """Add the values of records that are columns already."""
        self._close_chunk()
        shape = (rows.axis, rows.category, *rows.keys)
        number = source.shapes.get(shape)
        if number is None:
            slots = self._catalog.slots(source, rows.category, rows.keys, rows.axis)
            number = source.shapes[shape] = self._catalog.shape(slots)
        none: Ints = np.zeros(len(rows), np.int64)
        steps = none + NO_STEP if rows.steps is None else rows.steps
        self._chunks.append(_Chunk(none + number, steps, rows.times, none, rows.values, None))
        self._held += len(rows.values)

    def _close_chunk(self) -> None:
        """Convert what was collected since the last chunk; OverflowError or TypeError for an invalid value."""
        if self._values:
            values = np.frombuffer(array("d", self._values), dtype=np.float64)
            shapes, steps, times, starts = map(_int64, (self._shapes, self._steps, self._times, self._starts))
            self._chunks.append(_Chunk(shapes, steps, times, starts, values, remainders(self._values, values)))
            self._held += len(values)
        for column in (self._shapes, self._steps, self._times, self._starts, self._values):
            column.clear()

    def extend(self, source: Source, metrics: Sequence[Metric], *, plain: bool = False) -> None:
        """Add the values of many records, all numbers; `plain` ones have neither attributes nor instruments."""
        if not metrics:
            return
        held = [metric.values for metric in metrics]
        self._shapes += self._numbers(source, metrics, held, plain=plain)
        self._steps += [NO_STEP if metric.step is None else metric.step for metric in metrics]
        self._times += [metric.time for metric in metrics]
        self._starts += (
            [0] * len(metrics)
            if plain
            else [0 if (made := metric.instrument) is None else made.start for metric in metrics]
        )
        self._values.extend(cast(Iterable[int | float], chain.from_iterable(map(_values, held))))

    def _numbers(
        self, source: Source, metrics: Sequence[Metric], held: Sequence[Mapping[str, Value]], *, plain: bool
    ) -> list[int]:
        """The numbers of the records' shapes; most often all have one."""
        if plain and _is_one_shape(metrics, held):
            return [self._find(source, metrics[0])] * len(metrics)
        found = [source.shapes.get(_shape(metric)) for metric in metrics]
        if None in found:
            return [self._find(source, metric) for metric in metrics]
        return cast(list[int], found)

    def _find(self, source: Source, metric: Metric) -> int:
        """Return the number of a record's shape; records of one shape hold values of the same series."""
        shape = _shape(metric)
        number = source.shapes.get(shape)
        if number is None:
            slots = self._catalog.slots(
                source, metric.category, metric.values, metric.axis, label(metric.attrs), metric.instrument
            )
            number = source.shapes[shape] = self._catalog.shape(slots)
        return number

    def reach(self, since: int) -> tuple[int, int]:
        """The latest time and the highest step of the records from index `since` on."""
        return max(self._times[since:], default=0), max(self._steps[since:], default=NO_STEP)

    def records(self) -> int:
        """How many records were taken."""
        return len(self._times)

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `metrics` and their totals; OverflowError or TypeError for an invalid value."""
        self._close_chunk()
        if not self._held:
            return {}
        columns = [np.concatenate(column) for column in zip(*(chunk[:5] for chunk in self._chunks), strict=True)]
        shapes, steps, times, starts, values = columns
        sizes, slots = self._catalog.slots_of(shapes)
        rows = [column.repeat(sizes) for column in (steps, times, starts)]
        return _Sorted(self._catalog, slots, values, self._remainders(), *rows).blocks(commit)

    def _remainders(self) -> Remainders | None:
        if all(chunk.rest is None for chunk in self._chunks):
            return None
        return np.concatenate(
            [np.zeros(len(chunk.values), np.int16) if chunk.rest is None else chunk.rest for chunk in self._chunks]
        )


_values: Callable[[Mapping[str, Value]], Iterable[Value]] = dict.values  # type: ignore[assignment]


def _is_one_shape(metrics: Sequence[Metric], held: Sequence[Mapping[str, Value]]) -> bool:
    """Return whether plain records all have the same axis, category and keys in the same order."""
    keys = list(held[0])
    return (
        len(set(map(len, held))) == 1
        and list(chain.from_iterable(held)) == keys * len(held)
        and len({metric.category for metric in metrics}) == 1
        and len({metric.axis for metric in metrics}) == 1
    )


def _int64(values: list[int]) -> Ints:
    return np.frombuffer(array("q", values), dtype=np.int64)


def _shape(metric: Metric) -> tuple[object, ...]:
    made, attrs = metric.instrument, metric.attrs
    if made is None and not attrs:
        return (metric.axis, metric.category, *metric.values)
    how: object = made
    if made is not None and made.start:  # of a sum, each of whose points has its own
        how = (made.type, made.unit, made.cumulative, made.monotonic, made.scope)
    if _TEXT.issuperset(map(type, attrs.values())):  # most attributes: no need to sort and spell them
        return (metric.axis, metric.category, None, how, len(attrs), *attrs, *attrs.values(), *metric.values)
    return (metric.axis, metric.category, None, how, label(attrs), *metric.values)


class _Sorted:
    """Points in the sort order of the table: by series and attempt, then step, then time."""

    def __init__(
        self,
        catalog: Catalog,
        slots: Ints,
        values: Floats,
        rest: Remainders | None,
        steps: Ints,
        times: Ints,
        starts: Ints,
    ) -> None:
        counts = np.bincount(slots)
        used = np.flatnonzero(counts)
        series = np.array(catalog.slot_series)[used]
        attempts = np.array(catalog.slot_attempts)[used]
        order = np.lexsort((attempts, series))
        self.series, self.attempts = series[order], attempts[order]
        self.sizes = counts[used[order]]
        self.firsts = np.cumsum(self.sizes) - self.sizes
        group = np.empty(len(counts), dtype=np.uint16 if len(used) < 65536 else np.int64)
        group[used[order]] = np.arange(len(used))
        group = group[slots]
        at = np.argsort(group, kind="stable")
        if self._out_of_order(steps[at], times[at]):
            at = np.lexsort((times, steps, group))
        self.steps, self.times, self.starts, self.values = steps[at], times[at], starts[at], values[at]
        self.rest = None if rest is None else rest[at]

    def _out_of_order(self, steps: Ints, times: Ints) -> bool:
        """Return whether, within a group, a step, or a time at the same step, is lower than the one before."""
        back = (steps[1:] < steps[:-1]) | ((steps[1:] == steps[:-1]) & (times[1:] < times[:-1]))
        back[self.firsts[1:] - 1] = False
        return bool(back.any())

    def blocks(self, commit: int) -> dict[str, Block]:
        metrics: Block = {
            "series": Numbers("UInt64", self.series.repeat(self.sizes)),
            "step": Numbers("Int64", self.steps),
            "time": Numbers("Int64", self.times),
            "attempt": Numbers("UInt16", self.attempts.repeat(self.sizes)),
            "value": Numbers("Float64", self.values),
            "start": Numbers("Int64", self.starts),
            "commit": constant("UInt32", commit, len(self.values)),
        }
        if self.rest is not None:
            metrics["rest"] = Numbers("Int16", self.rest)
        return {"metrics": metrics, "totals_in": self._totals()}

    def _totals(self) -> Block:
        ends = self.firsts + self.sizes - 1
        flags, lows, highs = self._extremes()
        return {
            "series": Numbers("UInt64", self.series),
            "attempt": Numbers("UInt16", self.attempts),
            "points": Numbers("UInt64", self.sizes),
            "flags": Numbers("UInt8", flags),
            "first_step": Numbers("Int64", self.steps[self.firsts]),
            "last_step": Numbers("Int64", self.steps[ends]),
            "first_time": Numbers("Int64", np.minimum.reduceat(self.times, self.firsts)),
            "last_time": Numbers("Int64", np.maximum.reduceat(self.times, self.firsts)),
            "low": Numbers("Float64", lows),
            "high": Numbers("Float64", highs),
            "last": Numbers("Float64", self.values[ends]),
            "at_step": Numbers("Int64", self.steps[ends]),
            "at_time": Numbers("Int64", self.times[ends]),
        }

    def _extremes(self) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
        """Flags, minimum and maximum of the finite values of each group; +Inf and -Inf where there are none."""
        finite = np.isfinite(self.values)
        if finite.all():
            flags = np.zeros(len(self.firsts), dtype=np.uint8)
            return (
                flags,
                np.minimum.reduceat(self.values, self.firsts),
                np.maximum.reduceat(self.values, self.firsts),
            )
        flags = np.bitwise_or.reduceat(flag(self.values), self.firsts)
        lows = np.minimum.reduceat(np.where(finite, self.values, np.inf), self.firsts)
        highs = np.maximum.reduceat(np.where(finite, self.values, -np.inf), self.firsts)
        return flags, lows, highs


def flag(values: Floats) -> npt.NDArray[np.uint8]:
    """Flag each non-finite value."""
    marks: npt.NDArray[np.int64] = np.isnan(values) * NAN + (values == np.inf) * ABOVE + (values == -np.inf) * BELOW
    return marks.astype(np.uint8)
