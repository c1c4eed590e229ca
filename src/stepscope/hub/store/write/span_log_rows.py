"""Spans, logs, samples, events and alerts as columns, with the run, rank and attempt they came from."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, Lists, Numbers, constant, ends_of, fixed, numbers, texts
from stepscope.hub.store.schema import NO_STEP
from stepscope.hub.store.write.catalog import Source
from stepscope.model import names
from stepscope.model.records import ALERT, EVENT, LOG, Alert, Attrs, Event, Link, Log, Span, SpanEvent
from stepscope.model.sample_columns import PROMPTS, find_column, prompt_number

Traced = Span | Log | Event | Alert
R = TypeVar("R", bound=Traced)


class Rows(Generic[R]):
    """Records in order, and how many consecutive ones are of each source."""

    def __init__(self) -> None:
        self.records: list[R] = []
        self._sources: list[Source] = []
        self._counts: list[int] = []

    def extend(self, source: Source, records: Sequence[R]) -> None:
        """Add records of one source."""
        if records:
            self.records += records
            self._sources.append(source)
            self._counts.append(len(records))

    def by_source(self, type: str, of: Callable[[Source], int]) -> Numbers:
        """Make a column that is the same for all records of a source."""
        return Numbers(type, numbers(type, [of(source) for source in self._sources]).data.repeat(self._counts))

    def place(self, commit: int) -> Block:
        """Make the columns run, step, rank, attempt and commit."""
        steps = [NO_STEP if record.step is None else record.step for record in self.records]
        return {
            "run": self.by_source("UInt32", lambda source: source.run_numbers.number),
            "step": numbers("Int64", steps),
            "rank": self.by_source("UInt32", lambda source: source.writer.rank),
            "attempt": self.by_source("UInt16", lambda source: source.writer.attempt),
            "commit": constant("UInt32", commit, len(steps)),
        }


class Spans:
    """The spans of a commit, ended and open ones separately."""

    def __init__(self) -> None:
        self._ended: Rows[Span] = Rows()
        self._open: Rows[Span] = Rows()

    def extend(self, source: Source, spans: Sequence[Span]) -> None:
        """Add spans of one source."""
        ended = [span for span in spans if span.duration is not None]
        self._ended.extend(source, ended)
        if len(ended) < len(spans):
            self._open.extend(source, [span for span in spans if span.duration is None])

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `spans` and `open_spans`; ValueError, OverflowError or TypeError for an invalid span."""
        found = {}
        if self._ended.records:
            found["spans"] = _span_block(self._ended, commit)
        if self._open.records:
            found["open_spans"] = _span_block(self._open, commit)
        return found


def _span_block(rows: Rows[Span], commit: int) -> Block:
    """Make the rows of spans; columns of which all values are those that the table has by default are left out."""
    spans = rows.records
    block: Block = {
        **rows.place(commit),
        "time": numbers("Int64", [span.time for span in spans]),
        "duration": numbers("Int64", [span.duration or 0 for span in spans]),
        "trace_id": fixed(16, [span.trace_id for span in spans]),
        "span_id": fixed(8, [span.span_id for span in spans]),
        "parent_id": fixed(8, [span.parent_id for span in spans]),
        "name": texts([span.name for span in spans]),
        "span_kind": numbers("UInt8", [span.span_kind for span in spans]),
        "flags": numbers("UInt32", [span.flags for span in spans]),
        "writer": rows.by_source("UInt64", lambda source: source.key),
        **_links([span.links for span in spans]),
    }
    if [True for span in spans if span.status or span.message or span.scope or span.axis]:  # else most spans
        block["axis"] = texts([span.axis or "" for span in spans])
        block["status"] = numbers("UInt8", [span.status for span in spans])
        block["message"] = texts([span.message for span in spans])
        block["scope"] = texts([span.scope for span in spans])
    return {**block, **attrs.block([span.attrs for span in spans]), **_events([span.events for span in spans])}


def _events(lists: Sequence[tuple[SpanEvent, ...]]) -> Block:
    if not any(lists):
        return {}
    ends = ends_of(map(len, lists))
    events = [event for each in lists for event in each]
    return {
        "event_times": Lists(ends, numbers("Int64", [event.time for event in events])),
        "event_names": Lists(ends, texts([event.name for event in events])),
        "event_attrs": Lists(ends, texts([attrs.as_json(event.attrs) for event in events])),
    }


def _links(lists: Sequence[tuple[Link, ...]]) -> Block:
    if not any(lists):
        return {}
    ends = ends_of(map(len, lists))
    links = [link for each in lists for link in each]
    return {
        "link_traces": Lists(ends, texts([link.trace_id.hex() for link in links])),
        "link_spans": Lists(ends, texts([link.span_id.hex() for link in links])),
        "link_attrs": Lists(ends, texts([attrs.as_json(link.attrs) for link in links])),
    }


class Traces:
    """Locates the traces of a commit."""

    def __init__(self) -> None:
        self._places: set[tuple[bytes, int, int]] = set()

    def extend(self, run: int, records: Sequence[Traced]) -> None:
        """Record the steps of a run at which traces have records."""
        traces, steps = [record.trace_id for record in records], [record.step for record in records]
        found = set(zip(traces, steps, strict=True))
        self._places.update({(trace, run, NO_STEP if step is None else step) for trace, step in found if trace})

    def blocks(self) -> dict[str, Block]:
        """Make the rows of `traces`."""
        if not self._places:
            return {}
        rows = list(self._places)
        return {
            "traces": {
                "trace_id": fixed(16, [row[0] for row in rows]),
                "run": numbers("UInt32", [row[1] for row in rows]),
                "step": numbers("Int64", [row[2] for row in rows]),
            }
        }


LIFE = "train.run."
_LIFE = frozenset(
    (
        *(names.EVENT_CONFIG, names.EVENT_STOP, names.EVENT_STOPPED, names.EVENT_LIVE, names.EVENT_LIVE_CHANGED),
        *(names.EVENT_CHECKPOINT, names.EVENT_CHECKPOINT_MEASURED, names.EVENT_CHECKPOINT_LOADED),
        *(names.EVENT_ARTIFACT, names.EVENT_ARTIFACT_MEASURED, names.EVENT_ARTIFACT_USED),
    )
)
"""Events with this prefix, and those of these names, describe the state of a run; they are few."""

Line = Log | Event | Alert


class Lines:
    """The logs, samples, events and alerts of a commit."""

    def __init__(self) -> None:
        self._logs: Rows[Line] = Rows()
        self._samples: Rows[Log] = Rows()
        self._alerts: Rows[Line] = Rows()
        self._life: Rows[Event] = Rows()

    def extend(self, source: Source, lines: Sequence[Line]) -> None:
        """Add records of one source."""
        samples = [line for line in lines if isinstance(line, Log) and line.scope == names.SCOPE_SAMPLES]
        self._samples.extend(source, samples)
        if len(samples) == len(lines):
            return
        if samples:
            lines = [line for line in lines if not isinstance(line, Log) or line.scope != names.SCOPE_SAMPLES]
        self._logs.extend(source, [line for line in lines if not isinstance(line, Alert)])
        self._alerts.extend(source, [line for line in lines if isinstance(line, Alert)])
        self._life.extend(source, [line for line in lines if isinstance(line, Event) and _describes_run(line)])

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of each table; one of `UNFIT` for an invalid record."""
        found = {}
        if self._samples.records:
            found["samples"] = _sample_block(self._samples, commit)
            found["sample_steps"] = _step_block(self._samples, commit)
        if self._logs.records:
            found["logs"] = _log_block(self._logs, commit)
        if self._alerts.records:
            found["alerts"] = _log_block(self._alerts, commit)
        if self._life.records:
            found["lifecycle"] = _life(self._life, commit)
        return found


def _describes_run(event: Event) -> bool:
    return event.name.startswith(LIFE) or event.name in _LIFE


def _log_block(rows: Rows[Line], commit: int) -> Block:
    lines = rows.records
    bodies = [_body(line) for line in lines]
    return {
        **rows.place(commit),
        "time": numbers("Int64", [line.time for line in lines]),
        "kind": numbers("UInt8", [_kind(line) for line in lines]),
        "severity": numbers("UInt8", [line.severity for line in lines]),
        "name": texts(["" if isinstance(line, Log) else line.name for line in lines]),
        "body": texts([text for _, text in bodies]),
        "body_type": texts([letter for letter, _ in bodies]),
        "trace_id": fixed(16, [line.trace_id for line in lines]),
        "span_id": fixed(8, [line.span_id for line in lines]),
        "axis": texts([line.axis or "" for line in lines]),
        "scope": texts([line.scope if isinstance(line, Log) else "" for line in lines]),
        "observed": numbers("Int64", [line.observed for line in lines]),
        "flags": numbers("UInt32", [line.flags for line in lines]),
        "writer": rows.by_source("UInt64", lambda source: source.key),
        **attrs.block([line.attrs for line in lines]),
    }


def _sample_block(rows: Rows[Log], commit: int) -> Block:
    samples = rows.records
    return {
        **rows.place(commit),
        "name": texts([str(sample.body) for sample in samples]),
        "time": numbers("Int64", [sample.time for sample in samples]),
        "axis": texts([sample.axis or "" for sample in samples]),
        "prompt": numbers("UInt64", [_prompt(sample.attrs) for sample in samples]),
        "trace_id": fixed(16, [sample.trace_id for sample in samples]),
        "span_id": fixed(8, [sample.span_id for sample in samples]),
        "writer": rows.by_source("UInt64", lambda source: source.key),
        **attrs.block([sample.attrs for sample in samples]),
    }


def _step_block(rows: Rows[Log], commit: int) -> Block:
    """How many samples there are at each step of each table."""
    runs = rows.by_source("UInt32", lambda source: source.run_numbers.number).data.tolist()
    found = Counter(
        (run, str(sample.body), NO_STEP if sample.step is None else sample.step)
        for run, sample in zip(runs, rows.records, strict=True)
    )
    return {
        "run": numbers("UInt32", [run for run, _, _ in found]),
        "name": texts([name for _, name, _ in found]),
        "step": numbers("Int64", [step for _, _, step in found]),
        "row_count": numbers("UInt32", list(found.values())),
        "commit": constant("UInt32", commit, len(found)),
    }


def _prompt(row: Attrs) -> int:
    """The hash of the prompt of a sample, whatever type it has; 0 without one."""
    name = find_column(row, PROMPTS)
    return 0 if name is None else prompt_number(attrs.encode_value(row[name])[1])


def _kind(line: Line) -> int:
    if isinstance(line, Log):
        return LOG
    return EVENT if isinstance(line, Event) else ALERT


def _body(line: Line) -> attrs.EncodedValue:
    return ("s", line.message) if isinstance(line, Alert) else attrs.encode_value(line.body)


def _life(rows: Rows[Event], commit: int) -> Block:
    events = rows.records
    block = rows.place(commit)
    del block["step"]
    return {
        **block,
        "writer": rows.by_source("UInt64", lambda source: source.key),
        "main": rows.by_source("UInt8", lambda source: source.writer.main),
        "time": numbers("Int64", [event.time for event in events]),
        "name": texts([event.name for event in events]),
        "status": texts([str(event.attrs.get("status", "")) for event in events]),
        **attrs.block([event.attrs for event in events]),
    }
