"""Trace files: export of spans as OTLP or Chrome JSON, and import, which stores each span once."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from stepscope.dialects.chrome.wire import files as chrome
from stepscope.dialects.chrome.wire.events import is_chrome
from stepscope.dialects.chrome.wire.files import Lane, write
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Reader, Stream, safe_name
from stepscope.hub.questions.toolbox.params import Param, bad_request, not_found, unavailable
from stepscope.hub.questions.toolbox.schemas import ANYTHING, COUNTS, INTEGER, TEXT, list_of, map_of, object_of
from stepscope.hub.questions.traces import MOST_SPANS, RANGE_PARAMS, asked_range, no_spans
from stepscope.hub.questions.traces.stored_spans import SpanRow, read_range
from stepscope.hub.receivers.bodies import Broken, TooLarge, inflate
from stepscope.hub.receivers.ingest import Ingest, Upload
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import read_writers
from stepscope.hub.store.write.ledger import writer_key
from stepscope.model.errors import Retry
from stepscope.model.ports import Writer
from stepscope.model.records import Record, Span
from stepscope.wire.otlp.decode.decode_request import decode
from stepscope.wire.otlp.decode.origin import Group
from stepscope.wire.otlp.decode.request_limits import bound_values
from stepscope.wire.otlp.decode.split_request import split_spans
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.encode.to_json import to_json
from stepscope.wire.otlp.replies import BadRequest

OTLP, CHROME = "otlp", "chrome"
MOST_BYTES = 256 * 1024 * 1024
MOST_VALUES = 16_000_000
"""Values of the JSON: a trace of 200,000 spans with ten attributes each, as we write it, has 10 million."""
WAIT_SECONDS = 60.0
_GZIP = b"\x1f\x8b"
_BATCH = 5000
"""Records in one batch."""
_MOST_IDS = 1000
"""Spans that one query looks up."""
Id = tuple[bytes, bytes]
"""A trace id and a span id."""


def export(reader: Reader, given: dict[str, Any]) -> Stream:
    """Answer `/api/spans/export`."""
    ended, still_open = read_range(reader.engine, asked_range(reader, given), limit=MOST_SPANS)
    rows = [*ended, *still_open]
    owners = reader.visible_ids({row.run for row in rows})
    rows = [row for row in rows if row.run in owners]
    if not rows:
        raise no_spans(given)
    title = given["trace_id"].hex() if given["trace_id"] is not None else f"{given['run']}-step-{given['step']}"
    if given["format"] == CHROME:
        return Stream("application/json", f"{safe_name(title)}.chrome.json", write(title, _lanes(rows, owners)))
    return Stream("application/json", f"{safe_name(title)}.otlp.json", _write_otlp(_by_writer(reader, rows, owners)))


def _lanes(rows: Sequence[SpanRow], owners: dict[int, str]) -> list[Lane]:
    grouped: dict[tuple[str, int, int], list[Span]] = {}
    for row in rows:
        grouped.setdefault((owners[row.run], row.rank, row.attempt), []).append(row.span)
    return [Lane(run, rank, spans) for (run, rank, _), spans in sorted(grouped.items())]


Batches = list[tuple[Writer, list[Span]]]


def _by_writer(reader: Reader, rows: Sequence[SpanRow], owners: dict[int, str]) -> Batches:
    """Group spans by the process that recorded them.

    Spans stored before their writer was kept go to the first process of their rank and attempt.
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


def _write_otlp(batches: Batches) -> Iterator[bytes]:
    """Write one document: the lists of all requests joined."""
    yield b'{"resourceSpans":['
    for number, request in enumerate(encode(batches).requests):
        inside = to_json("traces", request.body).removeprefix(b'{"resourceSpans":[').removesuffix(b"]}")
        yield (b",\n" if number else b"") + inside
    yield b"]}\n"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The content of a trace file."""

    format: str
    groups: list[Group]
    rejected: dict[str, int]
    ignored: dict[str, int] = field(default_factory=dict)


def read_file(body: bytes, run: str, project: str, now: int) -> TraceFile:
    """Read a file of either format; Refused when it is of neither."""
    try:
        data = inflate(body, "gzip", MOST_BYTES) if body.startswith(_GZIP) else body
        bound_values(data, MOST_VALUES)
        if is_chrome(data):
            made = chrome.read(data, now, run=run, project=project)
            return TraceFile("chrome", made.groups, made.rejections.reasons, made.ignored)
        return _read_otlp(data)
    except BadRequest as error:
        raise bad_request(f"the file cannot be read: {error}") from None
    except TooLarge:
        raise bad_request(f"the file is larger than {MOST_BYTES} bytes when unpacked") from None
    except Broken as error:
        raise bad_request(str(error)) from None


def _read_otlp(data: bytes) -> TraceFile:
    """A document, or one on each line as collectors write them; what one process sent on many lines is one group."""
    lines = [line for line in data.splitlines() if line.strip()]
    many = len(lines) > 1 and all(line.lstrip().startswith(b'{"resourceSpans"') for line in lines)
    groups: dict[str, Group] = {}
    rejected: Counter[str] = Counter()
    for part in lines if many else split_spans(data, _BATCH):
        if b'"resourceSpans"' not in part:
            raise BadRequest(_why_unknown(part))
        found = decode("traces", "json", part)
        for group in found.groups:
            groups.setdefault(group.origin.key, Group(group.origin, [])).records.extend(group.records)
        rejected.update(found.rejections.reasons)
    return TraceFile("otlp", list(groups.values()), dict(rejected))


def _why_unknown(data: bytes) -> str:
    """Why a file is of neither format: where its JSON breaks, if it does."""
    try:
        json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return "it has neither resourceSpans (OTLP) nor traceEvents (Chrome)"


Known = Callable[[Sequence[Span]], Mapping[Id, Iterable[str]]]
"""Returns the runs in which spans are stored already."""


def submit(ingest: Ingest, found: TraceFile, number: int, project: str | None, known: Known) -> dict[str, Any]:
    """Journal the new records of a file and wait until they are safe; each span is stored once.

    `number` is a hash of the file's content and numbers its batches, so that a retry is idempotent.
    """
    upload = Upload()
    for reason, count in found.rejected.items():
        ingest.reject(reason, count)
    new = _NewRecords(known)
    for group in found.groups:
        writer = group.origin.writer()
        if project is not None:
            writer = structs.replace(writer, project=project)
        for part in range(0, len(group.records), _BATCH):
            records = new.take(group.origin.run, group.records[part : part + _BATCH])
            if records:
                ingest.add(upload, writer, records, project, number + part // _BATCH)
    try:
        ingest.submit(upload).result(WAIT_SECONDS)
    except (Retry, LateError) as error:
        after = getattr(error, "after", None) or 5.0
        raise unavailable(str(error) or "the disk is slow", after) from None
    rejected = Counter(found.rejected) + upload.rejected
    made = {"format": found.format, **new.summary(), "rejected": dict(+rejected), "ignored": found.ignored}
    return {**made, "traces": _traces(found.groups)}


class _NewRecords:
    """Selects the records of a file that are not stored yet, and counts them."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._seen: set[tuple[Id, bool]] = set()
        self._runs: dict[str, None] = {}
        self._steps: dict[str, set[int]] = {}
        self._spans = self._points = self._already = 0

    def take(self, run: str, records: Sequence[Record]) -> list[Record]:
        """The records that are new: no span that is stored, or that the file had before."""
        known = self._known([record for record in records if isinstance(record, Span)])
        new: list[Record] = []
        for record in records:
            if not isinstance(record, Span):
                self._points += 1
                new.append(record)
                continue
            id = record.trace_id, record.span_id
            places, met = list(known.get(id, ())), (id, record.duration is None)
            if places or met in self._seen:
                self._already += 1
            else:
                self._spans += 1
                new.append(record)
            self._seen.add(met)
            self._add_steps(places or [run], record.step)
        if new:
            self._runs[run] = None
        return new

    def _add_steps(self, runs: Iterable[str], step: int | None) -> None:
        for run in runs:
            self._runs[run] = None
            if step is not None:
                self._steps.setdefault(run, set()).add(step)

    def summary(self) -> dict[str, Any]:
        """The runs, with the steps that the file has of each, and how much was taken."""
        steps = [{"run": run, "first_step": min(steps), "last_step": max(steps)} for run, steps in self._steps.items()]
        counts = {"spans": self._spans, "already": self._already, "points": self._points}
        return {"runs": list(self._runs), "steps": steps, **counts}


def _traces(groups: Sequence[Group]) -> list[str]:
    spans = (record for group in groups for record in group.records if isinstance(record, Span))
    return list(dict.fromkeys(span.trace_id.hex() for span in spans))[:1000]


def known_spans(engine: Engine, spans: Sequence[Span]) -> Mapping[Id, frozenset[int]]:
    """The runs in which each of some spans is stored; one that ended is not there when only its beginning is."""
    found: dict[Id, set[int]] = {}
    for start in range(0, len(spans), _MOST_IDS):
        part = spans[start : start + _MOST_IDS]
        every = {(span.trace_id, span.span_id) for span in part}
        begun = every - {(span.trace_id, span.span_id) for span in part if span.duration is not None}
        where = _condition(engine, part)
        for source, wanted in (("spans", every), ("open_spans", begun)):
            if where is None or not wanted:
                continue
            rows = engine.query(f"SELECT DISTINCT run, trace_id, span_id FROM {source} WHERE {where}").rows()
            for run, trace, span in rows:
                if (trace, span) in wanted:
                    found.setdefault((trace, span), set()).add(run)
    return {id: frozenset(runs) for id, runs in found.items()}


def _condition(engine: Engine, spans: Sequence[Span]) -> str | None:
    """The condition that selects some spans, and maybe others; None when their traces are unknown."""
    traces, ids = (_hex_literals({getattr(span, name) for span in spans}) for name in ("trace_id", "span_id"))
    places = list(engine.query(f"SELECT DISTINCT run, step FROM traces WHERE trace_id IN {traces}").rows("run", "step"))
    if not places:
        return None
    runs, steps = (literal.integers(set(side)) for side in zip(*places, strict=True))
    return f"run IN {runs} AND step IN {steps} AND span_id IN {ids}"


def _hex_literals(ids: Iterable[bytes]) -> str:
    """Ids for an IN, as escaped bytes: a thousand calls of unhex() would take half a second."""
    return "(" + ", ".join("'" + "".join(f"\\x{byte:02x}" for byte in id) + "'" for id in ids) + ")"


def import_file(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `POST /api/spans/import`."""
    if reader.ingest is None:
        raise not_found("importing traces needs a running hub: start one with `stepscope hub`")
    found = read_file(given["body"], given["run"] or "", given["project"] or "imports", time.time_ns())
    number = int.from_bytes(hashlib.blake2b(given["body"], digest_size=7).digest(), "big")
    return submit(reader.ingest, found, number, reader.project, lambda spans: _known(reader, spans))


def _known(reader: Reader, spans: Sequence[Span]) -> dict[Id, list[str]]:
    """The runs in which spans are stored, of those that may be seen."""
    stored = known_spans(reader.engine, spans)
    owners = reader.visible_ids({run for runs in stored.values() for run in runs})
    return {id: [owners[run] for run in sorted(runs) if run in owners] for id, runs in stored.items()}


ENDPOINTS = (
    Endpoint(
        "/api/spans/export",
        "exportSpans",
        "A trace, or steps of a run, as a file: OTLP's JSON, or Chrome's, which Perfetto opens.",
        export,
        ANYTHING,
        (*RANGE_PARAMS, Param("format", "choice", "the format", OTLP, choices=(OTLP, CHROME))),
    ),
    Endpoint(
        "/api/spans/import",
        "importSpans",
        "Import a trace file, gzip or not: OTLP's JSON, one document or one on each line, or Chrome's. "
        "Spans that are stored already, in any run, are counted and skipped.",
        import_file,
        object_of(
            format={"type": "string", "enum": [OTLP, CHROME]},
            runs=list_of(TEXT),
            steps=list_of(object_of(run=TEXT, first_step=INTEGER, last_step=INTEGER)),
            traces=list_of(TEXT),
            spans=INTEGER,
            already=INTEGER,
            points=INTEGER,
            rejected=COUNTS,
            ignored=map_of(INTEGER),
        ),
        (
            Param("run", "text", "the run that a Chrome trace is stored as"),
            Param("project", "text", "and its project", "imports"),
        ),
        method="POST",
        body={"anyOf": [{"type": "object"}, {"type": "array"}]},
        most_body=64 * 1024 * 1024,
        lane="import",
    ),
)
