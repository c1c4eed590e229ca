"""Spans as columns; a trace is remembered by the runs and steps it touches."""

from collections.abc import Sequence

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, Lists, ends_of, fixed, numbers, texts
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.catalog import Source
from stepscope.hub.store.write.rows import Rows
from stepscope.model.records import Alert, Event, Link, Log, Span, SpanEvent

Traced = Span | Log | Event | Alert


class Spans:
    """The spans of a commit, ended and open ones apart."""

    def __init__(self) -> None:
        self._ended: Rows[Span] = Rows()
        self._open: Rows[Span] = Rows()

    def extend(self, source: Source, spans: Sequence[Span]) -> None:
        """Take spans of one source."""
        ended = [span for span in spans if span.duration is not None]
        self._ended.extend(source, ended)
        if len(ended) < len(spans):
            self._open.extend(source, [span for span in spans if span.duration is None])

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `spans` and `open_spans`; ValueError, OverflowError or TypeError for an unfit span."""
        found = {}
        if self._ended.records:
            found["spans"] = _block(self._ended, commit)
        if self._open.records:
            found["open_spans"] = _block(self._open, commit)
        return found


def _block(rows: Rows[Span], commit: int) -> Block:
    spans = rows.records
    block: Block = {
        **rows.place(commit),
        "time": numbers("Int64", [span.time for span in spans]),
        "duration": numbers("Int64", [span.duration or 0 for span in spans]),
        "trace_id": fixed(16, [span.trace_id for span in spans]),
        "span_id": fixed(8, [span.span_id for span in spans]),
        "parent_id": fixed(8, [span.parent_id for span in spans]),
        "name": texts([span.name for span in spans]),
        "axis": texts([span.axis or "" for span in spans]),
        "span_kind": numbers("UInt8", [span.span_kind for span in spans]),
        "status": numbers("UInt8", [span.status for span in spans]),
        "message": texts([span.message for span in spans]),
        "scope": texts([span.scope for span in spans]),
        "flags": numbers("UInt32", [span.flags for span in spans]),
        "writer": rows.by_source("UInt64", lambda source: source.key),
        **attrs.block([span.attrs for span in spans]),
    }
    return {**block, **_events([span.events for span in spans]), **_links([span.links for span in spans])}


def _events(lists: Sequence[tuple[SpanEvent, ...]]) -> Block:
    ends = ends_of(map(len, lists))
    events = [event for each in lists for event in each]
    return {
        "event_times": Lists(ends, numbers("Int64", [event.time for event in events])),
        "event_names": Lists(ends, texts([event.name for event in events])),
        "event_attrs": Lists(ends, texts([attrs.as_json(event.attrs) for event in events])),
    }


def _links(lists: Sequence[tuple[Link, ...]]) -> Block:
    ends = ends_of(map(len, lists))
    links = [link for each in lists for link in each]
    return {
        "link_traces": Lists(ends, texts([link.trace_id.hex() for link in links])),
        "link_spans": Lists(ends, texts([link.span_id.hex() for link in links])),
        "link_attrs": Lists(ends, texts([attrs.as_json(link.attrs) for link in links])),
    }


class Traces:
    """Where the traces of a commit are to be found."""

    def __init__(self) -> None:
        self._places: set[tuple[bytes, int, int]] = set()

    def extend(self, run: int, records: Sequence[Traced]) -> None:
        """Note at which steps of a run there are records of traces."""
        self._places.update(
            {
                (record.trace_id, run, NO_STEP if record.step is None else record.step)
                for record in records
                if record.trace_id
            }
        )

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
