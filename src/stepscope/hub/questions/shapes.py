"""The shape of rows in JSON: times in seconds since 1970, durations in milliseconds, ids as hex."""

from typing import Any

from stepscope.hub.questions.logs import LogRow
from stepscope.hub.questions.run_table import Meant, duration, value_of
from stepscope.hub.questions.spans import SpanRow
from stepscope.hub.run_states import RunStatus
from stepscope.hub.store.run_catalog import RunRow, WriterRow
from stepscope.hub.store.series_catalog import KeyRow
from stepscope.model import names
from stepscope.model.records import Alert, Log, Span, kind
from stepscope.wire.otlp.names import ATTR_SCOPE_NAME
from stepscope.wire.plain import plain, word

STATUSES = ("unset", "ok", "error")
SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


def seconds(ns: int) -> float | None:
    """A time in seconds to the microsecond; None for none."""
    return round(ns / 1e9, 6) if ns else None


def milliseconds(ns: float | None) -> float | None:
    """A duration in milliseconds; None for what is still open."""
    return None if ns is None else round(ns / 1e6, 6)


def run(row: RunRow, status: RunStatus, meant: Meant) -> dict[str, Any]:
    """A run as the table and its page show it."""
    config = row.beginning.get("config")
    return {
        "id": row.id,
        "project": row.project,
        "name": row.name or None,
        "status": status.state,
        "importing": _importing(status),
        "step": row.step,
        "attempts": row.attempts,
        "ranks": row.ranks,
        "world_size": row.world_size,
        "hosts": row.hosts,
        "created": seconds(row.created),
        "started": seconds(row.started),
        "seen": seconds(row.seen),
        "duration": None if (lasted := duration(row)) is None else round(lasted, 6),
        "counts": row.counts,
        "config": plain(config) if isinstance(config, dict) else {},
        "tags": {name: plain(value) for name, value in row.tags.items()},
        "notes": row.notes,
        "group": row.group or None,
        "job_type": row.job_type or None,
        "archived": row.archived,
        "values": {
            name: {"key": key, "value": word(latest.value), "step": latest.step, "time": seconds(latest.time)}
            for name, keys in meant.items()
            for key, latest in value_of(row, keys)
        },
    }


def _importing(status: RunStatus) -> dict[str, int] | None:
    """How far the import of its journals is; None when none is under way or none of them is on this disk."""
    return {"bytes": status.read, "total": status.size} if status.size else None


def writer(row: WriterRow) -> dict[str, Any]:
    """A process of a run."""
    who = row.writer
    return {
        "id": who.id,
        "attempt": who.attempt,
        "rank": who.rank,
        "local_rank": who.local_rank,
        "main": who.main,
        "host": who.host,
        "pid": who.pid,
        "started": seconds(row.started),
        "seen": seconds(row.seen),
        "step": row.step,
        "counts": row.counts,
        "resource": plain(who.resource),
    }


def key(row: KeyRow) -> dict[str, Any]:
    """A metric of a run."""
    return {
        "key": row.key,
        "name": (name := names.canonical_key(row.key)),
        "category": name.partition("/")[0] if "/" in name else None,
        "type": row.type or "step",
        "unit": row.unit,
        "description": row.description,
        "axes": row.axes,
        "ranks": row.ranks,
        "attempts": row.attempts,
        "attrs": plain(row.attrs),
        "scopes": row.scopes,
        "points": row.points,
        "flags": row.flags,
        "first_step": row.first_step,
        "last_step": row.last_step,
        "first_time": seconds(row.first_time),
        "last_time": seconds(row.last_time),
        "min": row.low,
        "max": row.high,
        "last": None if row.last is None else word(row.last),
    }


def span(row: SpanRow, owner: str, begin: int | None = None) -> dict[str, Any]:
    """A span; `offset_ms` counts from `begin`, where that is given."""
    what: Span = row.span
    made = {
        "run": owner,
        "rank": row.rank,
        "attempt": row.attempt,
        "trace_id": what.trace_id.hex(),
        "span_id": what.span_id.hex(),
        "parent_id": what.parent_id.hex() if what.parent_id else None,
        "name": what.name,
        "kind": _named(SPAN_KINDS, what.span_kind),
        "status": _named(STATUSES, what.status),
        "message": what.message,
        "step": what.step,
        "axis": what.axis,
        "start": seconds(what.time),
        "duration_ms": milliseconds(what.duration),
        "scope": what.scope,
        "flags": what.flags,
        "attrs": plain(what.attrs),
        "events": [{"time": seconds(e.time), "name": e.name, "attrs": plain(e.attrs)} for e in what.events],
        "links": [
            {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex(), "attrs": plain(link.attrs)}
            for link in what.links
        ],
    }
    if begin is not None:
        made["offset_ms"] = milliseconds(what.time - begin)
    return made


def _named(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else str(number)


def record(row: LogRow, owner: str) -> dict[str, Any]:
    """A log, event or alert."""
    what = row.record
    return {
        "kind": kind(what),
        "run": owner,
        "rank": row.rank,
        "attempt": row.attempt,
        "time": seconds(what.time),
        "step": what.step,
        "axis": what.axis,
        "trace_id": what.trace_id.hex() if what.trace_id else None,
        "span_id": what.span_id.hex() if what.span_id else None,
        "severity": names.severity_word(what.severity),
        "severity_number": what.severity,
        "name": None if isinstance(what, Log) else what.name,
        "body": what.message if isinstance(what, Alert) else plain(what.body),
        "scope": what.scope if isinstance(what, Log) else str(what.attrs.get(ATTR_SCOPE_NAME, "")),
        "observed": seconds(what.observed),
        "flags": what.flags,
        "attrs": plain(what.attrs),
    }
