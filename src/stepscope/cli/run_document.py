"""A run as `show` prints it: one document, made of the answers of a hub or of the run's journals."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from stepscope.cli import text
from stepscope.cli.journal_answers import RUN
from stepscope.cli.stored_run import StoredRun, bytes_here
from stepscope.journal.run_summary import RECENT
from stepscope.model import names
from stepscope.model.goodput_sums import in_words

LISTED_ELSEWHERE = (
    names.EVENT_STARTED,
    names.EVENT_CONFIG,
    names.EVENT_EDITED,
    names.EVENT_FINISHED,
    names.EVENT_EXCEPTION,
    names.EVENT_CLOCK,
    names.EVENT_REJECTED,
)
"""Events that are other parts of a document: its state, settings, exceptions and rejected keys."""
_MAX_READ = 1000
_OF_WRITER = ("id", "attempt", "rank", "main", "host", "pid", "resource")
_SELF = "stepscope/"
Answer: TypeAlias = Mapping[str, Any]


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


def _document(stored: StoredRun, home: Path, row: Answer, keys: Sequence[Answer], summary: Answer) -> RunDocument:
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
        writers=[_writer(each, row) for each in row["writers"]],
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
        open_spans=[_open_span(each) for each in stored.get("/api/spans", open="true", limit=_MAX_READ)["spans"]],
        findings=stored.get(f"{RUN}/findings")["findings"],
        alerts=Counted(counts=summary["alerts"], recent=_newest(map(_record, alerts))),
        exceptions=_newest(map(_record, found)),
        events=Counted(
            counts=summary["events"],
            recent=_newest(_record(each) for each in events if each["name"] not in LISTED_ELSEWHERE),
        ),
        logs=summary["logs"],
        counters=summary["counters"],
    )


_OF_ROW = (
    *("project", "name", "notes", "tags", "group", "job_type", "parent", "from_step", "archived", "status"),
    *("config", "environment"),
)
_OF_KEY = ("last", "last_step", "min", "max", "non_finite")


def look(stored: StoredRun, home: Path) -> RunLook:
    """Describe a run, with what its text has besides."""
    row, keys, summary = stored.get(RUN), stored.get(f"{RUN}/keys")["keys"], stored.get(f"{RUN}/summary")
    events = stored.get("/api/logs", kind="event", name=names.EVENT_REJECTED, limit=_MAX_READ)["logs"]
    return RunLook(
        _document(stored, home, row, keys, summary),
        in_words(stored.get(f"{RUN}/goodput")["shares"]),
        imported_share(row),
        units={each["key"]: each["unit"] for each in keys if each["unit"]},
        curves={each["key"]: each["curve"] for each in keys if each.get("curve")},
        several=any(len(each["ranks"]) > 1 for each in keys),
        rejected={key: reason for each in events for key, reason in dict(each["attrs"].get("keys", {})).items()},
        overhead=summary["overhead"],
    )


def imported_share(row: Mapping[str, Any]) -> float | None:
    """The share of a run's journals that a hub has read; None where it is not importing them."""
    return row["importing"]["bytes"] / row["importing"]["total"] if row["importing"] else None


def _writer(each: Answer, row: Answer) -> WriterPart:
    """A process; a hub does not tell its state, but how it ended, and the state of the run."""
    status: str = each.get("status", "")
    if not status:
        ends = {(end["rank"], end["attempt"]): end["status"] for end in row["endings"]}
        newest = max(other["attempt"] for other in row["writers"])
        silent = row["status"] if each["attempt"] == newest else "crashed"
        status = str(ends.get((each["rank"], each["attempt"]), silent))
    return WriterPart(
        **{name: each[name] for name in _OF_WRITER},
        world_size=each.get("world_size", row.get("world_size")),
        status=status,
        started=_moment(each["started"]),
        ended=_moment(each["seen"]),
        last_step=each["step"],
        records=each.get("records"),
        damaged_frames=each.get("damaged_frames"),
        unreadable_records=each.get("unreadable_records"),
    )


def _open_span(each: Answer) -> OpenSpan:
    same = {name: each[name] for name in ("name", "rank", "step", "trace_id", "span_id", "parent_id", "attrs")}
    return OpenSpan(started=_moment(each["start"]), **same)


def _record(each: Answer) -> RecordPart:
    same = {name: each[name] for name in ("name", "step", "severity", "body", "attrs", "trace_id", "span_id")}
    return RecordPart(time=_moment(each["time"]), **same)


def _newest(records: Iterable[RecordPart]) -> list[RecordPart]:
    """The newest records, in the order of time."""
    return sorted(records, key=lambda each: each.time or "")[-RECENT:]


def _moment(seconds: float | None) -> str | None:
    """A time as ISO 8601 in UTC, to the microsecond, which is what a hub answers."""
    return text.iso(round(seconds * 1e6) * 1000) if seconds else None
