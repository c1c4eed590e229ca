"""Endpoints that draw, search, copy out and bring in traces."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from stepscope.hub.questions import shapes
from stepscope.hub.questions import trace_import as importing
from stepscope.hub.questions.endpoint import EXACT_RUN, Endpoint, Reader, Stream
from stepscope.hub.questions.facets import attr_names, span_names
from stepscope.hub.questions.known_spans import Id, known_spans
from stepscope.hub.questions.lane_rows import read_thin
from stepscope.hub.questions.lanes import lanes
from stepscope.hub.questions.params import Param, bad
from stepscope.hub.questions.schemas import ANYTHING, BOOLEAN, COUNTS, INTEGER, MS, SECONDS, TEXT, many, table, thing
from stepscope.hub.questions.spans import SpanRow, Stretch, read_stretch
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.run_catalog import read_writers
from stepscope.hub.store.write.ledger import writer_key
from stepscope.model.ports import Writer
from stepscope.model.records import Span
from stepscope.wire.chrome.chrome_files import Lane, write
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.encode.to_json import to_json

MOST = 200_000
OTLP, CHROME = "otlp", "chrome"


def _stretch(reader: Reader, given: dict[str, Any]) -> Stretch:
    """Which spans are meant: a trace, or steps of a run."""
    if given["trace_id"] is not None:
        return Stretch(trace_id=given["trace_id"])
    if given["run"] is None or given["step"] is None:
        raise bad("name a trace_id, or a run and a step")
    last = given["step"] if given["last"] is None else given["last"]
    return Stretch(run=reader.number(given["run"]), first=given["step"], last=max(given["step"], last))


def draw(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/spans/lanes`."""
    spans = read_thin(reader.engine, _stretch(reader, given), given["limit"])
    made = lanes(spans, reader.owners(set(spans.run.tolist())))
    if not made["lanes"]:
        raise _nothing(given)
    return {**made, "more": len(spans) >= given["limit"]}


def _nothing(given: dict[str, Any]) -> Refused:
    what = f"trace {given['trace_id'].hex()}" if given["trace_id"] is not None else f"span at step {given['step']}"
    return Refused(Refusal(HTTPStatus.NOT_FOUND, f"there is no {what}"))


def facets(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/spans/facets`."""
    run = reader.among(given["run"])
    names = [
        {
            "name": row.name,
            "count": row.count,
            "errors": row.errors,
            "median_ms": shapes.milliseconds(row.median),
            "longest_ms": shapes.milliseconds(row.longest),
        }
        for row in span_names(reader.engine, run)
    ]
    attrs = [{"name": name, "count": count} for name, count in attr_names(reader.engine, run)]
    return {"names": names, "attrs": attrs}


def export(reader: Reader, given: dict[str, Any]) -> Stream:
    """Answer `/api/spans/export`."""
    ended, still_open = read_stretch(reader.engine, _stretch(reader, given), limit=MOST)
    rows = [*ended, *still_open]
    owners = reader.owners({row.run for row in rows})
    rows = [row for row in rows if row.run in owners]
    if not rows:
        raise _nothing(given)
    title = given["trace_id"].hex() if given["trace_id"] is not None else f"{given['run']}-step-{given['step']}"
    safe = "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else "_" for letter in title)
    if given["format"] == CHROME:
        return Stream("application/json", f"{safe[:100]}.chrome.json", write(title, _lanes(rows, owners)))
    return Stream("application/json", f"{safe[:100]}.otlp.json", _otlp(_by_writer(reader, rows, owners)))


def _lanes(rows: Sequence[SpanRow], owners: dict[int, str]) -> list[Lane]:
    grouped: dict[tuple[str, int, int], list[Span]] = {}
    for row in rows:
        grouped.setdefault((owners[row.run], row.rank, row.attempt), []).append(row.span)
    return [Lane(run, rank, spans) for (run, rank, _), spans in sorted(grouped.items())]


Batches = list[tuple[Writer, list[Span]]]


def _by_writer(reader: Reader, rows: Sequence[SpanRow], owners: dict[int, str]) -> Batches:
    """The spans of each process, with what its resource says of it.

    Of spans that were stored before their writer was kept, it is the first of their rank and attempt.
    """
    batches: Batches = []
    for number, run in sorted(owners.items(), key=lambda owner: owner[1]):
        writers = [row.writer for row in read_writers(reader.engine, number)]
        known = {writer_key(writer): writer for writer in writers}
        places = {(writer.rank, writer.attempt): writer for writer in reversed(writers)}
        project = reader.run(run).project
        grouped: dict[tuple[str, int, int], tuple[Writer, list[Span]]] = {}
        for row in (row for row in rows if row.run == number):
            bare = Writer(id="", run=run, project=project, rank=row.rank, attempt=row.attempt)
            writer = known.get(row.writer) or places.get((row.rank, row.attempt)) or bare
            grouped.setdefault((writer.id, row.rank, row.attempt), (writer, []))[1].append(row.span)
        batches += grouped.values()
    return batches


def _otlp(batches: Batches) -> Iterator[bytes]:
    """One request for each group would be many documents, so their lists are joined into one."""
    yield b'{"resourceSpans":['
    for number, request in enumerate(encode(batches).requests):
        inside = to_json("traces", request.body).removeprefix(b'{"resourceSpans":[').removesuffix(b"]}")
        yield (b",\n" if number else b"") + inside
    yield b"]}\n"


def bring(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `POST /api/spans/import`."""
    if reader.entry is None:
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, "traces are taken by a hub, and none runs here"))
    found = importing.read(given["body"], given["run"] or "", given["project"] or "imports", time.time_ns())
    number = int.from_bytes(hashlib.blake2b(given["body"], digest_size=7).digest(), "big")
    return importing.submit(reader.entry, found, number, reader.project, lambda spans: _known(reader, spans))


def _known(reader: Reader, spans: Sequence[Span]) -> dict[Id, list[str]]:
    """The runs in which spans are stored, of those that may be seen."""
    stored = known_spans(reader.engine, spans)
    owners = reader.owners({run for runs in stored.values() for run in runs})
    return {id: [owners[run] for run in sorted(runs) if run in owners] for id, runs in stored.items()}


_TRACE = Param("trace_id", "hex", "the spans of this trace", width=16)
_PICKED = (
    _TRACE,
    Param("run", "text", "or those of this run"),
    Param("step", "integer", "at this step"),
    Param("last", "integer", "to this step"),
)
_NUMBERS = many({"type": ["number", "null"]})

ENDPOINTS = (
    Endpoint(
        "/api/spans/lanes",
        "drawSpans",
        "A trace, or steps of a run on all ranks, for drawing: spans as columns, without attributes.",
        draw,
        thing(
            begin=SECONDS,
            duration_ms=MS,
            open=INTEGER,
            more=BOOLEAN,
            lanes=many(thing(run=TEXT, rank=INTEGER, thread=TEXT)),
            names=many(TEXT),
            traces=many(TEXT),
            columns={"type": "object", "additionalProperties": {"anyOf": [_NUMBERS, many(TEXT)]}},
        ),
        (*_PICKED, Param("limit", "integer", "so many spans at most", MOST, low=1, high=MOST)),
    ),
    Endpoint(
        "/api/spans/facets",
        "listSpanNames",
        "What spans can be searched by: their names, with counts and durations, and their attributes.",
        facets,
        thing(
            names=many(thing(name=TEXT, count=INTEGER, errors=INTEGER, median_ms=MS, longest_ms=MS)),
            attrs=many(thing(name=TEXT, count=INTEGER)),
        ),
        (EXACT_RUN,),
    ),
    Endpoint(
        "/api/spans/export",
        "exportSpans",
        "A trace, or steps of a run, as a file: OTLP's JSON, or Chrome's, which Perfetto opens.",
        export,
        ANYTHING,
        (*_PICKED, Param("format", "choice", "how it is written", OTLP, choices=(OTLP, CHROME))),
    ),
    Endpoint(
        "/api/spans/import",
        "importSpans",
        "Bring in a trace file, gzip or not: OTLP's JSON, also with a document on each line, or Chrome's. "
        "Spans that are stored already, in whichever run, are counted and left.",
        bring,
        thing(
            format={"type": "string", "enum": [OTLP, CHROME]},
            runs=many(TEXT),
            steps=many(thing(run=TEXT, first_step=INTEGER, last_step=INTEGER)),
            traces=many(TEXT),
            spans=INTEGER,
            already=INTEGER,
            points=INTEGER,
            rejected=COUNTS,
            ignored=table(INTEGER),
        ),
        (
            Param("run", "text", "the run that a Chrome trace is kept as"),
            Param("project", "text", "and its project", "imports"),
        ),
        method="POST",
        body={"anyOf": [{"type": "object"}, {"type": "array"}]},
        most_body=64 * 1024 * 1024,
        lane="import",
    ),
)
