"""A whole run in few numbers, to be judged: courses of metrics, paces of spans, the longest steps, failures."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from stepscope.hub.questions.logs import LogQuery, LogRow, find_logs
from stepscope.hub.questions.spans import SpanQuery, SpanRow, find_spans
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.series_catalog import Line, read_lines, span_of
from stepscope.hub.store.tables import NO_STEP
from stepscope.journal.key_summary import importance
from stepscope.model import names

MOST_SERIES = 512
MOST_STRETCHES = 40_000
"""Of all series together."""
LONGEST = 4096
"""Stretches in which the longest step is looked for."""
PACES = 24
"""Stretches in which spans are compared between ranks."""
MOST_NAMES = 100
MOST_FAILURES = 100


class StretchRow(Struct, frozen=True, gc=False):
    """Some steps of one series."""

    first: int
    low: float
    low_step: int
    high: float
    high_step: int
    good: int
    bad: int
    bad_step: int
    flags: int
    last_bad_step: int


class PaceRow(Struct, frozen=True, gc=False):
    """The spans of one name on one rank in some steps; durations in ns."""

    name: str
    rank: int
    stretch: int
    first: int
    last: int
    count: int
    median: float


class LongStep(Struct, frozen=True, gc=False):
    """The longest step of some, by its root span on the slowest rank."""

    step: int
    attempt: int
    duration: int


@dataclass(frozen=True, slots=True)
class _Range:
    low: int
    high: int

    def width(self, parts: int) -> int:
        """How many steps a part has when there are about so many."""
        return max(-(-(self.high - self.low + 1) // max(parts, 1)), 1)

    def part(self, parts: int) -> str:
        return f"intDiv(step - ({self.low}), {self.width(parts)})"


def read_courses(engine: Engine, run: int) -> list[tuple[Line, list[StretchRow]]]:
    """The metrics of a run that have steps, those that say most first where there are too many to look at."""
    lines = [line for line in read_lines(engine, run).values() if not line.key.startswith(("system/", "stepscope/"))]
    chosen = sorted(lines, key=lambda line: (importance(line.key), line.key, line.rank))[:MOST_SERIES]
    if not chosen:
        return []
    among = f"series IN {literal.integers(line.series for line in chosen)} AND step > {NO_STEP}"
    extent = _range(engine, f"metrics WHERE {among}")
    if extent is None:
        return []
    finite = "isFinite(value)"
    found = engine.query(
        f"""SELECT series, {extent.part(MOST_STRETCHES // len(chosen))} AS part, min(step) AS first,
            minIf(value, {finite}) AS low, argMinIf(step, value, {finite}) AS low_step,
            maxIf(value, {finite}) AS high, argMaxIf(step, value, {finite}) AS high_step,
            countIf({finite}) AS good, countIf(NOT {finite}) AS bad, minIf(step, NOT {finite}) AS bad_step,
            groupBitOr(toUInt8(if({finite}, 0, if(isNaN(value), 1, if(value > 0, 2, 4))))) AS flags,
            maxIf(step, NOT {finite}) AS last_bad_step
        FROM metrics WHERE {among} GROUP BY series, part ORDER BY series, part"""
    )
    rows: dict[int, list[StretchRow]] = {}
    for series, _, *rest in found.rows():
        rows.setdefault(series, []).append(StretchRow(*rest))
    return [(line, rows[line.series]) for line in chosen if line.series in rows]


def _range(engine: Engine, where: str) -> _Range | None:
    found = engine.query(f"SELECT count() AS n, min(step) AS low, max(step) AS high FROM {where}")
    ((count, low, high),) = found.rows("n", "low", "high")
    return _Range(low, high) if count else None


def read_paces(engine: Engine, run: int) -> list[PaceRow]:
    """How long spans took on each rank, in a few stretches of the run."""
    mine = f"spans WHERE run = {run} AND step > {NO_STEP}"
    extent = _range(engine, mine)
    if extent is None:
        return []
    often = engine.query(f"SELECT name FROM {mine} GROUP BY name ORDER BY sum(duration) DESC, name LIMIT {MOST_NAMES}")
    found = engine.query(
        f"""SELECT name, rank, toInt64({extent.part(PACES)}) AS part, min(step) AS first, max(step) AS last,
            count() AS n, quantileExact(0.5)(duration) AS middle
        FROM {mine} AND name IN {literal.texts(often["name"])} GROUP BY name, rank, part ORDER BY name, rank, part"""
    )
    return [PaceRow(*row) for row in found.rows()]


def read_longest(engine: Engine, run: int) -> list[LongStep]:
    """The longest step of each stretch of a run, by the root span that takes most of its time."""
    mine = f"spans WHERE run = {run} AND step > {NO_STEP} AND parent_id = {literal.fixed(bytes(8))}"
    roots = engine.query(f"SELECT name FROM {mine} GROUP BY name ORDER BY sum(duration) DESC, name LIMIT 1")["name"]
    extent = _range(engine, mine) if roots else None
    if extent is None:
        return []
    found = engine.query(
        f"""SELECT {extent.part(LONGEST)} AS part, argMax(step, duration) AS longest, argMax(attempt, duration) AS a,
            max(duration) AS took
        FROM {mine} AND name = {literal.text(roots[0])} GROUP BY part ORDER BY part"""
    )
    return [LongStep(step, attempt, took) for _, step, attempt, took in found.rows()]


def first_steps(engine: Engine, run: int) -> dict[int, int]:
    """The first step of each attempt."""
    found = engine.query(
        f"""SELECT attempt, min(step) AS first FROM metrics
        WHERE {span_of(run)} AND step > {NO_STEP} GROUP BY attempt ORDER BY attempt"""
    )
    return dict(found.rows("attempt", "first"))


def read_failures(engine: Engine, run: int) -> tuple[Sequence[LogRow], Sequence[SpanRow]]:
    """The first exceptions of a run, and its last failed spans."""
    thrown = LogQuery(run=run, name=names.EVENT_EXCEPTION, oldest=True, limit=MOST_FAILURES)
    return find_logs(engine, thrown), find_spans(engine, SpanQuery(run=run, status=2, limit=MOST_FAILURES))
