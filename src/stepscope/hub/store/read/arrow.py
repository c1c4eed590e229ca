"""Rows as Arrow tables, and those as Parquet files or Arrow streams, piece by piece."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import EXACT_LIMIT, is_large
from stepscope.hub.store.read.run_catalog import SeriesRow
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Points:
    """Points by series and step; `which` is the index of each point's series in `series`."""

    series: list[SeriesRow]
    which: npt.NDArray[np.int32]
    step: npt.NDArray[Any]
    time: npt.NDArray[Any]
    attempt: npt.NDArray[Any]
    value: npt.NDArray[Any]
    rest: npt.NDArray[Any]
    """The difference between each value and the exact integer."""


def pyarrow() -> Any:
    """Import pyarrow, which only exports need; ConfigError when it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("Arrow and Parquet need pyarrow: pip install 'stepscope[hub]'") from error
    return pyarrow


def points_schema() -> Any:
    """The columns of points."""
    arrow = pyarrow()
    word = arrow.dictionary(arrow.int32(), arrow.string())
    return arrow.schema(
        [
            ("key", word),
            ("axis", word),
            ("rank", arrow.uint32()),
            ("attempt", arrow.uint16()),
            ("step", arrow.int64()),
            ("time", arrow.timestamp("ns", "UTC")),
            ("value", arrow.float64()),
            ("attrs", word),
            ("scope", word),
            ("integer", arrow.int64()),
        ]
    )


def histograms_schema() -> Any:
    """The columns of distributions."""
    arrow = pyarrow()
    floats, counts = arrow.list_(arrow.float64()), arrow.list_(arrow.uint64())
    return arrow.schema(
        [
            *_placed(arrow),
            *(("start", arrow.timestamp("ns", "UTC")), ("type", arrow.string()), ("unit", arrow.string())),
            *(("scope", arrow.string()), ("attrs", arrow.string()), ("count", arrow.uint64())),
            *((name, arrow.float64()) for name in ("sum", "min", "max")),
            *(("bounds", floats), ("counts", counts), ("scale", arrow.int32()), ("zero_count", arrow.uint64())),
            *(("zero_threshold", arrow.float64()), ("positive_offset", arrow.int32())),
            *(("negative_offset", arrow.int32()), ("negative_counts", counts), ("quantiles", arrow.list_(floats))),
        ]
    )


def exemplars_schema() -> Any:
    """The columns of exemplars."""
    arrow = pyarrow()
    texts = ("trace_id", "span_id", "attrs", "scope", "series_attrs")
    return arrow.schema(
        [
            *_placed(arrow),
            ("value", arrow.float64()),
            *((name, arrow.string()) for name in texts),
            ("integer", arrow.int64()),
        ]
    )


def _placed(arrow: Any) -> list[tuple[str, Any]]:
    return [
        *(("key", arrow.string()), ("axis", arrow.string()), ("rank", arrow.uint32()), ("attempt", arrow.uint16())),
        *(("step", arrow.int64()), ("time", arrow.timestamp("ns", "UTC"))),
    ]


def typed_table(rows: Sequence[dict[str, Any]], schema: Any) -> Any:
    """Rows of distributions or exemplars as a table; attributes as JSON, an integer beyond 2**53 in `integer`."""
    made: list[dict[str, Any]] = []
    for row in rows:
        made.append(dict(row))
        made[-1].update((name, attrs.as_json(row[name])) for name in ("attrs", "series_attrs") if name in row)
        if isinstance(value := row.get("value"), int):
            made[-1].update(value=float(value), integer=value if is_large(value) else None)
    return pyarrow().Table.from_pylist(made, schema=schema)


def points_table(points: Points) -> Any:
    """Points as a table; a point without a step has null there."""
    arrow = pyarrow()

    def words(of: Callable[[Any], str]) -> Any:
        dictionary = list(dict.fromkeys(of(line) for line in points.series))
        codes = np.array([dictionary.index(of(line)) for line in points.series], dtype=np.int32)
        return arrow.DictionaryArray.from_arrays(codes[points.which], arrow.array(dictionary, arrow.string()))

    ranks = np.array([line.rank for line in points.series], dtype=np.uint32)
    columns = [
        words(lambda line: line.key),
        words(lambda line: line.axis),
        arrow.array(ranks[points.which]),
        arrow.array(points.attempt, arrow.uint16()),
        arrow.array(points.step, arrow.int64(), mask=points.step == NO_STEP),
        arrow.array(points.time, arrow.timestamp("ns", "UTC")),
        arrow.array(points.value, arrow.float64(), from_pandas=False),
        words(lambda line: attrs.as_json(line.attrs)),
        words(lambda line: line.scope),
        _integers(arrow, points),
    ]
    return arrow.Table.from_arrays(columns, schema=points_schema())


def _integers(arrow: Any, points: Points) -> Any:
    """The exact integers beyond 2**53; null where `value` is exact."""
    large = np.flatnonzero((np.abs(points.value) >= EXACT_LIMIT) & (np.abs(points.value) <= 2**63)).tolist()
    if not large:
        return arrow.nulls(len(points.value), arrow.int64())
    found: list[int | None] = [None] * len(points.value)
    for at in large:
        number = int(points.value[at]) + int(points.rest[at])
        found[at] = number if -(2**63) <= number < 2**63 else None
    return arrow.array(found, arrow.int64())


def texts_table(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Any:
    """Rows of text as a table."""
    arrow = pyarrow()
    schema = arrow.schema([(name, arrow.string()) for name in names])
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return arrow.Table.from_arrays([arrow.array(column, arrow.string()) for column in columns], schema=schema)


def with_run(table: Any, run: str) -> Any:
    """The table with the id of its run as first column."""
    arrow = pyarrow()
    column = arrow.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), arrow.array([run], arrow.string()))
    return table.add_column(0, run_schema(arrow.schema([])).field(0), column)


def run_schema(schema: Any) -> Any:
    """The columns of such a table."""
    arrow = pyarrow()
    return schema.insert(0, arrow.field("run", arrow.dictionary(arrow.int32(), arrow.string())))


def parquet(tables: Iterable[Any], schema: Any) -> Iterator[bytes]:
    """Write tables as one Parquet file."""
    arrow = pyarrow()
    yield from _written(tables, lambda sink: arrow.parquet.ParquetWriter(sink, schema, compression="zstd"))


def stream(tables: Iterable[Any], schema: Any) -> Iterator[bytes]:
    """Write tables as one Arrow stream."""
    arrow = pyarrow()
    yield from _written(
        tables,
        lambda sink: arrow.ipc.new_stream(
            sink, schema, options=arrow.ipc.IpcWriteOptions(emit_dictionary_deltas=False, unify_dictionaries=False)
        ),
    )


def read_stream(file: Any) -> Any:
    """Read an Arrow stream from a file into one table."""
    return pyarrow().ipc.open_stream(file).read_all()


def _written(tables: Iterable[Any], writer_of: Callable[[Any], Any]) -> Iterator[bytes]:
    sink = _Sink()
    writer = writer_of(pyarrow().PythonFile(sink, mode="w"))
    for table in tables:
        writer.write_table(table)
        yield sink.take()
    writer.close()
    yield sink.take()


class _Sink(io.RawIOBase):
    """A file-like buffer that is emptied while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found
