"""Time that was lost: steps that took long with the span to blame, and ranks that are slower than the others."""

import re
from collections.abc import Sequence
from statistics import median, median_low

from stepscope.hub.questions.evidence import Finding, Pace, SlowStep, Work, in_steps
from stepscope.model.formatting import duration

SLOW_TIMES = 2.0
"""A slow step takes so many times the usual..."""
SLOW_SIGMAS = 8.0
"""... is so many robust standard deviations away from it..."""
SLOW_NS = 20e6
"""... and takes so much longer."""
MOST_SLOW = 5
STRAGGLER_TIMES = 1.4
"""A straggler takes so many times what the others take for the same span, in the median..."""
STRAGGLER_SHARE = 0.05
"""... and the difference is so much of a step."""
STRAGGLER_STRETCHES = 3
LEAST_SPANS = 5
_WAITING = re.compile(r"wait|barrier|all_?reduce|all_?gather|reduce_?scatter|broadcast|collective|sync")
"""Spans in which ranks wait for each other: who is long in them is not who is late."""


def slow_steps(
    durations: Sequence[tuple[int, float]], warm_up: frozenset[int] = frozenset()
) -> list[tuple[int, float]]:
    """Choose the steps that took unusually long, the longest first, and say how long is usual.

    The first steps of an attempt, in `warm_up`, are never chosen: everything is cold in them.
    """
    if len(durations) < LEAST_SPANS:
        return []
    usual = median(ns for _, ns in durations)
    spread = 1.4826 * median(abs(ns - usual) for _, ns in durations)
    least = max(SLOW_TIMES * usual, usual + SLOW_SIGMAS * spread, usual + SLOW_NS)
    found = [(step, usual) for step, ns in sorted(durations, key=lambda each: -each[1]) if ns >= least]
    return [each for each in found if each[0] not in warm_up]


def slow_findings(steps: Sequence[SlowStep]) -> list[Finding]:
    """Name the span and rank to blame for each slow step.

    A step that is long because it holds a span that is always long (a checkpoint, an evaluation) is none.
    """
    found = [finding for step in steps if (finding := blamed(step)) is not None]
    return found[:MOST_SLOW]


def blamed(slow: SlowStep) -> Finding | None:
    """Name the span and rank that lost most of the time of a slow step; None when none did.

    What a span took is its own time, without its children: the sentence says so, as tables beside it show whole spans.
    """
    ranks = sorted({work.rank for work in slow.work})
    least = 0.4 * (slow.duration - slow.usual)
    found = _one_of_many(slow.work, least) or _all_alike(slow.work, least)
    if found is None:
        return None
    work, rank = found
    where = "" if len(ranks) == 1 else f" on rank {rank}" if rank is not None else " on every rank"
    text = (
        f"step {slow.step} took {duration(slow.duration / 1e9)} (usually {duration(slow.usual / 1e9)}): "
        f"{work.name}{where} had {duration(work.own / 1e9)} self time (usually {duration(work.usual / 1e9)})"
    )
    return Finding(
        "slow_step", "WARN", text, slow.step, slow.step, slow.step, rank, (rank,) if rank is not None else tuple(ranks),
        span=work.name, attempt=slow.attempt, value=slow.duration / 1e6, usual=slow.usual / 1e6,
        weight=slow.duration / max(slow.usual, 1.0),
    )  # fmt: skip


def _by_name(works: Sequence[Work]) -> dict[str, list[Work]]:
    made: dict[str, list[Work]] = {}
    for work in works:
        made.setdefault(work.name, []).append(work)
    return made


def _one_of_many(works: Sequence[Work], least: float) -> tuple[Work, int] | None:
    """The work of one rank that took longer than usual and than on the others, by so much at least.

    Most spans that are long wait for another rank: all ranks but the culprit have them long, so their (lower) median
    is long. The culprit's own span is long on that rank only.
    """
    best: tuple[Work, int] | None = None
    for name, group in _by_name(works).items():
        if len(group) > 1 and not _WAITING.search(name.lower()):
            typical = median_low(work.own for work in group)
            work = max(group, key=lambda each: each.own)
            lost = work.own - max(work.usual, typical)
            if lost >= least:
                best, least = (work, work.rank), lost
    return best


def _all_alike(works: Sequence[Work], least: float) -> tuple[Work, int | None] | None:
    """The work that took longer than usual on every rank that had it, by so much at least; its rank when it is one."""
    best: tuple[Work, int | None] | None = None
    for group in _by_name(works).values():
        lost = min(work.own - work.usual for work in group)
        if lost >= least:
            best, least = (max(group, key=lambda each: each.own), group[0].rank if len(group) == 1 else None), lost
    return best


def stragglers(paces: Sequence[Pace], step_ns: float) -> list[Finding]:
    """Find ranks on which a span takes longer than on the others, stretch after stretch."""
    ranks = {pace.rank for pace in paces}
    if len(ranks) < 2:
        return []
    found = []
    for name in dict.fromkeys(pace.name for pace in paces if not _WAITING.search(pace.name.lower())):
        mine = [pace for pace in paces if pace.name == name and pace.count >= LEAST_SPANS]
        stretches: dict[int, list[Pace]] = {}
        for pace in mine:
            stretches.setdefault(pace.first, []).append(pace)
        for rank in sorted(ranks):
            found += _slower(name, rank, [stretches[first] for first in sorted(stretches)], step_ns)
    return [_innermost([each for each in found if each.rank == rank]) for rank in {each.rank for each in found}]


def _innermost(found: Sequence[Finding]) -> Finding:
    """The one to name of a rank: a span is as late as the one inside it, so the shortest of the worst."""
    worst = max(each.weight for each in found)
    return min((each for each in found if each.weight >= 0.6 * worst), key=lambda each: each.value or 0.0)


def _slower(name: str, rank: int, stretches: Sequence[list[Pace]], step_ns: float) -> list[Finding]:
    """The longest row of stretches in which a rank was slower than the others."""
    best: list[tuple[Pace, float]] = []
    row: list[tuple[Pace, float]] = []
    for stretch in stretches:
        own = next((pace for pace in stretch if pace.rank == rank), None)
        others = [pace.median for pace in stretch if pace.rank != rank]
        usual = max(others, default=0.0)
        slower = own is not None and others and own.median >= STRAGGLER_TIMES * usual
        if own is not None and slower and own.median - usual >= STRAGGLER_SHARE * step_ns:
            row.append((own, median(others)))
            best = max(best, row, key=len)
        else:
            row = []
    if len(best) < min(STRAGGLER_STRETCHES, max(len(stretches), 1)):
        return []
    return [_late(name, rank, best, step_ns)]


def _late(name: str, rank: int, row: Sequence[tuple[Pace, float]], step_ns: float) -> Finding:
    took, others_took = median(own.median for own, _ in row), median(usual for _, usual in row)
    first, last = row[0][0].first, row[-1][0].last
    text = (
        f"rank {rank} was slower than the others {in_steps(first, last)}: "
        f"{name} took {duration(took / 1e9)} there, {duration(others_took / 1e9)} elsewhere"
    )
    return Finding(
        "straggler", "WARN", text, first, first, last, rank, (rank,), span=name,
        value=took / 1e6, usual=others_took / 1e6, weight=(took - others_took) / max(step_ns, 1.0),
    )  # fmt: skip
