"""Logs, events and alerts as columns of one shape; a run's life cycle is kept apart for the list of runs."""

from collections.abc import Sequence

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, fixed, numbers, texts
from stepscope.hub.store.write.catalog import Source
from stepscope.hub.store.write.rows import Rows
from stepscope.model.records import ALERT, EVENT, LOG, Alert, Event, Log

LIFE = "train.run."
"""Events whose names begin so tell how a run fares."""

Line = Log | Event | Alert


class Lines:
    """The logs, events and alerts of a commit."""

    def __init__(self) -> None:
        self._logs: Rows[Line] = Rows()
        self._alerts: Rows[Line] = Rows()
        self._life: Rows[Event] = Rows()

    def extend(self, source: Source, lines: Sequence[Line]) -> None:
        """Take records of one source."""
        self._logs.extend(source, [line for line in lines if not isinstance(line, Alert)])
        self._alerts.extend(source, [line for line in lines if isinstance(line, Alert)])
        self._life.extend(source, [line for line in lines if isinstance(line, Event) and line.name.startswith(LIFE)])

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `logs`, `alerts` and `lifecycle`; ValueError and its kin for an unfit record."""
        found = {}
        if self._logs.records:
            found["logs"] = _block(self._logs, commit)
        if self._alerts.records:
            found["alerts"] = _block(self._alerts, commit)
        if self._life.records:
            found["lifecycle"] = _life(self._life, commit)
        return found


def _block(rows: Rows[Line], commit: int) -> Block:
    lines = rows.records
    bodies = [_body(line) for line in lines]
    return {
        **rows.place(commit),
        "time": numbers("Int64", [line.time for line in lines]),
        "kind": numbers("UInt8", [_kind(line) for line in lines]),
        "severity": numbers("UInt8", [line.severity for line in lines]),
        "name": texts([_name(line) for line in lines]),
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


def _kind(line: Line) -> int:
    if isinstance(line, Log):
        return LOG
    return EVENT if isinstance(line, Event) else ALERT


def _name(line: Line) -> str:
    return "" if isinstance(line, Log) else line.name


def _body(line: Line) -> attrs.Spelled:
    return ("s", line.message) if isinstance(line, Alert) else attrs.spell(line.body)


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
