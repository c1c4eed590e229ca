"""A run as `show` prints it: one document, made from journals or from a hub's answers."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from stepscope.cli.stored_run import RUN, StoredRun, bytes_here
from stepscope.journal.run_summary import RECENT, OnDisk, RunSummary, WriterSummary, disk_of, read_run
from stepscope.model import names
from stepscope.model.goodput_sums import in_words
from stepscope.model.records import Alert, Event, Span
from stepscope.model.states import writer_state
from stepscope.wire.plain import plain

_LIFECYCLE = (
    names.EVENT_STARTED,
    names.EVENT_CONFIG,
    names.EVENT_EDITED,
    names.EVENT_FINISHED,
    names.EVENT_EXCEPTION,
    names.EVENT_CLOCK,
)
"""Events that other fields show."""
_MAX_READ = 1000
_SELF = "stepscope/"


class WriterPart(Struct, kw_only=True):
    """A process; what only its journal knows is null for a run without one here."""

    id: str
    attempt: int
    rank: int
    world_size: int
    main: bool
    host: str
    pid: int
    resource: Mapping[str, Any]
    status: str
    started: str | None
    ended: str | None
    last_step: int | None
    records: int | None
    damaged_frames: int | None
    unreadable_records: int | None


class KeyPart(Struct, kw_only=True):
    """A metric over all ranks and attempts."""

    count: int
    last: float | str | None
    last_step: int | None
    min: float | None
    max: float | None
    non_finite: int


class SpanPart(Struct, kw_only=True):
    """The spans of one name."""

    count: int
    errors: int
    mean_seconds: float
    p50_seconds: float
    max_seconds: float


class OpenSpan(Struct, kw_only=True):
    """A span that has not ended."""

    name: str
    started: str | None
    rank: int
    step: int | None
    trace_id: str
    span_id: str
    parent_id: str | None
    attrs: Mapping[str, Any]


class RecordPart(Struct, kw_only=True):
    """An event or an alert; `body` is the message of an alert."""

    name: str
    time: str | None
    step: int | None
    severity: str
    body: Any
    attrs: Mapping[str, Any]
    trace_id: str | None
    span_id: str | None


class Counted(Struct, kw_only=True):
    """How many there are by name, and the newest of them."""

    counts: Mapping[str, int]
    recent: list[RecordPart]


class RunDocument(Struct, kw_only=True):
    """A run for programs; the fields are those of docs/terminal.md."""

    run: str
    project: str
    name: str | None
    notes: str
    tags: Mapping[str, Any]
    group: str | None
    job_type: str | None
    parent: str | None
    from_step: int | None
    archived: bool
    status: str
    started: str | None
    ended: str | None
    duration_seconds: float | None
    last_step: int | None
    attempts: list[int]
    ranks: list[int]
    size: int
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    writers: list[WriterPart]
    keys: Mapping[str, KeyPart]
    spans: Mapping[str, SpanPart]
    open_spans: list[OpenSpan]
    findings: Sequence[Mapping[str, Any]]
    alerts: Counted
    exceptions: list[RecordPart]
    events: Counted
    logs: Mapping[str, int]
    counters: Mapping[str, Any]


class RunLook(NamedTuple):
    """A run as `show` prints it: the document, and what only its text has."""

    document: RunDocument
    time: str
    """Where the time went, in a sentence."""
    imported: float | None = None
    """The share of its journals that a hub has read, while it is importing them."""
    units: Mapping[str, str] = {}
    curves: Mapping[str, list[float]] = {}
    """The trends of the leading metrics."""
    several: bool = False
    """Whether a metric has values of several ranks."""
    rejected: Mapping[str, str] = {}
    """Keys of which a process could not record a value, with the reason."""
    overhead: Mapping[str, float] = {}
    """What Stepscope took of the last seconds of a process, by part; of several processes the most."""


class ReadRun(NamedTuple):
    """A run of journals: the summary of its records, and the state of its files and processes."""

    summary: RunSummary
    disk: Mapping[str, OnDisk]
    """The journals of the writers, before they were read."""
    now: float

    def status_of(self, each: WriterSummary) -> str:
        """The state of one writer."""
        return writer_state(each.facts(self.disk.get(each.writer.id, OnDisk())), self.now)

    @property
    def status(self) -> str:
        """The state of the run."""
        return self.summary.status(self.disk, self.now)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(each.size for each in self.disk.values())

    @property
    def duration(self) -> float | None:
        """Seconds from the first start to the last record."""
        started, ended = self.summary.started, self.summary.ended
        return (ended - started) / 1e9 if started and ended else None


def look(home: Path, run: str) -> ReadRun:
    """Read a whole run from its journals."""
    disk = disk_of(home, run)
    return ReadRun(read_run(home, run), disk, time.time())


def from_journals(shown: ReadRun, findings: Sequence[Mapping[str, Any]] = ()) -> RunDocument:
    """Describe a run whose journals were read."""
    summary, description = shown.summary, shown.summary.described
    return RunDocument(
        run=summary.run,
        project=summary.project,
        name=description.name,
        notes=description.notes,
        tags=description.tags,
        group=summary.group or None,
        job_type=summary.job_type or None,
        parent=summary.parent or None,
        from_step=summary.from_step,
        archived=description.archived,
        status=shown.status,
        started=_iso(summary.started),
        ended=_iso(summary.ended),
        duration_seconds=None if shown.duration is None else round(shown.duration, 6),
        last_step=summary.last_step,
        attempts=summary.attempts,
        ranks=summary.ranks,
        size=shown.size,
        config=summary.config,
        environment=summary.environment,
        writers=[
            WriterPart(
                **{name: getattr(each.writer, name) for name in _OF_WRITER},
                status=shown.status_of(each),
                started=_iso(each.started),
                ended=_iso(each.last),
                last_step=each.last_step,
                records=each.records,
                damaged_frames=each.damaged,
                unreadable_records=each.unreadable,
            )
            for each in summary.writers.values()
        ],
        keys={
            key: KeyPart(
                count=each.count,
                last=each.last,
                last_step=each.last_step,
                min=each.low,
                max=each.high,
                non_finite=each.non_finite,
            )
            for key, each in sorted(summary.keys.items())
        },
        spans={
            name: SpanPart(
                count=each.count,
                errors=each.errors,
                mean_seconds=round(each.mean / 1e9, 9),
                p50_seconds=round(each.p50 / 1e9, 9),
                max_seconds=round(each.longest / 1e9, 9),
            )
            for name, each in sorted(summary.spans.items())
        },
        open_spans=[_open_span(span, who.rank) for who, span in summary.open_spans.values()],
        findings=findings,
        alerts=Counted(counts=summary.alerts, recent=_newest(map(_record, summary.recent_alerts))),
        exceptions=_newest(map(_record, summary.exceptions)),
        events=Counted(counts=summary.events, recent=_newest(map(_record, summary.recent_events))),
        logs=summary.logs,
        counters=dict(sorted(summary.counters.items())),
    )


def look_at_journals(shown: ReadRun, findings: Sequence[Mapping[str, Any]], time: str) -> RunLook:
    """Describe a run whose journals were read, with what its text has besides."""
    summary = shown.summary
    overhead: dict[str, float] = {}
    for each in summary.newest:
        for key, share in each.counters.items():
            if key.startswith(names.OVERHEAD) and isinstance(share, (int, float)):
                overhead[key] = max(float(share), overhead.get(key, 0.0))
    return RunLook(
        from_journals(shown, findings),
        time,
        curves={key: each.curve.points for key, each in summary.keys.items() if each.curve},
        several=any(len(each.latest.by_rank) > 1 for each in summary.keys.values()),
        rejected=summary.rejected_keys,
        overhead=overhead,
    )


_OF_WRITER = ("id", "attempt", "rank", "world_size", "main", "host", "pid", "resource")


def _open_span(span: Span, rank: int) -> OpenSpan:
    return OpenSpan(
        name=span.name,
        started=_iso(span.time),
        rank=rank,
        step=span.step,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_id.hex() if span.parent_id else None,
        attrs=plain(span.attrs),
    )


def _record(record: Event | Alert) -> RecordPart:
    return RecordPart(
        name=record.name,
        time=_iso(record.time),
        step=record.step,
        severity=names.severity_word(record.severity),
        body=record.message if isinstance(record, Alert) else plain(record.body),
        attrs=plain(record.attrs),
        trace_id=record.trace_id.hex() if record.trace_id else None,
        span_id=record.span_id.hex() if record.span_id else None,
    )


def _from_hub(stored: StoredRun, home: Path, row: Mapping[str, Any], keys: Sequence[Mapping[str, Any]]) -> RunDocument:
    summary = stored.get(f"{RUN}/summary")
    events = stored.get("/api/logs", kind="event", sort="newest", limit=_MAX_READ)["logs"]
    found = stored.get("/api/logs", kind="event", name=names.EVENT_EXCEPTION, sort="newest", limit=RECENT)["logs"]
    alerts = stored.get("/api/alerts", sort="newest", limit=RECENT)["alerts"]
    return RunDocument(
        run=row["id"],
        started=_moment(row["started"]),
        ended=_moment(row["seen"]),
        duration_seconds=row["duration"],
        last_step=row["step"],
        attempts=sorted({each["attempt"] for each in row["writers"]}),
        ranks=sorted({each["rank"] for each in row["writers"]}),
        size=bytes_here(home, row["id"]),
        **{name: row[name] for name in _OF_ROW},
        writers=[_stored_writer(each, row) for each in row["writers"]],
        keys={
            each["key"]: KeyPart(count=each["points"], **{name: each[name] for name in _OF_KEY})
            for each in keys
            if not each["key"].startswith(_SELF)
        },
        spans={
            name: SpanPart(
                count=each["count"],
                errors=each["errors"],
                mean_seconds=round(each["mean_ms"] / 1e3, 9),
                p50_seconds=round(each["p50_ms"] / 1e3, 9),
                max_seconds=round(each["max_ms"] / 1e3, 9),
            )
            for name, each in summary["spans"].items()
        },
        open_spans=[_stored_span(each) for each in stored.get("/api/spans", open="true", limit=_MAX_READ)["spans"]],
        findings=stored.get(f"{RUN}/findings")["findings"],
        alerts=Counted(counts=summary["alerts"], recent=_newest(map(_stored_record, alerts))),
        exceptions=_newest(map(_stored_record, found)),
        events=Counted(
            counts=summary["events"],
            recent=_newest(_stored_record(each) for each in events if each["name"] not in _LIFECYCLE),
        ),
        logs=summary["logs"],
        counters=summary["counters"],
    )


_OF_ROW = (
    *("project", "name", "notes", "tags", "group", "job_type", "parent", "from_step", "archived", "status"),
    *("config", "environment"),
)
_OF_KEY = ("last", "last_step", "min", "max", "non_finite")


def look_at_hub(stored: StoredRun, home: Path) -> RunLook:
    """Describe a run that a hub has stored, with what its text has besides."""
    row, keys = stored.get(RUN), stored.get(f"{RUN}/keys")["keys"]
    events = stored.get("/api/logs", kind="event", name=names.EVENT_REJECTED, limit=_MAX_READ)["logs"]
    return RunLook(
        _from_hub(stored, home, row, keys),
        in_words(stored.get(f"{RUN}/goodput")["shares"]),
        imported_share(row),
        units={each["key"]: each["unit"] for each in keys if each["unit"]},
        several=any(len(each["ranks"]) > 1 for each in keys),
        rejected={key: reason for each in events for key, reason in dict(each["attrs"].get("keys", {})).items()},
    )


def imported_share(row: Mapping[str, Any]) -> float | None:
    """The share of a run's journals that a hub has read; None where it is not importing them."""
    return row["importing"]["bytes"] / row["importing"]["total"] if row["importing"] else None


def _stored_writer(each: Mapping[str, Any], row: Mapping[str, Any]) -> WriterPart:
    ends = {(end["rank"], end["attempt"]): end["status"] for end in row["endings"]}
    newest = max(other["attempt"] for other in row["writers"])
    silent = row["status"] if each["attempt"] == newest else "crashed"
    own = {name: each[name] for name in _OF_WRITER if name != "world_size"}
    return WriterPart(
        **own,
        world_size=row["world_size"],
        status=ends.get((each["rank"], each["attempt"]), silent),
        started=_moment(each["started"]),
        ended=_moment(each["seen"]),
        last_step=each["step"],
        records=None,
        damaged_frames=None,
        unreadable_records=None,
    )


def _stored_span(each: Mapping[str, Any]) -> OpenSpan:
    same = {name: each[name] for name in ("name", "rank", "step", "trace_id", "span_id", "parent_id", "attrs")}
    return OpenSpan(started=_moment(each["start"]), **same)


def _stored_record(each: Mapping[str, Any]) -> RecordPart:
    same = {name: each[name] for name in ("name", "step", "severity", "body", "attrs", "trace_id", "span_id")}
    return RecordPart(time=_moment(each["time"]), **same)


def _newest(records: Iterable[RecordPart]) -> list[RecordPart]:
    """The newest records, in the order of time."""
    return sorted(records, key=lambda each: each.time or "")[-RECENT:]


def _iso(ns: int | None) -> str | None:
    return _moment(None if not ns else round(ns / 1e9, 6))


def _moment(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the microsecond, which is what a hub answers."""
    if not seconds:
        return None
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(seconds * 1e6))
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
