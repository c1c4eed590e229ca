"""Trace files: export of spans in the formats of dialects, and import, which stores each span once."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as LateError
from typing import Annotated, Any, TypedDict

from msgspec import Meta, structs

from stepscope.hub.questions.toolbox.endpoint import Endpoint, Param, Reader, Stream, safe_name
from stepscope.hub.questions.traces import MAX_SPANS, RANGE_PARAMS, asked_range, no_spans
from stepscope.hub.questions.traces.stored_spans import SpanRow, read_range
from stepscope.hub.receivers.bodies import Broken, TooLarge, inflate
from stepscope.hub.receivers.ingest import Ingest, Upload
from stepscope.hub.refusals import bad_request, not_found, unavailable
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import read_writers
from stepscope.hub.store.write.ledger import writer_key
from stepscope.model.dialects import load, with_part
from stepscope.model.errors import Retry
from stepscope.model.ports import Writer
from stepscope.model.records import Record, Span
from stepscope.wire.trace_format import BadRequest, Group, TraceFile, TraceFormat, bound_values

MAX_BYTES = 256 * 1024 * 1024
MAX_VALUES = 16_000_000
"""Values of the JSON: a trace of 200,000 spans with ten attributes each, as we write it, has 10 million."""
WAIT_SECONDS = 60.0
_GZIP = b"\x1f\x8b"
_BATCH = 5000
"""Records in one batch."""
_MAX_IDS = 1000
"""Spans that one query looks up."""
Id = tuple[bytes, bytes]
"""A trace id and a span id."""


def format_names() -> tuple[str, ...]:
    """Name the formats: the dialects that have one."""
    return tuple(each.name for each in with_part("trace_format"))


def default_format() -> str:
    """Name the format of exports that ask for none: the first that keeps all that a span has."""
    found = _formats()
    return next((name for name, each in found.items() if each.lossless), next(iter(found), ""))


def _formats() -> dict[str, TraceFormat]:
    return {each.name: load(each.trace_format)() for each in with_part("trace_format")}


@Endpoint(
    "/api/spans/export",
    "exportSpans",
    (*RANGE_PARAMS, Param("format", "choice", "the format", default_format(), choices=format_names())),
)
def export(reader: Reader, given: dict[str, Any]) -> Stream[Any]:
    """A trace, or steps of a run, as a file in one of the formats."""
    ended, still_open = read_range(reader.engine, asked_range(reader, given), limit=MAX_SPANS)
    rows = [*ended, *still_open]
    owners = reader.visible_ids({row.run for row in rows})
    rows = [row for row in rows if row.run in owners]
    if not rows:
        raise no_spans(given)
    title = given["trace_id"].hex() if given["trace_id"] is not None else f"{given['run']}-step-{given['step']}"
    name = given["format"] or default_format()
    parts = _formats()[name].write(title, _by_writer(reader, rows, owners))
    return Stream("application/json", f"{safe_name(title)}.{name}.json", parts)


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


def read_file(body: bytes, run: str, project: str, now: int) -> tuple[str, TraceFile]:
    """Read a file of any format, and name the format; Refused when it is of none."""
    try:
        data = inflate(body, "gzip", MAX_BYTES) if body.startswith(_GZIP) else body
        bound_values(data, MAX_VALUES)
        for name, each in _formats().items():
            if each.matches(data):
                return name, each.read(data, now, run, project)
        raise BadRequest(_why_unknown(data))
    except BadRequest as error:
        raise bad_request(f"the file cannot be read: {error}") from None
    except TooLarge:
        raise bad_request(f"the file is larger than {MAX_BYTES} bytes when unpacked") from None
    except Broken as error:
        raise bad_request(str(error)) from None


def _why_unknown(data: bytes) -> str:
    """Why a file is of no format: where its JSON breaks, if it does."""
    try:
        json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    signs = sorted(_formats().values(), key=lambda each: not each.lossless)
    return f"it has neither {' nor '.join(each.sign for each in signs)}"


Known = Callable[[Sequence[Span]], Mapping[Id, Iterable[str]]]
"""Returns the runs in which spans are stored already."""


class ImportedSteps(TypedDict):
    """The steps of a run that a file has."""

    run: str
    first_step: int
    last_step: int


class TakenRecords(TypedDict):
    """How much of a file was taken."""

    runs: list[str]
    steps: list[ImportedSteps]
    spans: int
    already: Annotated[int, Meta(description="Spans that were stored before.")]
    points: int


class ImportedFile(TakenRecords):
    """A trace file that was imported."""

    format: str
    rejected: dict[str, int]
    ignored: dict[str, int]
    traces: list[str]


def submit(
    ingest: Ingest, format: str, found: TraceFile, number: int, project: str | None, known: Known
) -> ImportedFile:
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
    return {
        **new.summary(),
        "format": format,
        "rejected": dict(+rejected),
        "ignored": found.ignored,
        "traces": _traces(found.groups),
    }


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

    def summary(self) -> TakenRecords:
        """The runs, with the steps that the file has of each, and how much was taken."""
        return {
            "runs": list(self._runs),
            "steps": [{"run": run, "first_step": min(of), "last_step": max(of)} for run, of in self._steps.items()],
            "spans": self._spans,
            "already": self._already,
            "points": self._points,
        }


def _traces(groups: Sequence[Group]) -> list[str]:
    spans = (record for group in groups for record in group.records if isinstance(record, Span))
    return list(dict.fromkeys(span.trace_id.hex() for span in spans))[:1000]


def known_spans(engine: Engine, spans: Sequence[Span]) -> Mapping[Id, frozenset[int]]:
    """The runs in which each of some spans is stored; one that ended is not there when only its beginning is."""
    found: dict[Id, set[int]] = {}
    for start in range(0, len(spans), _MAX_IDS):
        part = spans[start : start + _MAX_IDS]
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


@Endpoint(
    "/api/spans/import",
    "importSpans",
    (
        Param("run", "text", "the run of spans whose file names none"),
        Param("project", "text", "and its project", "imports"),
    ),
    method="POST",
    body=dict[str, Any] | list[Any],
    most_body=64 * 1024 * 1024,
    lane="import",
)
def import_file(reader: Reader, given: dict[str, Any]) -> ImportedFile:
    """Import a trace file of any of the formats, gzip or not.

    Spans that are stored already, in any run, are counted and skipped.
    """
    if reader.ingest is None:
        raise not_found("importing traces needs a running hub: start one with `stepscope hub`")
    format, found = read_file(given["body"], given["run"] or "", given["project"] or "imports", time.time_ns())
    number = int.from_bytes(hashlib.blake2b(given["body"], digest_size=7).digest(), "big")
    return submit(reader.ingest, format, found, number, reader.project, lambda spans: _known(reader, spans))


def _known(reader: Reader, spans: Sequence[Span]) -> dict[Id, list[str]]:
    """The runs in which spans are stored, of those that may be seen."""
    stored = known_spans(reader.engine, spans)
    owners = reader.visible_ids({run for runs in stored.values() for run in runs})
    return {id: [owners[run] for run in sorted(runs) if run in owners] for id, runs in stored.items()}
