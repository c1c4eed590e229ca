"""The endpoint of findings: what went wrong in a run, judged by all that is stored of it."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stepscope.hub.questions import courses
from stepscope.hub.questions import finding_rules as findings
from stepscope.hub.questions.alarm_rows import read_alarms
from stepscope.hub.questions.blame import work
from stepscope.hub.questions.courses import LongStep, PaceRow
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.evidence import (
    KINDS,
    Alarm,
    Course,
    Evidence,
    Failure,
    Pace,
    Process,
    SlowStep,
    Stretch,
    told,
)
from stepscope.hub.questions.schemas import INTEGER, NUMBER, STEP, TEXT, many, maybe, thing
from stepscope.hub.questions.slowness import slow_steps
from stepscope.hub.questions.spans import SpanQuery, find_spans
from stepscope.hub.run_states import RunStates
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import RunRow, read_writers

MOST_SLOW = 12
"""So many slow steps are looked into; the worst of them become findings."""
MOST_SPANS = 10_000


def answer(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/findings`."""
    row = reader.run(given["run"])
    found = findings.find(evidence(reader.engine, row, reader.states))
    return {"run": given["run"], "findings": [findings.as_json(each) for each in found]}


def evidence(engine: Engine, row: RunRow, states: RunStates) -> Evidence:
    """Gather what a run is judged by."""
    run = row.number
    paces = courses.read_paces(engine, run)
    begun = courses.first_steps(engine, run)
    return Evidence(
        courses=[
            Course(line.key, line.rank, [Stretch(*_fields(each)) for each in stretches])
            for line, stretches in courses.read_courses(engine, run)
        ],
        paces=_paces(paces),
        slow=_slow(engine, run, courses.read_longest(engine, run), _usual(paces), frozenset(begun.values())),
        processes=_processes(engine, row, states),
        first_steps=begun,
        failures=_failures(engine, run),
        alarms=[Alarm(*each) for each in read_alarms(engine, run)],
        state=states.state(row),
        kl_target=findings.kl_target(row.beginning.get("config")),
    )


def _fields(row: courses.StretchRow) -> tuple[Any, ...]:
    extremes = (row.low, row.low_step, row.high, row.high_step)
    return (row.first, *extremes, row.good, row.bad, row.bad_step, row.flags, row.last_bad_step)


def _paces(rows: Sequence[PaceRow]) -> list[Pace]:
    """Paces whose stretches begin and end at the same steps on all ranks."""
    firsts: dict[int, int] = {}
    lasts: dict[int, int] = {}
    for row in rows:
        firsts[row.stretch] = min(row.first, firsts.get(row.stretch, row.first))
        lasts[row.stretch] = max(row.last, lasts.get(row.stretch, row.last))
    return [Pace(row.name, row.rank, firsts[row.stretch], lasts[row.stretch], row.count, row.median) for row in rows]


def _usual(rows: Sequence[PaceRow]) -> dict[str, float]:
    """The usual duration of each span name: the median of its medians, each as heavy as it has spans."""
    by_name: dict[str, list[float]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).extend([row.median] * min(row.count, 100))
    return {name: median(values) for name, values in by_name.items()}


def _slow(
    engine: Engine, run: int, longest: Sequence[LongStep], usual: Mapping[str, float], warm_up: frozenset[int]
) -> list[SlowStep]:
    steps = {each.step: each for each in longest}
    chosen = slow_steps([(each.step, float(each.duration)) for each in longest], warm_up)[:MOST_SLOW]
    return [_explained(engine, run, steps[step], middle, usual) for step, middle in chosen]


def _explained(engine: Engine, run: int, long: LongStep, middle: float, usual: Mapping[str, float]) -> SlowStep:
    rows = find_spans(engine, SpanQuery(run=run, step=long.step, limit=MOST_SPANS))
    mine = [row for row in rows if row.attempt == long.attempt]
    return SlowStep(long.step, long.attempt, float(long.duration), middle, work(mine, usual))


def _processes(engine: Engine, row: RunRow, states: RunStates) -> list[Process]:
    said = {(end.attempt, end.rank): end.status for end in row.endings}
    found = [(each.writer, each.step) for each in read_writers(engine, row.number)]
    deciding = [(who, step) for who, step in found if who.main and row.beginning]
    unread = states.unread(row.id, [who.id for who, _ in deciding])
    return [
        Process(who.attempt, who.rank, step, said.get((who.attempt, who.rank)), who.id in unread)
        for who, step in deciding
    ]


def _failures(engine: Engine, run: int) -> list[Failure]:
    thrown, failed = courses.read_failures(engine, run)
    made = [(row.attempt, row.rank, row.record) for row in thrown]
    exceptions = [Failure(each.time, attempt, rank, each.step, told(each.attrs)) for attempt, rank, each in made]
    ended = [(row.attempt, row.rank, row.span) for row in failed]
    return exceptions + [
        Failure(span.time, attempt, rank, span.step, span.message or "error", span.name)
        for attempt, rank, span in ended
    ]


_FINDING = thing(
    kind={"type": "string", "enum": list(KINDS)}, severity={"type": "string", "enum": ["WARN", "ERROR", "FATAL"]},
    text=TEXT, step=STEP, first_step=STEP, last_step=STEP, rank=maybe(INTEGER), ranks=many(INTEGER), key=maybe(TEXT),
    also=many(TEXT), span=maybe(TEXT), attempt=maybe(INTEGER), value=maybe(NUMBER), usual=maybe(NUMBER),
)  # fmt: skip

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/findings",
        "listFindings",
        "What went wrong in a run: crashes, NaN and infinities, spikes, KL over its band, slow steps, stragglers, "
        "and alerts that it raised itself.",
        answer,
        thing(run=TEXT, findings=many(_FINDING)),
        (RUN,),
    ),
)
