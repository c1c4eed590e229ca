"""The descriptions of traces in the tracking database: set, find, tag, link, delete. Their spans are in the store."""

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, structs

from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import MISSING, refused
from stepscope.dialects.mlflow.receiver.tracking_rows import TRACE_METADATA, TRACE_TAGS, find_row

LONGEST_TAG, MAX_PAIRS = 8000, 1000
"""Characters of a tag or of metadata, and how many of them a trace may have."""
STATES = ("STATE_UNSPECIFIED", "OK", "ERROR", "IN_PROGRESS")
_DURATION = re.compile(r"(-?\d{1,12})(?:\.(\d{1,9}))?s")
_TABLES = ("trace_tags", "trace_metadata", "trace_runs")


class MlflowTrace(Struct, frozen=True):
    """A row of the table traces: what a search compares, and the rest of the description as JSON."""

    trace_id: str
    experiment: int
    project: str
    run_id: str
    timestamp: int
    duration: int | None
    status: str
    client_id: str | None
    info: str


def milliseconds_of(text: Any) -> int | None:
    """Return the milliseconds of a duration such as `1.5s`; None for anything else."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")[:3])


def moment_of(text: Any) -> int | None:
    """Return the milliseconds since 1970 of a time such as `2026-01-02T03:04:05.678Z`; None for anything else."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        found = datetime.fromisoformat(text)
        exact = found if found.tzinfo else found.replace(tzinfo=UTC)
        return max(round(exact.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


def set_trace(db: sqlite3.Connection, trace: MlflowTrace, tags: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Keep the description of a trace; one that is sent again replaces it, and adds its tags."""
    places = ", ".join("?" for _ in MlflowTrace.__struct_fields__)
    db.execute(f"INSERT OR REPLACE INTO traces VALUES ({places})", structs.astuple(trace))
    TRACE_TAGS.put(db, tags, trace.trace_id)
    TRACE_METADATA.put(db, metadata, trace.trace_id)


def find_trace(db: sqlite3.Connection, trace_id: str, project: str | None) -> MlflowTrace:
    """Return a trace visible to the token's project."""
    found = find_traces(db, [trace_id], project)
    if not found:
        raise refused(f"Trace with ID '{trace_id}' not found.", MISSING)
    return found[0]


def find_traces(db: sqlite3.Connection, ids: Sequence[str], project: str | None) -> list[MlflowTrace]:
    """Return those of some traces that exist and are visible, in this order."""
    found = (find_row(db, MlflowTrace, "traces", trace_id=each) for each in dict.fromkeys(ids))
    return [trace for trace in found if trace is not None and project in (None, trace.project)]


def delete_traces(db: sqlite3.Connection, condition: sql.Part) -> int:
    """Delete the descriptions of traces, and return how many there were."""
    where, values = condition
    chosen = f"SELECT trace_id FROM traces WHERE {where}"
    for table in _TABLES:
        db.execute(f"DELETE FROM {table} WHERE trace IN ({chosen})", values)
    return db.execute(f"DELETE FROM traces WHERE trace_id IN ({chosen})", values).rowcount


def link_run(db: sqlite3.Connection, ids: Iterable[str], run_id: str) -> None:
    """Link traces to a run, in which a search finds them too."""
    db.executemany("INSERT OR IGNORE INTO trace_runs VALUES (?, ?)", [(each, run_id) for each in ids])


def describe_trace(db: sqlite3.Connection, trace: MlflowTrace) -> dict[str, Any]:
    """Return TraceInfo in MLflow's JSON."""
    info: dict[str, Any] = json.loads(trace.info)
    pairs = {"tags": TRACE_TAGS.read(db, trace.trace_id), "trace_metadata": TRACE_METADATA.read(db, trace.trace_id)}
    return info | {name: found for name, found in pairs.items() if found}
