"""The endpoint that copies a run out, one kind of record at a time, as Parquet, Arrow, CSV or lines of JSON."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepscope.hub.questions import copies, shapes
from stepscope.hub.questions.distributions import every_distribution
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader, Stream
from stepscope.hub.questions.exemplars import every_exemplar
from stepscope.hub.questions.logs import LogQuestion, find_alerts, find_logs
from stepscope.hub.questions.params import Param, bad
from stepscope.hub.questions.points import read_points
from stepscope.hub.questions.spans import SpanQuestion, find_spans
from stepscope.hub.store import arrow
from stepscope.model.errors import ConfigError

PAGE = 20_000
MEDIA_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
    "jsonl": "application/x-ndjson",
}
WHAT = ("metrics", "histograms", "exemplars", "spans", "logs", "alerts")


def export(reader: Reader, given: dict[str, Any]) -> Stream:
    """Answer `/api/runs/{run}/export`."""
    run = reader.run(given["run"])
    format, what = given["format"], given["what"]
    try:
        if what == "metrics":
            pieces = _points(reader, run.number, given)
        elif what in ("histograms", "exemplars"):
            pieces = _measured(reader, run.number, given)
        else:
            names, groups = _records(reader, run.number, run.id, what)
            pieces = _written(format, names, groups)
    except ConfigError as error:
        raise bad(str(error)) from None
    safe = "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else "_" for letter in run.id)
    return Stream(MEDIA_TYPES[format], f"{safe[:100]}-{what}.{format}", pieces)


def _points(reader: Reader, run: int, given: dict[str, Any]) -> Iterator[bytes]:
    format = given["format"]
    points = read_points(reader.engine, run, keys=given["key"], rank=given["rank"])
    if format in ("csv", "jsonl"):
        write = copies.as_csv if format == "csv" else copies.as_jsonl
        return write(copies.POINT, map(copies.point_rows, points))
    write_tables = arrow.parquet if format == "parquet" else arrow.stream
    return write_tables(map(arrow.points_table, points), arrow.points_schema())


def _measured(reader: Reader, run: int, given: dict[str, Any]) -> Iterator[bytes]:
    """Distributions or exemplars."""
    format, wanted = given["format"], {"keys": given["key"], "rank": given["rank"]}
    pages: Iterator[list[dict[str, Any]]]
    names: Sequence[str]
    if given["what"] == "histograms":
        found = every_distribution(reader.engine, run, **wanted)
        pages, names = ([copies.histogram_row(row) for row in page] for page in found), copies.HISTOGRAM
    else:
        shown = every_exemplar(reader.engine, run, **wanted)
        pages, names = ([copies.exemplar_row(row) for row in page] for page in shown), copies.EXEMPLAR
    if format in ("csv", "jsonl"):
        write = copies.as_csv if format == "csv" else copies.as_jsonl
        return write(names, ([copies.as_cells(names, row) for row in page] for page in pages))
    schema = arrow.histograms_schema() if given["what"] == "histograms" else arrow.exemplars_schema()
    tables = (arrow.typed_table(page, schema) for page in pages)
    return (arrow.parquet if format == "parquet" else arrow.stream)(tables, schema)


def _written(format: str, names: Sequence[str], groups: Iterator[list[list[Any]]]) -> Iterator[bytes]:
    if format in ("csv", "jsonl"):
        return (copies.as_csv if format == "csv" else copies.as_jsonl)(names, groups)
    schema = arrow.texts_table(names, []).schema
    tables = (
        arrow.texts_table(names, [[copies.as_text(cell) for cell in row] for row in rows]) for rows in groups if rows
    )
    return (arrow.parquet if format == "parquet" else arrow.stream)(tables, schema)


def _records(reader: Reader, run: int, id: str, what: str) -> tuple[Sequence[str], Iterator[list[list[Any]]]]:
    if what == "spans":
        pages = _newest_first(
            lambda until, offset: find_spans(
                reader.engine, SpanQuestion(run=run, until=until, offset=offset, limit=PAGE)
            ),
            lambda row: row.span.time,
        )
        return copies.SPAN, ([copies.cells(copies.SPAN, shapes.span(row, id)) for row in page] for page in pages)
    find = find_logs if what == "logs" else find_alerts
    found = _newest_first(
        lambda until, offset: find(reader.engine, LogQuestion(run=run, until=until, offset=offset, limit=PAGE)),
        lambda row: row.record.time,
    )
    return copies.RECORD, ([copies.cells(copies.RECORD, shapes.record(row, id)) for row in page] for page in found)


def _newest_first(find: Callable[[int | None, int], list[Any]], time: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Read pages back in time; each begins where the one before ended, after the rows of that very time it had."""
    until, offset = None, 0
    while page := find(until, offset):
        yield page
        if len(page) < PAGE:
            return
        last = time(page[-1])
        same = sum(time(row) == last for row in page)
        offset = offset + same if last == until else same
        until = last


ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/export",
        "exportRun",
        "A copy of a run: all points, histograms or exemplars with those of earlier attempts, or its spans, logs or "
        "alerts, newest first.",
        export,
        {"type": "string", "format": "binary"},
        (
            RUN,
            Param("format", "choice", "how it is written", "jsonl", choices=tuple(MEDIA_TYPES)),
            Param("what", "choice", "what is copied", "metrics", choices=WHAT),
            Param("key", "text", "points of this metric only", many=64),
            Param("rank", "integer", "points of this rank only", low=0, high=2**32 - 1),
        ),
        media_types=tuple(MEDIA_TYPES.values()),
    ),
)
