"""Logs, events and alerts as columns of one shape; a run's life cycle is kept apart for the list of runs."""

from collections.abc import Sequence

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, fixed, numbers, texts
from stepscope.hub.store.write.catalog import Source
from stepscope.hub.store.write.spans import place
from stepscope.model.records import ALERT, EVENT, LOG, Alert, Event, Log

LIFE = "train.run."
"""Events whose names begin so tell how a run fares."""

Line = Log | Event | Alert


class Lines:
    """The logs, events and alerts of a commit."""

    def __init__(self) -> None:
        self._logs: list[tuple[Source, Line]] = []
        self._alerts: list[tuple[Source, Line]] = []
        self._life: list[tuple[Source, Event]] = []

    def add(self, source: Source, line: Line) -> None:
        """Take a record."""
        (self._alerts if isinstance(line, Alert) else self._logs).append((source, line))
        if isinstance(line, Event) and line.name.startswith(LIFE):
            self._life.append((source, line))

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `logs`, `alerts` and `lifecycle`; ValueError and its kin for an unfit record."""
        found = {}
        if self._logs:
            found["logs"] = _block(self._logs, commit)
        if self._alerts:
            found["alerts"] = _block(self._alerts, commit)
        if self._life:
            found["lifecycle"] = _life(self._life, commit)
        return found


def _block(rows: Sequence[tuple[Source, Line]], commit: int) -> Block:
    lines = [line for _, line in rows]
    bodies = [_body(line) for line in lines]
    return {
        **place(rows, commit),
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


def _life(rows: Sequence[tuple[Source, Event]], commit: int) -> Block:
    block = place(rows, commit)
    del block["step"]
    return {
        **block,
        "writer": numbers("UInt64", [source.key for source, _ in rows]),
        "main": numbers("UInt8", [source.writer.main for source, _ in rows]),
        "time": numbers("Int64", [event.time for _, event in rows]),
        "name": texts([event.name for _, event in rows]),
        "status": texts([str(event.attrs.get("status", "")) for _, event in rows]),
        **attrs.block([event.attrs for _, event in rows]),
    }
