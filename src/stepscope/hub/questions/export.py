"""Export of a run, one kind of record at a time, as Parquet, Arrow, CSV or JSON lines."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from stepscope.hub.questions.distributions import DistributionRow, ExemplarRow, every_distribution, every_exemplar
from stepscope.hub.questions.logs import RecordJson, find_alerts, find_logs, record_json
from stepscope.hub.questions.series.metric_keys import find_metrics
from stepscope.hub.questions.toolbox.conditions import RecordQuery
from stepscope.hub.questions.toolbox.endpoint import RUN, Binary, Endpoint, Param, Reader, Stream, safe_name
from stepscope.hub.questions.traces.stored_spans import SpanJson, SpanRow, find_spans, span_json
from stepscope.hub.refusals import bad_request
from stepscope.hub.store import literal
from stepscope.hub.store.columns import exact_number
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read import arrow
from stepscope.hub.store.read.arrow import Points
from stepscope.hub.store.read.log_rows import LogRow
from stepscope.hub.store.read.run_catalog import SeriesRow, find_series, read_totals, step_of
from stepscope.hub.store.read.sample_rows import every_sample, sample_columns
from stepscope.model.errors import ConfigError
from stepscope.model.records import Histogram, Log, Summary, word
from stepscope.wire.plain import plain

PIECE = 250_000
"""The number of points read at a time."""


def read_points(
    engine: Engine, run: int, *, keys: Sequence[str] = (), rank: int | None = None, piece: int = PIECE
) -> Iterator[Points]:
    """Yield the points of a run, superseded ones too, by key and rank."""
    catalog = find_series(engine, run, keys=keys, rank=rank)
    sizes = dict.fromkeys(catalog, 0)
    for total in read_totals(engine, run, catalog):
        sizes[total.series.number] += total.points
    ordered = sorted(
        (series for series in catalog.values() if sizes[series.number]), key=lambda series: (series.key, series.rank)
    )
    group: list[SeriesRow] = []
    for series in ordered:
        if group and sum(sizes[each.number] for each in group) + sizes[series.number] > piece:
            yield from _pieces(engine, group, piece)
            group = []
        group.append(series)
    if group:
        yield from _pieces(engine, group, piece)


def _pieces(engine: Engine, group: list[SeriesRow], piece: int) -> Iterator[Points]:
    places = np.array([series.number for series in group], dtype=np.uint64)
    order = np.argsort(places)
    offset = 0
    while True:
        found = engine.query(
            f"""SELECT series, step, time, attempt, value, rest FROM metrics
            WHERE series IN {literal.integers(places.tolist())}
            ORDER BY series, step, time LIMIT {offset}, {piece}"""
        )
        if not len(found):
            return
        which = order[np.searchsorted(places[order], found.array("series", "u8"))].astype(np.int32)
        columns = (found.array("step", "i8"), found.array("time", "i8"), found.array("attempt", "u2"))
        yield Points(group, which, *columns, found.array("value"), found.array("rest", "i8"))
        if len(found) < piece:
            return
        offset += piece


POINT = ("key", "axis", "rank", "attempt", "step", "time", "value", "attrs", "scope")
HISTOGRAM = (
    *("key", "axis", "rank", "attempt", "step", "time", "start", "type", "unit", "scope", "attrs"),
    *("count", "sum", "min", "max", "bounds", "counts", "scale", "zero_count", "zero_threshold"),
    *("positive_offset", "negative_offset", "negative_counts", "quantiles"),
)
EXEMPLAR = (
    *("key", "axis", "rank", "attempt", "step", "time", "value"),
    *("trace_id", "span_id", "attrs", "scope", "series_attrs"),
)
SPAN, RECORD = tuple(SpanJson.__annotations__), tuple(RecordJson.__annotations__)


def point_rows(points: Points) -> Iterator[tuple[Any, ...]]:
    """The points one by one, in the order of `POINT`; times in seconds as text, to the nanosecond."""
    labels = [
        (series.key, series.axis or None, series.rank, plain(series.attrs), series.scope) for series in points.series
    ]
    columns = (points.which, points.attempt, points.step, points.time, points.value, points.rest)
    for which, attempt, step, time, value, rest in zip(*(column.tolist() for column in columns), strict=True):
        key, axis, rank, attrs, scope = labels[which]
        number = word(exact_number(value, rest))
        yield key, axis, rank, attempt, step_of(step), exact_seconds(time), number, attrs, scope


def histogram_row(row: DistributionRow) -> dict[str, Any]:
    """A distribution by the names of `HISTOGRAM`; times in ns, and only what its kind has."""
    series, value = row.series, row.value
    made: dict[str, Any] = {
        **_place(row),
        "start": row.start or None,
        "unit": series.unit,
        "scope": series.scope,
        "attrs": series.attrs,
        "count": value.count,
        "sum": value.total,
    }
    if isinstance(value, Summary):
        return {**made, "type": "summary", "quantiles": [list(pair) for pair in value.quantiles]}
    made |= {"min": value.low, "max": value.high}
    if isinstance(value, Histogram):
        return {**made, "type": "histogram", "bounds": list(value.bounds), "counts": list(value.counts)}
    return {
        **made,
        "type": "exponential_histogram",
        "scale": value.scale,
        "zero_count": value.zeros,
        "zero_threshold": value.zero_threshold,
        "positive_offset": value.positive_offset,
        "counts": list(value.positive),
        "negative_offset": value.negative_offset,
        "negative_counts": list(value.negative),
    }


def exemplar_row(row: ExemplarRow) -> dict[str, Any]:
    """An exemplar by the names of `EXEMPLAR`; its time in ns."""
    series = row.series
    return {
        **_place(row),
        "value": row.value,
        "attrs": row.attrs,
        "scope": series.scope,
        "series_attrs": series.attrs,
        "trace_id": row.trace_id.hex() if row.trace_id else None,
        "span_id": row.span_id.hex() if row.span_id else None,
    }


def _place(row: DistributionRow | ExemplarRow) -> dict[str, Any]:
    series = row.series
    named = {"key": series.key, "axis": series.axis or None, "rank": series.rank}
    return {**named, "attempt": row.attempt, "step": row.step, "time": row.time}


def as_cells(names: Sequence[str], made: dict[str, Any]) -> list[Any]:
    """The fields of a distribution or exemplar as a text file has them: times in seconds, to the nanosecond."""
    times = {name: exact_seconds(made[name]) for name in ("time", "start") if made.get(name) is not None}
    return [plain(value) for value in cells(names, {**made, **times})]


def exact_seconds(ns: int) -> str:
    """A time in seconds with all its digits."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 10**9}.{abs(ns) % 10**9:09d}"


def as_csv(names: Sequence[str], groups: Iterable[Iterable[Sequence[Any]]]) -> Iterator[bytes]:
    """Write groups of rows as one CSV file; its header comes with the first of them."""
    head = _csv([names])
    for rows in groups:
        yield head + _csv([as_text(value) for value in row] for row in rows)
        head = b""
    if head:
        yield head


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def as_text(value: Any) -> str | None:
    """The text of a cell: nested values as JSON, None as an empty cell."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return str(value) if isinstance(value, int) else json.dumps(plain(value), ensure_ascii=False)


def as_jsonl(names: Sequence[str], groups: Iterable[Iterable[Sequence[Any]]]) -> Iterator[bytes]:
    """Write groups of rows as JSON lines."""
    encode = msgspec.json.Encoder().encode
    for rows in groups:
        yield b"".join(encode(dict(zip(names, row, strict=True))) + b"\n" for row in rows)


def cells(names: Sequence[str], made: Mapping[str, Any]) -> list[Any]:
    """The fields of a record in the order of their names."""
    return [made.get(name) for name in names]


PAGE = 20_000
MEDIA_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
    "jsonl": "application/x-ndjson",
}
WHAT = ("metrics", "histograms", "exemplars", "spans", "logs", "alerts", "samples")
SAMPLE = ("table", "step", "axis", "rank", "attempt", "time")
"""The first columns of samples; one of their own that has such a name gets a _ at its end."""


@Endpoint(
    "/api/runs/{run}/export",
    "exportRun",
    (
        RUN,
        Param("format", "choice", "the format", "jsonl", choices=tuple(MEDIA_TYPES)),
        Param("what", "choice", "the kind of record", "metrics", choices=WHAT),
        Param("key", "text", "points of this metric only, in any spelling of its category", many=64),
        Param("rank", "integer", "points of this rank only", low=0, high=2**32 - 1),
        Param("run_column", "boolean", "name the run in a first column of points, histograms and exemplars", False),
    ),
    media_types=tuple(MEDIA_TYPES.values()),
)
def export(reader: Reader, given: dict[str, Any]) -> Stream[Binary]:
    """A run as a file: all points, histograms or exemplars, superseded ones too, or its spans, logs or alerts, newest
    first, or its samples.
    """
    run = reader.run(given["run"])
    if given["key"]:
        given = {**given, "key": find_metrics(reader.engine, run.number, given["key"])[0]}
    what, named = given["what"], run.id if given["run_column"] else None
    try:
        if what == "metrics":
            pieces = _points(reader, run.number, given, named)
        elif what in ("histograms", "exemplars"):
            pieces = _measured(reader, run.number, given, named)
        else:
            pieces = _records(reader, run.number, run.id, given)
    except ConfigError as error:
        raise bad_request(str(error)) from None
    return Stream(MEDIA_TYPES[given["format"]], f"{safe_name(run.id)}-{what}.{given['format']}", pieces)


def _points(reader: Reader, run: int, given: dict[str, Any], named: str | None) -> Iterator[bytes]:
    pages = read_points(reader.engine, run, keys=given["key"], rank=given["rank"])
    return _write(given["format"], POINT, pages, point_rows, arrow.points_table, arrow.points_schema, named)


def _measured(reader: Reader, run: int, given: dict[str, Any], named: str | None) -> Iterator[bytes]:
    """Distributions or exemplars."""
    names: Sequence[str]
    names, pages, schema = HISTOGRAM, _histogram_pages(reader, run, given), arrow.histograms_schema
    if given["what"] == "exemplars":
        names, pages, schema = EXEMPLAR, _exemplar_pages(reader, run, given), arrow.exemplars_schema
    return _write(
        given["format"],
        names,
        pages,
        as_rows=lambda page: [as_cells(names, row) for row in page],
        as_table=lambda page: arrow.typed_table(page, schema()),
        schema=schema,
        named=named,
    )


def _histogram_pages(reader: Reader, run: int, given: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    found = every_distribution(reader.engine, run, keys=given["key"], rank=given["rank"])
    return ([histogram_row(row) for row in page] for page in found)


def _exemplar_pages(reader: Reader, run: int, given: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    found = every_exemplar(reader.engine, run, keys=given["key"], rank=given["rank"])
    return ([exemplar_row(row) for row in page] for page in found)


def _records(reader: Reader, run: int, id: str, given: dict[str, Any]) -> Iterator[bytes]:
    """Spans, logs and events, or alerts; their cells are text in Arrow."""
    if given["what"] == "samples":
        names, pages = _sample_pages(reader, run)
    else:
        names, pages = _span_pages(reader, run, id) if given["what"] == "spans" else _log_pages(reader, run, id, given)
    return _write(
        given["format"],
        names,
        pages,
        as_rows=lambda rows: rows,
        as_table=lambda rows: arrow.texts_table(names, [[as_text(cell) for cell in row] for row in rows]),
        schema=lambda: arrow.texts_table(names, []).schema,
    )


def _span_pages(reader: Reader, run: int, id: str) -> tuple[Sequence[str], Iterator[list[list[Any]]]]:
    def find(until: int | None, offset: int) -> list[SpanRow]:
        return find_spans(reader.engine, RecordQuery(run=run, until=until, offset=offset, limit=PAGE))

    pages = _newest_first(find, lambda row: row.span.time)
    return SPAN, ([cells(SPAN, span_json(row, id)) for row in page] for page in pages)


def _sample_pages(reader: Reader, run: int) -> tuple[Sequence[str], Iterator[list[list[Any]]]]:
    """Samples, oldest first, with a column for each of their own."""
    own = sample_columns(reader.engine, run)
    names = (*SAMPLE, *(f"{name}_" if name in SAMPLE else name for name in own))

    def row(rank: int, attempt: int, log: Log) -> list[Any]:
        place = [str(log.body), log.step, log.axis, rank, attempt, exact_seconds(log.time)]
        return [*place, *(plain(log.attrs.get(name)) for name in own)]

    return names, ([row(*each) for each in page] for page in every_sample(reader.engine, f"run = {run}"))


def _log_pages(
    reader: Reader, run: int, id: str, given: dict[str, Any]
) -> tuple[Sequence[str], Iterator[list[list[Any]]]]:
    search = find_logs if given["what"] == "logs" else find_alerts

    def find(until: int | None, offset: int) -> list[LogRow]:
        return search(reader.engine, RecordQuery(run=run, until=until, offset=offset, limit=PAGE))

    pages = _newest_first(find, lambda row: row.record.time)
    return RECORD, ([cells(RECORD, record_json(row, id)) for row in page] for page in pages)


def _write(
    format: str,
    names: Sequence[str],
    pages: Iterable[Any],
    as_rows: Callable[[Any], Iterable[Sequence[Any]]],
    as_table: Callable[[Any], Any],
    schema: Callable[[], Any],
    named: str | None = None,
) -> Iterator[bytes]:
    """Write pages as rows of text or as Arrow tables; ConfigError when pyarrow is needed and missing.

    `named` is the run to name in a first column.
    """
    if format in ("csv", "jsonl"):
        write_rows, groups = as_csv if format == "csv" else as_jsonl, map(as_rows, pages)
        if named is None:
            return write_rows(names, groups)
        return write_rows(("run", *names), ([(named, *row) for row in rows] for rows in groups))
    write = arrow.parquet if format == "parquet" else arrow.stream
    if named is None:
        return write(map(as_table, pages), schema())
    return write((arrow.with_run(as_table(page), named) for page in pages), arrow.run_schema(schema()))


def _newest_first(find: Callable[[int | None, int], list[Any]], time: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Read pages back in time; each starts at the last time of the page before, after the rows it had of that time."""
    until, offset = None, 0
    while page := find(until, offset):
        yield page
        if len(page) < PAGE:
            return
        last = time(page[-1])
        same = sum(time(row) == last for row in page)
        offset = offset + same if last == until else same
        until = last
