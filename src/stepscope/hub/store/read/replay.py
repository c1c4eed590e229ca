"""Reads a stored run as records again, in the order in which they were written, slice by slice."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from stepscope.diagnosis.record_order import OPEN_NS, Written
from stepscope.hub.store import literal
from stepscope.hub.store.columns import Ints
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LogRow, read_log_rows
from stepscope.hub.store.read.run_catalog import SeriesRow, find_series, span_of, step_of
from stepscope.hub.store.read.sample_rows import every_sample
from stepscope.hub.store.write.ledger import COUNTS, Ranges
from stepscope.model import names
from stepscope.model.records import EVENT, LOG, Attrs, Metric, Span, Value

SLICE = 100_000
"""About how many records are read at once."""
_SKEW_NS = 60 * 10**9
"""Clocks of machines that differ by more than this are not corrected."""
_ENDS = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Extent:
    """What is stored of a run: the last commit, the batches of each writer, and about how many records."""

    commit: int
    batches: Mapping[int, Ranges]
    records: int


def extent_of(engine: Engine, run: int) -> Extent:
    """Return what is stored of a run."""
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


def replay(engine: Engine, run: int, extent: Extent, since: int = 0) -> Iterator[tuple[float, Iterator[Written]]]:
    """Yield the records of a run that came after one commit and up to another, and the share that is read with them.

    They are made one by one as they are taken. Distributions and counters of instruments are left out, and so are log
    lines below WARN.
    """
    known = f"commit > {since} AND commit <= {extent.commit}" if since else f"commit <= {extent.commit}"
    lines = {number: line for number, line in find_series(engine, run).items() if _is_watched(line)}
    ranks = _ranks(engine, run)
    bounds = _bounds(engine, run, max(extent.records // SLICE, 1) if not since else 1)
    for at, (start, end) in enumerate(pairwise(bounds), 1):
        yield at / (len(bounds) - 1), _slice(engine, run, lines, ranks, known, start, end)


def _is_watched(line: SeriesRow) -> bool:
    return not line.type or (line.type == "gauge" and not line.attrs)


def _bounds(engine: Engine, run: int, slices: int) -> list[int]:
    """Times that divide a run into slices of about equally many points."""
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
    """How far each clock is behind the hub's, estimated from the last batch; empty when unknown."""

    def order(self, attempts: Ints, ranks: Ints, at: Ints, *then: Ints) -> Ints:
        """The row numbers of records in the order in which they were written, by the clock of the hub."""
        if self.late:
            pairs, which = np.unique((attempts << 32) | ranks, return_inverse=True)
            late = [self.late.get((pair >> 32, pair & 0xFFFFFFFF), 0) for pair in pairs.tolist()]
            at = at + np.array(late, dtype=np.int64)[which]
        return np.lexsort((*then, at, attempts))

    def place(self, each: Written) -> tuple[int, int, int]:
        """The place of a record in that order; of records of one time, those of the lowest rank come first."""
        return each.attempt, each.at + self.late.get((each.attempt, each.rank), 0), each.rank


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


def _slice(
    engine: Engine, run: int, lines: Mapping[int, SeriesRow], ranks: _Ranks, known: str, start: int, end: int
) -> Iterator[Written]:
    run_rows = f"run = {run} AND {known}"
    between = f"time >= {start} AND time < {end}"
    read = (
        _spans(engine, "spans", ranks, f"{run_rows} AND time + duration >= {start} AND time + duration < {end}"),
        _spans(engine, "open_spans", ranks, f"{run_rows} AND time + {OPEN_NS} >= {start} AND time + {OPEN_NS} < {end}"),
        _points(engine, lines, ranks, f"{span_of(run)} AND {known} AND {between}"),
        _lines(engine, ranks, run_rows, between),
        _samples(engine, ranks, f"{run_rows} AND {between}"),
    )
    parts = [part for part in read if part is not None]
    return parts[0] if len(parts) == 1 else heapq.merge(*parts, key=ranks.place)


def _points(engine: Engine, lines: Mapping[int, SeriesRow], ranks: _Ranks, where: str) -> Iterator[Written] | None:
    """Points as records: values that were logged together are one record."""
    found = engine.query(f"SELECT series, step, time, attempt, value FROM metrics WHERE {where}")
    numbers, which = np.unique(found.array("series", "u8"), return_inverse=True)
    watched = np.array([number in lines for number in numbers.tolist()], dtype=bool)[which]
    if not watched.any():
        return None
    which = which[watched]
    run_rows = [lines.get(number) for number in numbers.tolist()]
    axes = list(dict.fromkeys(line.axis for line in run_rows if line is not None))
    rank = np.array([0 if line is None else line.rank for line in run_rows], dtype=np.int64)[which]
    axis = np.array([0 if line is None else axes.index(line.axis) for line in run_rows], dtype=np.int64)[which]
    step, time, attempt = (found.array(name)[watched].astype(np.int64) for name in ("step", "time", "attempt"))
    order = ranks.order(attempt, rank, time, which, step, axis, rank)
    together = np.stack([column[order] for column in (time, rank, attempt, step, axis)])
    firsts = np.flatnonzero(np.any(together[:, 1:] != together[:, :-1], axis=0)) + 1
    begins = [0, *firsts.tolist(), len(order)]
    keys = [run_rows[at].key for at in which[order].tolist()]
    values = found.array("value")[watched][order].tolist()
    heads = together[:, begins[:-1]].T.tolist()
    return _metrics(heads, begins, keys, values, axes, ranks.hosts)


def _metrics(
    heads: list[list[int]],
    begins: list[int],
    keys: list[str],
    values: list[float],
    axes: list[str],
    hosts: Mapping[tuple[int, int], str],
) -> Iterator[Written]:
    for (time, rank, attempt, step, axis), (first, last) in zip(heads, pairwise(begins), strict=True):
        together: dict[str, Value] = dict(zip(keys[first:last], values[first:last], strict=True))
        metric = Metric(time, step_of(step), axes[axis] or None, None, together)
        yield Written(time, rank, attempt, hosts.get((attempt, rank), ""), metric)


def _spans(engine: Engine, table: str, ranks: _Ranks, where: str) -> Iterator[Written] | None:
    columns = ("rank", "attempt", "time", "duration", "step", "trace_id", "span_id", "parent_id", "name")
    sampled = f"has(attr_names, {literal.text(names.ATTR_SAMPLED)}) AS sampled"
    found = engine.query(f"SELECT {', '.join(columns)}, status, message, {sampled} FROM {table} WHERE {where}")
    if not len(found):
        return None
    is_open = table == "open_spans"
    rank, attempt, time, took = (found.array(name).astype(np.int64) for name in columns[:4])
    ids = np.frombuffer(b"".join(found["span_id"]), ">u8").astype(np.int64)
    rows = list(found.rows(*columns, "status", "message", "sampled"))
    outer = np.array([row[7] == bytes(8) for row in rows], dtype=np.int64)
    # of spans that end in the same nanosecond the inner ones were written first: those that began later, the root last
    order = ranks.order(attempt, rank, time + (OPEN_NS if is_open else took), ids, outer, -time, rank).tolist()
    return (_span(rows[at], is_open, ranks.hosts) for at in order)


def _span(row: tuple[Any, ...], is_open: bool, hosts: Mapping[tuple[int, int], str]) -> Written:
    rank, attempt, time, took, step, trace, span, parent, name, status, message, sampled = row
    duration = None if is_open else took
    at = time + (OPEN_NS if is_open else took)
    above = None if parent == bytes(8) else parent
    attrs: Attrs = {names.ATTR_SAMPLED: 1} if sampled else {}  # whether it is there is what counts
    made = Span(time, duration, step_of(step), None, trace, span, above, name, 0, status, message, attrs)
    return Written(at, rank, attempt, hosts.get((attempt, rank), ""), made)


def _lines(engine: Engine, ranks: _Ranks, run_rows: str, between: str) -> Iterator[Written] | None:
    relevant = f"(kind = {LOG} AND severity >= {names.SEVERITIES['WARN']} OR kind = {EVENT} AND name IN {_EVENTS})"
    found: Sequence[LogRow] = [
        *read_log_rows(engine, "logs", f"{run_rows} AND {between} AND {relevant}"),
        *read_log_rows(engine, "alerts", f"{run_rows} AND {between}"),
    ]
    made = [
        Written(row.record.time, row.rank, row.attempt, ranks.hosts.get((row.attempt, row.rank), ""), row.record)
        for row in found
    ]
    return iter(sorted(made, key=lambda each: (*ranks.place(each), each.rank))) if made else None


def _samples(engine: Engine, ranks: _Ranks, where: str) -> Iterator[Written] | None:
    """Rows of tables of samples, read page by page: their texts are long."""
    if not engine.query(f"SELECT count() AS found FROM samples WHERE {where}").one("found"):
        return None
    return (
        Written(log.time, rank, attempt, ranks.hosts.get((attempt, rank), ""), log)
        for page in every_sample(engine, where)
        for rank, attempt, log in page
    )


_EVENTS = (
    names.EVENT_STARTED,
    names.EVENT_CONFIG,
    names.EVENT_FINISHED,
    names.EVENT_EXCEPTION,
    names.EVENT_EXITED,
    names.EVENT_POSITION,
    names.EVENT_PARAMETERS,
)
"""The events that are diagnosed."""
