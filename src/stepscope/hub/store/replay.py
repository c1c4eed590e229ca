"""A stored run as records again, in the order in which they were written, slice by slice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from stepscope.diagnosis.order import OPEN_NS, Written
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.log_rows import LogRow, read_log_rows
from stepscope.hub.store.run_catalog import step_of
from stepscope.hub.store.series_catalog import SeriesRow, find_series, span_of
from stepscope.hub.store.write.ledger import COUNTS, Ranges
from stepscope.model import names
from stepscope.model.records import EVENT, LOG, Metric, Span

SLICE = 100_000
"""About so many records are read at once."""
_SKEW_NS = 60 * 10**9
"""Clocks of machines that differ by more than this are not corrected."""
_ENDS = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Extent:
    """What is stored of a run: up to which commit, which batches of which writer, and about how many records."""

    commit: int
    batches: Mapping[int, Ranges]
    records: int


def extent_of(engine: Engine, run: int) -> Extent:
    """Look up what is stored of a run."""
    found = engine.query(f"SELECT writer, first, last, commit, {', '.join(COUNTS)} FROM ledger WHERE run = {run}")
    ranges: dict[int, list[tuple[int, int]]] = {}
    counts: dict[int, tuple[int, int]] = {}
    newest = 0
    for writer, first, last, commit, *amounts in found.rows("writer", "first", "last", "commit", *COUNTS):
        ranges.setdefault(writer, []).append((first, last))
        counts[writer] = max(counts.get(writer, (0, 0)), (commit, sum(amounts)))
        newest = max(newest, commit)
    return Extent(
        newest, {writer: Ranges(each) for writer, each in ranges.items()}, sum(count for _, count in counts.values())
    )


def replay(engine: Engine, run: int, extent: Extent, since: int = 0) -> Iterator[tuple[float, list[Written]]]:
    """Yield the records of a run that came after one commit and up to another, and the share that is read with them.

    Distributions and counters of instruments are left out, and so are log lines below WARN.
    """
    known = f"commit > {since} AND commit <= {extent.commit}" if since else f"commit <= {extent.commit}"
    lines = {number: line for number, line in find_series(engine, run).items() if line.type in ("", "gauge")}
    ranks = _ranks(engine, run)
    bounds = _bounds(engine, run, max(extent.records // SLICE, 1) if not since else 1)
    for at, (start, end) in enumerate(pairwise(bounds), 1):
        made = _slice(engine, run, lines, known, start, end)
        made.sort(key=lambda each: (each.attempt, each.at + ranks.late.get((each.attempt, each.rank), 0)))
        yield (
            at / (len(bounds) - 1),
            [each._replace(host=ranks.hosts.get((each.attempt, each.rank), "")) for each in made],
        )


def _bounds(engine: Engine, run: int, slices: int) -> list[int]:
    """Times that cut a run into slices with about as many points each."""
    inner: list[int] = []
    if slices > 1:
        levels = ", ".join(f"{at / slices:.6f}" for at in range(1, slices))
        found = engine.query(f"SELECT quantiles({levels})(time) AS cuts FROM metrics WHERE {span_of(run)}")
        inner = sorted({int(cut) for cut in found.one("cuts")})
    return [_ENDS[0], *inner, _ENDS[1]]


class _Ranks(NamedTuple):
    """What is known of the ranks of a run, by attempt and rank."""

    hosts: dict[tuple[int, int], str]
    late: dict[tuple[int, int], int]
    """How far each clock is behind that of the hub, as far as the last batch tells; empty when that says little."""


def _ranks(engine: Engine, run: int) -> _Ranks:
    late, writers = engine.query_many(
        [
            f"SELECT writer, argMax(received - seen, commit) AS late FROM ledger WHERE run = {run} GROUP BY writer",
            f"SELECT writer, attempt, rank, host FROM writers WHERE run = {run} AND main = 1 LIMIT 1 BY writer",
        ]
    )
    behind = dict(late.rows("writer", "late"))
    known = list(writers.rows("writer", "attempt", "rank", "host"))
    clocks = {(attempt, rank): behind.get(writer, 0) for writer, attempt, rank, _ in known}
    usable = all(abs(ns) < _SKEW_NS for ns in clocks.values())
    return _Ranks({(attempt, rank): host for _, attempt, rank, host in known}, clocks if usable else {})


def _slice(engine: Engine, run: int, lines: Mapping[int, SeriesRow], known: str, start: int, end: int) -> list[Written]:
    own = f"run = {run} AND {known}"
    between = f"time >= {start} AND time < {end}"
    return [
        *_points(engine, lines, f"{span_of(run)} AND {known} AND {between}"),
        *_spans(engine, "spans", f"{own} AND time + duration >= {start} AND time + duration < {end}"),
        *_spans(engine, "open_spans", f"{own} AND time + {OPEN_NS} >= {start} AND time + {OPEN_NS} < {end}"),
        *_lines(engine, own, between),
    ]


def _points(engine: Engine, lines: Mapping[int, SeriesRow], where: str) -> Iterator[Written]:
    """The values that were logged together as one record each."""
    found = engine.query(f"SELECT series, step, time, attempt, value FROM metrics WHERE {where} ORDER BY time, series")
    gathered: dict[tuple[int, int, int, int, str], dict[str, float]] = {}
    for series, step, time, attempt, value in found.rows("series", "step", "time", "attempt", "value"):
        line = lines.get(series)
        if line is None or (line.type and line.attrs):
            continue
        gathered.setdefault((time, line.rank, attempt, step, line.axis), {})[line.key] = value
    for (time, rank, attempt, step, axis), values in gathered.items():
        yield Written(time, rank, attempt, "", Metric(time, step_of(step), axis or None, None, dict(values)))


def _spans(engine: Engine, table: str, where: str) -> Iterator[Written]:
    columns = ("rank", "attempt", "time", "duration", "step", "trace_id", "span_id", "parent_id", "name")
    found = engine.query(f"SELECT {', '.join(columns)}, status, message FROM {table} WHERE {where}")
    for rank, attempt, time, took, step, trace, span, parent, name, status, message in found.rows(
        *columns, "status", "message"
    ):
        duration = took if table == "spans" else None
        at = time + (OPEN_NS if duration is None else duration)
        above = None if parent == bytes(8) else parent
        yield Written(
            *(at, rank, attempt, ""),
            Span(time, duration, step_of(step), None, trace, span, above, name, 0, status, message),
        )


def _lines(engine: Engine, own: str, between: str) -> Iterator[Written]:
    told = f"(kind = {LOG} AND severity >= {names.SEVERITIES['WARN']} OR kind = {EVENT} AND name IN {_EVENTS})"
    found: Sequence[LogRow] = [
        *read_log_rows(engine, "logs", f"{own} AND {between} AND {told}"),
        *read_log_rows(engine, "alerts", f"{own} AND {between}"),
    ]
    for row in found:
        yield Written(row.record.time, row.rank, row.attempt, "", row.record)


_EVENTS = f"('{names.EVENT_STARTED}', '{names.EVENT_FINISHED}', '{names.EVENT_EXCEPTION}')"
