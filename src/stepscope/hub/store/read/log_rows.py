"""Rows of logs, events and alerts as records, and the events that say something of a run as a whole."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import step_of
from stepscope.model.records import ALERT, EVENT, Alert, Attrs, Event, Log

_COLUMNS = (
    *("run", "rank", "attempt", "kind", "time", "step", "axis", "trace_id", "span_id", "severity", "name"),
    *("body", "body_type", "scope", "observed", "flags", "attr_names", "attr_values", "attr_types"),
)
_NONE = (bytes(16), bytes(8))


class LogRow(Struct, frozen=True):
    """A log, event or alert with its run, rank and attempt."""

    run: int
    rank: int
    attempt: int
    record: Log | Event | Alert


def read_log_rows(engine: Engine, table: str, where: str, order: str = "time, rank, span_id") -> list[LogRow]:
    """The records of a table that match a condition; `order` may end in a limit."""
    found = engine.query(f"SELECT {', '.join(_COLUMNS)} FROM {table} WHERE {where} ORDER BY {order}")
    return [_row(row) for row in found.rows(*_COLUMNS)]


_WINDOWS = (2, 32)
"""How many times the wanted rows are looked through before all are."""


def newest_log_rows(engine: Engine, among: str, where: str, most: int) -> list[LogRow]:
    """The newest records that match both conditions, the newest first.

    `among` needs small columns only. Where it has very many rows, `where` is tried on the newest of them first, so that
    the attributes of the others are not read.
    """
    order = f"time DESC, rank LIMIT {most}"
    for window in _WINDOWS:
        first = engine.query(f"SELECT time FROM logs WHERE {among} ORDER BY time DESC LIMIT {window * most}, 1")["time"]
        if not len(first):
            break
        rows = read_log_rows(engine, "logs", f"{among} AND time >= {int(first[0])} AND ({where})", order)
        if len(rows) == most:
            return rows
    return read_log_rows(engine, "logs", f"{among} AND ({where})", order)


def _row(row: Sequence[Any]) -> LogRow:
    run, rank, attempt, kind, time, step, axis, trace_id, span_id, severity, name, body, letter, scope, *rest = row
    *seen, attr_names, attr_values, attr_types = rest
    values = attrs.restore(attr_names, attr_values, attr_types)
    trace, span = (None if id in _NONE else id for id in (trace_id, span_id))
    at, on = step_of(step), axis or None
    if kind == ALERT:
        return LogRow(run, rank, attempt, Alert(time, at, on, trace, span, severity, name, body, values, *seen))
    content = attrs.decode_value(letter, body)
    if kind == EVENT:
        return LogRow(run, rank, attempt, Event(time, at, on, trace, span, severity, name, values, content, *seen))
    return LogRow(run, rank, attempt, Log(time, at, on, trace, span, severity, content, values, scope, *seen))


class LifeEvent(Struct, frozen=True):
    """What a process recorded, and its rank and attempt."""

    rank: int
    attempt: int
    time: int
    name: str
    attrs: Attrs

    @property
    def step(self) -> int | None:
        """The step that it names."""
        return self.integer("step")

    def integer(self, name: str) -> int | None:
        """The attribute of a name, if that is an integer."""
        found = self.attrs.get(name)
        return found if type(found) is int else None

    def text(self, name: str) -> str:
        """The attribute of a name as text; empty without it."""
        return str(self.attrs.get(name, ""))


def read_life_events(engine: Engine, run: int, names: Sequence[str], limit: int) -> list[LifeEvent]:
    """Return the newest events of some names, the newest first, those of one time by rank."""
    return [event for _, event in _read_life(engine, f"run = {run} AND name IN {literal.texts(names)}", limit)]


def read_life_events_of_project(
    engine: Engine, project: str, names: Sequence[str], limit: int
) -> list[tuple[int, LifeEvent]]:
    """Return the oldest events of some names of all runs of a project, each with the number of its run, in order."""
    among = f"run IN (SELECT run FROM runs WHERE project = {literal.text(project)})"
    return _read_life(engine, f"{among} AND name IN {literal.texts(names)}", limit, "time, rank, run")


def _read_life(
    engine: Engine, condition: str, limit: int, order: str = "time DESC, rank, run"
) -> list[tuple[int, LifeEvent]]:
    columns = ("run", "rank", "attempt", "time", "name", "attr_names", "attr_values", "attr_types")
    found = engine.query(
        f"""SELECT {", ".join(columns)} FROM lifecycle WHERE {condition} ORDER BY {order} LIMIT {limit}"""
    )
    return [
        (run, LifeEvent(rank, n, time, name, attrs.restore(*rest)))
        for run, rank, n, time, name, *rest in found.rows(*columns)
    ]
