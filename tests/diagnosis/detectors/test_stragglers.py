"""Stragglers: the rank for which the others wait is named, wherever its time goes."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

MS = 1_000_000
SYNC = "train.collective.gradient_sync"


def diagnosed(late: dict[int, float], steps: int = 120, since: int = 40, jitter: float = 1.0) -> list[Finding]:
    """Four ranks that compute for 10 ms and meet; some come late from what is outside of their steps."""
    made, random_ = Diagnosis(world=4), random.Random(3)
    now, ids = 0, 0
    for step in range(steps):
        begins = {rank: now + int(MS * (late.get(rank, 0.0) if step >= since else 0.0)) for rank in range(4)}
        works = {rank: int(MS * (10 + jitter * random_.random())) for rank in range(4)}
        now = max(begins[rank] + works[rank] for rank in range(4)) + MS
        for rank in range(4):
            ids += 2
            root, inner = ids.to_bytes(8, "big"), (ids + 1).to_bytes(8, "big")
            arrived = begins[rank] + works[rank]
            made.feed(rank, Span(arrived, now - arrived, step, None, bytes(16), inner, root, SYNC))
            made.feed(rank, Span(begins[rank], now - begins[rank], step, None, bytes(16), root, None, "train.step"))
    return [each for each in made.findings() if "straggler" in each.kind]


def test_a_rank_that_loses_time_between_steps_is_named() -> None:
    """No span is slower on that rank, but it waits least in the collectives."""
    (found,) = diagnosed({1: 5.0})
    assert (found.kind, found.ranks, found.span) == ("straggler", (1,), SYNC)
    assert abs((found.step or 0) - 40) <= 4
    assert "for rank 1" in found.text


def test_ranks_that_are_late_by_turns_are_none() -> None:
    """On a busy machine another rank comes last each time."""
    assert diagnosed({}, jitter=8.0) == []


def test_a_slow_span_that_nobody_waits_for_is_no_straggler() -> None:
    """A rank may do the same work in another order, or begin earlier: it counts who is late where ranks meet."""
    made, random_, now, ids = Diagnosis(world=4), random.Random(5), 0, 0
    for step in range(120):
        took = {rank: int(MS * (10 + random_.random())) for rank in range(4)}
        end = now + max(took.values()) + MS
        for rank in range(4):
            ids += 3
            root, sync, slow = (each.to_bytes(8, "big") for each in (ids, ids + 1, ids + 2))
            arrived, inner = now + took[rank], MS * (8 if rank == 2 else 4)
            made.feed(rank, Span(now, inner, step, None, bytes(16), slow, root, "train.backward"))
            made.feed(rank, Span(arrived, end - arrived, step, None, bytes(16), sync, root, SYNC))
            made.feed(rank, Span(now, end - now, step, None, bytes(16), root, None, "train.step"))
        now = end
    assert [each for each in made.findings() if "straggler" in each.kind] == []


@pytest.mark.parametrize(
    ("pressure", "computes", "extra", "named"),
    [(0.6, 20.0, 5.0, False), (0.6, 20.0, 40.0, True), (0.0, 20.0, 5.0, True), (0.0, 3.0, 1.2, False)],
    ids=["busy", "busy, and late by three steps", "idle", "a millisecond"],
)
def test_a_busy_machine_makes_no_straggler(pressure: float, computes: float, extra: float, named: bool) -> None:
    """Where tasks wait for a CPU, or a millisecond is lost, only a rank that costs much of each step is named."""
    made, random_, now, ids = Diagnosis(world=4), random.Random(5), 0, 0
    for step in range(120):
        made.feed(0, Metric(now + 1, None, None, "system", {"psi/cpu": pressure}))
        took = {rank: int(MS * (computes + (extra if rank == 2 else 0.0) + random_.random())) for rank in range(4)}
        end = now + max(took.values()) + MS
        for rank in range(4):
            ids += 3
            root, sync, slow = (each.to_bytes(8, "big") for each in (ids, ids + 1, ids + 2))
            made.feed(rank, Span(now, took[rank], step, None, bytes(16), slow, root, "train.backward"))
            made.feed(rank, Span(now + took[rank], end - now - took[rank], step, None, bytes(16), sync, root, SYNC))
            made.feed(rank, Span(now, end - now, step, None, bytes(16), root, None, "train.step"))
        now = end
    assert [each.ranks for each in made.findings() if "straggler" in each.kind] == ([(2,)] if named else [])
